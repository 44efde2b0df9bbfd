"""Optuna studies: where they are stored, what a trial does, and their pictures."""
