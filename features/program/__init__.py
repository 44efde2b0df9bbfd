"""Columns of a program, independent of its configurations, and facts about its nodes and tensors."""
