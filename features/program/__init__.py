"""Quantities of a program's nodes and tensors, and columns that are constant in a program."""
