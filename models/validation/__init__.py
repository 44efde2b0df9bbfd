"""Metrics of rankings, cross-validation, and calibrated certainty."""
