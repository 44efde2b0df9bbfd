"""The built-in blocks, the columns of a graph, and their meanings and causes."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Final

from xlarank.data.errors import XlarankError, did_you_mean
from xlarank.data.graph import Kind
from xlarank.features import listwise
from xlarank.features.block import Block, Cause, Scope
from xlarank.features.layout import change, copies, padding, relayout_quantities
from xlarank.features.program import composition
from xlarank.features.tile import bounds, tpu_time

#: Version of the values of columns. Raise it when values of any column change: rows of an earlier
#: version are built again, and models trained on them are refused.
COLUMNS_VERSION: Final = 1


BLOCKS: Final[tuple[Block, ...]] = (
    composition.node_degrees,
    composition.opcode_histogram,
    composition.opcode_sizes,
    composition.graph_size,
    composition.element_types,
    composition.work,
    composition.computations,
    padding.fastest_time,
    listwise.frequency,
    listwise.layout_ranks,
    change.slot_change,
    change.node_change,
    copies.disagreement,
    copies.configurable_nodes,
    copies.changed_surroundings,
    padding.padding,
    padding.outputs,
    change.tied_groups,
    padding.dimension_roles,
    padding.minor_sizes,
    padding.violation,
    padding.estimated_time,
    relayout_quantities.relayout_costs,
    listwise.copy_ranks,
    bounds.tile_bounds,
    bounds.tile_counts,
    bounds.tile_shape,
    listwise.tile_ranks,
    bounds.tile_inner,
    bounds.tile_kernel,
    bounds.tile_traffic,
    tpu_time.tpu_time,
)


#: Meaning and cause of every column.
COLUMNS: Final = {name: column for block in BLOCKS for name, column in block.columns.items()}
if len(COLUMNS) < sum(len(block.columns) for block in BLOCKS):
    raise TypeError("two blocks have a column of one name")


def blocks_of(kind: Kind) -> list[Block]:
    """Return the blocks for one kind of graph: of the graph, of configurations, listwise.

    Each group is in the order of `BLOCKS`.
    """
    blocks = [block for block in BLOCKS if kind in block.kinds]
    return sorted(blocks, key=lambda block: (block.scope != "graph", block.listwise))


def columns_in(blocks: Iterable[Block], scope: Scope) -> list[str]:
    """Return the columns of the blocks of one scope."""
    return [name for block in blocks if block.scope == scope for name in block.columns]


def all_columns(kind: Kind) -> list[str]:
    """Return the columns of the rows of a kind of graphs, in order."""
    return [name for block in blocks_of(kind) for name in block.columns]


def columns_version(kind: Kind) -> str:
    """Return `COLUMNS_VERSION` and a checksum of the names of columns."""
    names = ",".join(all_columns(kind))
    return f"{COLUMNS_VERSION}-{zlib.crc32(names.encode()):08x}"


def meaning_of(column: str) -> str:
    """Return the meaning of a column; empty for a column that no block declares."""
    return COLUMNS[column].meaning if column in COLUMNS else ""


def cause_of(column: str) -> Cause:
    """Return the cause behind a column; ranks and standard scores have their source's cause.

    >>> cause_of("padding__output_waste__mean").value
    'padding to hardware tiles'
    >>> cause_of("rank__change_nodes_set__share").value
    'fusion barriers'
    """
    source = listwise.RANK_SOURCES.get(column, column)
    return COLUMNS[source].cause if source in COLUMNS else Cause.PROGRAM


def blocks_by_column(pattern: str) -> dict[str, Block]:
    """Return the columns that match a pattern, with their blocks; raise `XlarankError` for none."""
    columns = {name: block for block in BLOCKS for name in block.columns}
    if matching := {name: columns[name] for name in columns if fnmatchcase(name, pattern)}:
        return matching
    hint = did_you_mean(pattern, columns, cutoff=0.5)
    hint = hint or "ask for several with a pattern such as 'padding__*'"
    expected = f"one of {len(columns)} columns"
    raise XlarankError(f"{pattern!r} is not a column", expected=expected, do=hint)
