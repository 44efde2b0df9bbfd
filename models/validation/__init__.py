"""Metrics of rankings, cross-validation, and noise of labels."""
