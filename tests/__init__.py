"""Tests, in folders that mirror the rooms; `tests.graphs` builds the graphs they share."""
