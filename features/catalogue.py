"""The modules that declare blocks, in column order."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Final

MODULES: Final = (
    "features.graph_degrees",
    "features.graph_opcodes",
    "features.graph_size",
    "features.graph_types",
    "features.graph_work",
    "features.layout_candidates",
    "features.layout_change",
    "features.layout_copies",
    "features.layout_neighbourhood",
    "features.layout_padding",
    "features.layout_propagation",
    "features.layout_roles",
    "features.layout_types",
    "features.layout_violation",
    "features.tile_bounds",
    "features.tile_candidates",
    "features.tile_inner",
    "features.tile_kernel",
    "features.tile_traffic",
)


@cache
def declare() -> None:
    """Import them all: a block is registered when its class is declared."""
    for name in MODULES:
        import_module(name)
