"""The meaning of every column, and the physical cause behind it."""

from __future__ import annotations

from functools import cache
from typing import Final

from xlarank.data.graph import Kind
from xlarank.features.catalogue import INSTANCE_BLOCKS, blocks_of
from xlarank.features.layout.candidates import placed_columns

COPIES: Final = "copies between unlike layouts"
PADDING: Final = "padding to hardware tiles"
VIOLATION: Final = "dimensions that misfit lanes and sublanes"
FUSION: Final = "fusion barriers"
CHANGE: Final = "layouts unlike the compiler's default"
MINOR: Final = "which dimension lies minor-most"
SURROUNDINGS: Final = "what surrounds the changed nodes"
CANDIDATES: Final = "how common the choice is among the candidates"
PROGRAM: Final = "the program itself"
TILES: Final = "tile sizes and counts"
INNER: Final = "the inner loop"
TRAFFIC: Final = "memory traffic"
ESTIMATE: Final = "estimated time"
SIBLINGS: Final = "what was measured of the program at another size"
SOURCE: Final = "where the labels come from"

#: First part of a column's name -> cause, where the rest does not decide.
_BY_BLOCK: Final[dict[str, str]] = {
    "change": CHANGE,
    "disagreement": COPIES,
    "siblings": COPIES,
    "propagation": COPIES,
    "neighbourhood": SURROUNDINGS,
    "padding": PADDING,
    "packed": PADDING,
    "outputs": PADDING,
    "violation": VIOLATION,
    "roles": MINOR,
    "types": MINOR,
    "candidates": CANDIDATES,
    "bounds": TILES,
    "tiles": TILES,
    "shape": TILES,
    "inner": INNER,
    "estimate": ESTIMATE,
    "tpu": ESTIMATE,
    "traffic": TRAFFIC,
    # of instances
    "graph": PROGRAM,
    "node": PROGRAM,
    "near": SURROUNDINGS,
    "pair": COPIES,
    "known": SIBLINGS,
    "source": SOURCE,
    "row": CHANGE,
    "output": CHANGE,
    "region": MINOR,
    "input": CHANGE,
    "kernel": CHANGE,
}
#: Second part of a name -> cause, whatever the block: a set layout keeps its tensor from being fused away.
_BY_WHAT: Final[dict[str, str]] = {
    "kept": FUSION,
    "fused": FUSION,
    "given": FUSION,
    "nodes_set": FUSION,
    "output_set": FUSION,
    "input_set": FUSION,
    "kernel_set": FUSION,
    "minor": MINOR,
    "minor_place": MINOR,
    "minor_role": MINOR,
    "default_minor": MINOR,
    "second": MINOR,
    "padded": PADDING,
    "excess": PADDING,
    "default_excess": PADDING,
    "minor_changed": MINOR,
}


def cause_of(column: str) -> str:
    """The cause behind a column of wide rows or instances; of a place among candidates, that of what is placed.

    >>> cause_of("padding__output_waste__mean"), cause_of("rank__change_nodes_set__share")
    ('padding to hardware tiles', 'fusion barriers')
    """
    block, what, how = placed_columns().get(column, column).split("__")
    if block == "kernel" and how not in ("row", "node"):  # of a tile's kernel, not of a node's kernel slot
        return PROGRAM
    if block in ("rank", "zscore"):  # tiles: the placed column's own block is the first word of the second part
        first, _, rest = what.partition("_")
        block, what = (first, rest) if first in _BY_BLOCK else (block, what)
    if block in ("neighbourhood", "disagreement", "pair", "padding", "packed", "siblings"):
        return COPIES if block == "neighbourhood" and what.startswith("mismatch") else _BY_BLOCK[block]
    if block == "change" and "unlike" in what:
        return COPIES
    if block == "outputs" and what.startswith(("made_", "read_")):
        return MINOR
    return _BY_WHAT.get(what, _BY_BLOCK.get(block, PROGRAM))


@cache
def column_meanings() -> dict[str, str]:
    """Column -> its one-line meaning; a name that both kinds of graphs have means the same in both."""
    kinds: tuple[Kind, ...] = ("layout", "tile")
    wide = {name: text for kind in kinds for block in blocks_of(kind) for name, text in block.columns.items()}
    of_instances = {name: text for block in INSTANCE_BLOCKS for name, text in block.columns.items()}
    return of_instances | wide
