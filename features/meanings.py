"""What every column means, wide rows and instances together."""

from __future__ import annotations

from functools import cache

from xlarank.data.graph import Kind
from xlarank.features.catalogue import INSTANCE_BLOCKS, blocks_of


@cache
def column_meanings() -> dict[str, str]:
    """Column -> its one-line meaning; a name that both kinds of graphs have means the same in both."""
    kinds: tuple[Kind, ...] = ("layout", "tile")
    wide = {name: text for kind in kinds for block in blocks_of(kind) for name, text in block.columns.items()}
    of_instances = {name: text for block in INSTANCE_BLOCKS for name, text in block.columns.items()}
    return of_instances | wide
