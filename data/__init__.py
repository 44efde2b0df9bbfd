"""The file format: reading, checking and writing TpuGraphs npz files, and finding them on disk.

This package imports neither features nor models. `collection` finds the tree and lists its files, and
`graph` reads one of them; `config_table` keeps the configurations of a layout graph as codes and distinct rows.
"""
