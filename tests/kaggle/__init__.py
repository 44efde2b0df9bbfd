"""Tests of what runs on Kaggle."""
