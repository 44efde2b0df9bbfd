"""Tests, in folders that mirror the packages; `tests.graphs` builds the graphs they share."""
