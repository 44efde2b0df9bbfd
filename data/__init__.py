"""File formats and paths: TpuGraphs npz files, HLO programs, submissions, the data root and the
workspace.

This package imports neither features nor models. `collection` finds the data root and lists its
files, `graph` reads one of them, and `config_table` keeps the configurations of a layout graph as
codes and distinct rows.
"""
