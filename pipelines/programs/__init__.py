"""User programs: loading, candidate configurations, compilation, timing and writing as graph
files.
"""
