"""The file format: reading, checking and writing TpuGraphs npz files, and finding them on disk.

This package imports neither features nor models. The path of one graph starts here:
`root` finds the tree, `collection` lists its files, `graph` reads one file, and for layout
graphs `config_table` shrinks the configurations to codes and distinct rows on the way in.
"""
