"""Columns of tile configurations and of their kernels."""
