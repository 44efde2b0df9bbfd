"""Layouts that a back end demands of operations in every configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import permutations
from typing import Final

from xlarank.features.layout.configuration_masks import Mask, MaskedLayouts
from xlarank.features.layout.hardware import Demand
from xlarank.features.layout.layout_mapping import Layout, row_major
from xlarank.features.layout.layout_program import LayoutProgram

#: Number that stands for the output in demands; operands are counted from 0.
OUTPUT: Final = -1
#: A demand: number of the operand or `OUTPUT`, layout, configurations.
Demanded = tuple[int, Layout, Mask]
#: Function from an operand (node and number) to the layouts that it has so far.
Existing = Callable[[tuple[int, int]], MaskedLayouts]

#: Operations of which no order is demanded.
_INDIFFERENT: Final = frozenset(
    "parameter constant tuple iota get-tuple-element while conditional".split()
)


def demands(
    program: LayoutProgram, node: int, everything: Mask, existing: Existing
) -> Iterator[Demanded]:
    """Yield the layouts that the back end demands of a node's output and operands."""
    hardware = program.hardware
    opcode = program.opcode[node]
    demand = hardware.demands.get(opcode)
    tensors = [(OUTPUT, node), *enumerate(program.operands[node])]
    if demand == "matrices":
        yield from _matrices(program, node, everything, existing)
    elif demand is not None:
        for number, tensor in tensors:
            yield number, _ordered(program, demand, node, number, tensor), everything
    elif hardware.row_major_operands and opcode not in _INDIFFERENT:
        for number, tensor in tensors[1:]:
            yield number, row_major(len(program.dims[tensor])), everything


def _ordered(program: LayoutProgram, demand: Demand, node: int, number: int, tensor: int) -> Layout:
    """Return the layout of a node's output or operand that a demand asks for."""
    rank = len(program.dims[tensor])
    if demand == "row-major":
        return row_major(rank)
    batch, feature, spatial = program.groups[node][number + 1]
    if demand == "batch-major":
        last = sorted(batch, reverse=True)
        rest = [dimension for dimension in row_major(rank) if dimension not in batch]
        layouts = [(*order, *last) for order in permutations(rest)]
        return _cheapest(program, tensor, layouts) if batch else program.preferred[tensor]
    if demand == "features-in-tiles":
        orders = (spatial, batch, feature), (spatial, feature, batch)
        return _cheapest(program, tensor, [_major_first(*order) for order in orders])
    is_kernel = number == 1
    order = (feature, spatial, batch) if is_kernel else (batch, spatial, feature)
    return _major_first(*order)


def _cheapest(program: LayoutProgram, tensor: int, layouts: list[Layout]) -> Layout:
    """Return the layout that pads least, the first of several."""
    return min(layouts, key=lambda layout: program.padded_bytes(tensor, layout))


def _matrices(
    program: LayoutProgram, node: int, everything: Mask, existing: Existing
) -> Iterator[Demanded]:
    """Yield demands of a dot that has batch dimensions, or several dimensions of one role.

    An operand keeps the layout that it has if that is a matrix; else it is row-major if that is
    one; else batch, contracted, rows.
    """
    for number, tensor in enumerate(program.operands[node]):
        rank = len(program.dims[tensor])
        groups = program.groups[node][number + 1]
        if not groups[0] and len(groups[1]) < 2 and len(groups[2]) < 2:
            continue
        remaining = everything
        for layout, mask in [*existing((node, number)), (row_major(rank), everything)]:
            if mask & remaining and is_matrix(layout, groups):
                yield number, layout, mask & remaining
                remaining &= ~mask
        if remaining:
            batch, rows, contracted = groups
            yield number, _major_first(batch, contracted, rows), remaining
    batch, rows, columns = program.groups[node][0]
    if batch or len(rows) > 1 or len(columns) > 1:
        yield OUTPUT, row_major(len(program.dims[node])), everything


def dot_order(program: LayoutProgram, transpose: int) -> Layout | None:
    """Return the layout in which a dot can write its output so that a transpose moves nothing."""
    order = _major_first(program.permutation.get(transpose, ()))
    if "matrices" not in program.hardware.demands.values() or not order:
        return None
    dot = program.operands[transpose][0]
    rank = len(order)
    if program.opcode[dot] != "dot" or len(program.readers[dot]) != 1:
        return None
    last = tuple(range(rank))
    groups = last[: max(0, rank - 2)], last[max(0, rank - 2) : rank - 1], last[rank - 1 :]
    return order if is_matrix(order, groups) else None


def is_matrix(layout: Layout, groups: tuple[Layout, ...]) -> bool:
    """Return whether groups (batch, rows, columns) are contiguous, and the batch not minor-most.

    Empty groups are ignored. Source: XLA's ``MatrixLayout::For``.

    >>> is_matrix((1, 2, 0), ((0,), (1,), (2,))), is_matrix((0, 2, 1), ((0,), (1,), (2,)))
    (True, False)
    """
    orders = [tuple(reversed(group)) for group in groups if group]
    batch = tuple(reversed(groups[0]))
    at = 0
    while at < len(layout):
        order = next((order for order in orders if layout[at : at + len(order)] == order), None)
        if order is None or (at == 0 and order == batch):
            return False
        at += len(order)
    return True


def _major_first(*groups: Layout) -> Layout:
    """Return the layout of groups of dimensions, major-most first."""
    return tuple(reversed([dimension for group in groups for dimension in group]))
