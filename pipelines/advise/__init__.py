"""Advice on layouts: diagnosis of one compilation, entry layouts, and a search by the TPU's compiler."""
