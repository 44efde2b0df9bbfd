"""The modules that declare blocks, in column order."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Final

MODULES: Final = (
    "xlarank.features.program.degrees",
    "xlarank.features.program.opcode_counts",
    "xlarank.features.program.size",
    "xlarank.features.program.element_types",
    "xlarank.features.program.work",
    "xlarank.features.layout.candidates",
    "xlarank.features.layout.change",
    "xlarank.features.layout.copies",
    "xlarank.features.layout.neighbourhood",
    "xlarank.features.layout.padding",
    "xlarank.features.layout.propagation",
    "xlarank.features.layout.dimension_roles",
    "xlarank.features.layout.types",
    "xlarank.features.layout.violation",
    "xlarank.features.tile.bounds",
    "xlarank.features.tile.candidates",
    "xlarank.features.tile.inner",
    "xlarank.features.tile.kernel",
    "xlarank.features.tile.traffic",
)


@cache
def declare() -> None:
    """Import them all: a block is registered when its class is declared."""
    for name in MODULES:
        import_module(name)
