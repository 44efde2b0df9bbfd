"""Importing this module declares every block, in column order."""

from features import (  # noqa: F401
    graph_degrees,
    graph_opcodes,
    graph_size,
    layout_candidates,
    layout_change,
    layout_disagreement,
    layout_neighbourhood,
    layout_padding,
    layout_violation,
    tile_bounds,
    tile_candidates,
    tile_kernel,
    tile_traffic,
)
