"""Explanations of rankings: additive contributions to scores, and calibrated certainty."""
