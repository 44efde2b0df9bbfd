"""Columns that are constant across a program's configurations, and quantities of its nodes and
tensors.
"""
