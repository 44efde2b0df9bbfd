"""Advice on layouts: diagnosis of one compilation, entry layouts, search of configurations."""
