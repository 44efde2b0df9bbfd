"""Metrics of rankings, and cross-validation."""
