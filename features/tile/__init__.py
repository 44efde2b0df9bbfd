"""Tile configurations: the shared context of a kernel, and one file per physical idea."""
