"""Instances of layout graphs: distinct (node, row) and (pair, rows) entries of the configurations,
with columns.
"""
