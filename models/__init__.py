"""Rankers behind one contract, and how they are judged.

This room sees rows, costs and groups; it knows nothing of npz files or the command line.
"""
