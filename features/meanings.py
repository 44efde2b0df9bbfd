"""Columns, nodes and layouts in words, and the physical cause behind each column."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xlarank.data.errors import XlarankError, did_you_mean
from xlarank.data.schema import ELEMENT_BYTES, LAYOUT_SLOTS, MAX_RANK, OPCODES
from xlarank.features.block import Block, Cause
from xlarank.features.catalogue import BLOCKS, COLUMNS
from xlarank.features.listwise import RANK_SOURCES
from xlarank.features.program.program_context import ProgramContext


def cause_of(column: str) -> Cause:
    """Return the cause behind a column; ranks and standard scores have their source's cause.

    >>> cause_of("padding__output_waste__mean").value
    'padding to hardware tiles'
    >>> cause_of("rank__change_nodes_set__share").value
    'fusion barriers'
    """
    source = RANK_SOURCES.get(column, column)
    return COLUMNS[source].cause if source in COLUMNS else Cause.PROGRAM


def meaning_of(column: str) -> str:
    """Return the meaning of a column; empty for a column that no block declares."""
    return COLUMNS[column].meaning if column in COLUMNS else ""


def blocks_by_column(pattern: str) -> dict[str, Block]:
    """Return the columns that match a pattern, with their blocks; raise `XlarankError` for none."""
    columns = {name: block for block in BLOCKS for name in block.columns}
    if matching := {name: columns[name] for name in columns if fnmatchcase(name, pattern)}:
        return matching
    hint = did_you_mean(pattern, columns, cutoff=0.5)
    hint = hint or "ask for several with a pattern such as 'padding__*'"
    expected = f"one of {len(columns)} columns"
    raise XlarankError(f"{pattern!r} is not a column", expected=expected, do=hint)


def describe_node(context: ProgramContext, node: int) -> tuple[str, str]:
    """Return opcode and output shape of a node, such as ``dot`` and ``f32[8,32]``."""
    element = [*ELEMENT_BYTES][context.element_type[node]]
    sizes = ",".join(map(str, context.dims[node, : context.rank[node]]))
    return OPCODES[int(context.graph.opcode[node])], f"{element}[{sizes}]"


def layout_text(row: NDArray[np.integer[Any]]) -> str:
    """Return the layouts that a row of ``node_config_feat`` ``(18,)`` sets, minor-to-major.

    >>> layout_text(np.array([1, 0, -1, -1, -1, -1, *[-1] * 12]))
    'output {1,0}'
    """
    orders = map(order_text, row.reshape(len(LAYOUT_SLOTS), MAX_RANK))
    slots = zip(LAYOUT_SLOTS, orders, strict=True)
    return ", ".join(f"{slot} {order}" for slot, order in slots if order) or "default"


def order_text(layout: Iterable[int]) -> str:
    """Return a layout as text such as ``{1,0}``, empty if no dimension is set."""
    dimensions = ",".join(str(int(dimension)) for dimension in layout if dimension >= 0)
    return f"{{{dimensions}}}" if dimensions else ""
