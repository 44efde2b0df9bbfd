"""One ranker a file, behind `xlarank.models.base.Ranker`."""
