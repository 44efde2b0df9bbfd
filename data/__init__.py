"""File formats and paths: graphs, programs, submissions, the data root and the workspace.

`collection` finds the data root and lists its files, `graph` reads one of them, and `config_table`
keeps the configurations of a layout graph as codes and distinct rows.
"""
