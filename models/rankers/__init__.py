"""Rankers behind `xlarank.models.base.Ranker`."""
