"""Columns of tile configurations."""
