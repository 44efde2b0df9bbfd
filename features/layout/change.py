"""Changes of a configuration from the compiler's default, by slot, opcode class and group of tied
nodes.

Tied nodes are configurable nodes whose layouts are chosen together, as in Google's files: in every
real layout file a few choices determine the configurations of hundreds of nodes. The rule was
derived from these files (docs/explanation/layouts.md). Two nodes are tied if they have one opcode
and

- the same dimensions are at stake: batch and feature of a convolution, the last free and the last
  contracted dimension of a dot, the blocks of dimensions that a reshape keeps, splits or merges;
- the same order of these dimensions is cheaper: fewer elements once the minor-most dimension is
  padded to the lanes and the next to the sublanes. The compiler prefers this order.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from xlarank.data.config_table import group_codes
from xlarank.data.schema import LAYOUT_SLOTS, MAX_RANK, OPCODES
from xlarank.features.block import Cause, Column
from xlarank.features.layout.aggregation import Aggregation, Batch, Finalize, LayoutBlock
from xlarank.features.layout.layout_context import CLASS_ROLES, LayoutContext
from xlarank.features.layout.layout_facts import LayoutFacts
from xlarank.features.program.program_context import OPCODE_CLASSES
from xlarank.features.program.slots import CONVOLUTION_ROLES, DOT_ROLES, reshape_blocks
from xlarank.features.program.tensors import TPU, Floats

Shape = tuple[int, ...]
#: Dimensions, minor-most first.
Order = tuple[int, ...]

#: Roles of the dimensions at stake, as indices; at equal cost the first is minor-most, except in
#: kernels.
_AT_STAKE: Final = {
    "convolution": (CONVOLUTION_ROLES.index("feature"), CONVOLUTION_ROLES.index("batch")),
    "dot": (DOT_ROLES.index("contracted"), DOT_ROLES.index("rows")),
}
_SLOT_COLUMNS: Final = {
    "set__share": "share of configurable nodes whose {} layout is set",
    "changed__share": "share of configurable nodes whose full {} layout differs from the default",
    "changed_bytes__share": "share of the {} bytes laid out unlike the default",
    "distance__mean": "mean share of dimension pairs of the {} ordered unlike the default",
    "minor_changed__share": (
        "share of configurable nodes whose minor-most {} dimension is not the default's"
    ),
    "minor_changed_bytes__share": (
        "share of the {} bytes with a minor-most dimension that is not the default's"
    ),
    "scattered_bytes__share": "{0} bytes times (1 - contiguity), over all {0} bytes; contiguity is "
    "log(run) / log(elements) of the runs that a copy from the default moves whole",
}
_NODES: Final = "configurable nodes whose"
_UNLIKE: Final = "have equal shapes but different layouts"
_GROUPS: Final = {
    "turned__share": "mean over groups of tied {} nodes of the share of nodes with a turned output",
    "turned_bytes__share": (
        "bytes of turned outputs of {} nodes, over the output bytes of all configurable nodes"
    ),
    "set_bytes__share": (
        "bytes of set outputs of {} nodes, over the output bytes of all configurable nodes"
    ),
}


@dataclass(frozen=True)
class TiedNode:
    """Possible layouts of a node's output, and the node's group of tied nodes.

    Attributes:
        signature: equal for nodes that are tied.
        orders: distinct orders that the output may be set to, first the `cheaper` one (`_reshape`:
            row-major); an empty one sets nothing.
        optional: whether random configurations may leave the node to the compiler, as Google's do
            with reshapes.
    """

    signature: tuple[Any, ...]
    orders: tuple[Order, ...]
    optional: bool = False


def tied_nodes(facts: LayoutFacts) -> list[TiedNode]:
    """Return the possible layouts and the signature of each configurable node."""
    nodes = facts.graph.configurable
    operand_ranks = np.zeros((facts.graph.nodes, MAX_RANK + 1), np.int64)
    consumer, operand = facts.graph.edges.T
    np.add.at(operand_ranks, (consumer, facts.rank[operand]), 1)
    equal = group_codes(np.column_stack([facts.signature, operand_ranks[nodes]]))
    distinct = [
        _tied(facts, k, tuple(operand_ranks[nodes[k]].tolist())) for k in equal.first.tolist()
    ]
    return [distinct[number] for number in equal.group]


def groups_of(tied: Sequence[TiedNode]) -> NDArray[np.intp]:
    """Return the group of each node, ``(nodes,)``, numbered in order of first appearance."""
    numbers: dict[tuple[Any, ...], int] = {}
    return np.array([numbers.setdefault(node.signature, len(numbers)) for node in tied], np.intp)


def _tied(facts: LayoutFacts, k: int, operand_ranks: tuple[int, ...]) -> TiedNode:
    tensors = facts.slot_tensor[k]
    opcode = OPCODES[int(facts.graph.opcode[facts.graph.configurable[k]])]
    output, *operands = (
        tuple(facts.dims[t, : facts.rank[t]].tolist()) if t >= 0 else () for t in tensors
    )
    if opcode == "reshape" and tensors[1] >= 0:
        return _reshape(output, operands[0], reshape_blocks(facts, tensors[None])[0].tolist())
    pairs = _at_stake(opcode, [output, *operands], facts.roles[k]) if (tensors >= 0).all() else None
    if pairs is None:  # another opcode, a missing operand, or sizes that do not fit
        first = cheaper(output, tuple(reversed(range(len(output))))[:2])
        key: tuple[Any, ...] = (operand_ranks, first)
    else:
        first, *operand_orders = key = tuple(map(cheaper, (output, *operands), pairs))
        if opcode == "dot" and {len(output), *map(len, operands)} == {2}:
            key = (first,)
        elif opcode == "dot":  # either operand may come first
            ordered = zip(operands, operand_orders, strict=True)
            key = (first, *sorted((len(shape), *order) for shape, order in ordered))
    return TiedNode((opcode, len(output), *key), tuple(dict.fromkeys([first, first[::-1]])))


def _at_stake(
    opcode: str, shapes: Sequence[Shape], roles: NDArray[np.integer]
) -> list[Order] | None:
    """Return the dimensions at stake of output, input and kernel; None if there are none or sizes
    do not fit.
    """
    if opcode not in _AT_STAKE:
        return None
    slots = [
        [np.flatnonzero(slot == role).tolist() for role in _AT_STAKE[opcode]] for slot in roles
    ]
    if opcode == "dot":
        batch = [shapes[0][d] for d in np.flatnonzero(roles[0] == DOT_ROLES.index("batch"))]
        for number, free in ((1, slots[0][1]), (2, slots[0][0])):
            slots[number] = _contracted_and_free(
                shapes[number], [shapes[0][d] for d in free], batch
            )
    output, left, right = (tuple(dim for dims in slot for dim in dims[-1:]) for slot in slots)
    sizes = [
        [sorted(shape[d] for d in dims) for dims in slot]
        for shape, slot in zip(shapes, slots, strict=True)
    ]
    if opcode == "convolution":
        fits = len(output) == len(left) == len(right) == 2
        fits = fits and sizes[1][1] == sizes[0][1] and sizes[2][0] == sizes[0][0]
    else:
        fits = sizes[1][0] == sizes[2][0] != []
    # at equal cost the kernel's later dimension comes first
    return [output, left, tuple(sorted(right, reverse=True))] if fits else None


def _contracted_and_free(
    shape: Shape, free: Sequence[int], batch: Sequence[int]
) -> list[list[int]]:
    """Return the contracted and the free dimensions of a dot's operand, from the sizes of its
    output.

    Among dimensions of equal size, the first are free and the next batch dimensions; `slot_roles`
    may differ.
    """
    dims: list[int] = []
    for size in free:
        dims += [d for d in range(dims[-1] + 1 if dims else 0, len(shape)) if shape[d] == size][:1]
    batches = Counter(batch)
    contracted = []
    for d in sorted({*range(len(shape))} - {*dims}):
        if batches[shape[d]]:
            batches[shape[d]] -= 1
        else:
            contracted.append(d)
    return [contracted, dims]


def _reshape(output: Shape, operand: Shape, blocks: Sequence[Sequence[int]]) -> TiedNode:
    """Return a reshape's `TiedNode`: an order for each order of its blocks, dimensions of size 1
    major-most.
    """
    shapes = (output, operand)
    count = max(map(max, blocks)) + 1
    orders = []
    for block_order in permutations(reversed(range(count))):
        position = {number: index for index, number in enumerate(block_order)} | {-1: count}
        orders.append(
            tuple(
                tuple(
                    sorted(
                        range(len(shape)), key=lambda d: (position[numbers[d]], shape[d] == 1, -d)
                    )
                )
                for numbers, shape in zip(blocks, shapes, strict=True)
            )
        )
    preferred = [cheaper(shape, tuple(reversed(range(len(shape))))) for shape in shapes]
    signature = ("reshape", len(output), len(operand), *orders, *(preferred if count > 1 else []))
    return TiedNode(signature, tuple(dict.fromkeys(out for out, _ in orders)), optional=True)


def cheaper(shape: Shape, dimensions: Order) -> Order:
    """Return the dimensions along lanes and sublanes that pad a tensor least; at equal cost the
    earlier ones.

    >>> cheaper((4096, 1000), (1, 0)), cheaper((32, 1000), (1, 0)), cheaper((2, 96, 96, 96, 4), (4,
    ...     0))
    ((0, 1), (1, 0), (4, 0))
    """

    def padded(order: Order) -> int:
        lanes, sublanes = (max(1, shape[d]) for d in order)
        rest = math.prod(max(1, shape[d]) for d in dimensions if d not in order)
        return (
            -(-lanes // TPU.lanes) * TPU.lanes * -(-sublanes // TPU.sublanes) * TPU.sublanes * rest
        )

    return min(permutations(dimensions, 2), key=padded, default=dimensions)


class SlotChange(LayoutBlock):
    """Layouts set and changed per slot: sums over configurable nodes, divided by their number or
    bytes.
    """

    cause = Cause.CHANGE
    columns = {
        f"change__{slot}_{what}": Column(
            text.format(slot), Cause.FUSION if what == "set__share" else None
        )
        for slot in LAYOUT_SLOTS
        for what, text in _SLOT_COLUMNS.items()
    }

    def prepare(self, context: LayoutContext, aggregation: Aggregation) -> Finalize:
        parts: list[tuple[NDArray[Any], float]] = []
        for rows in context.slots.values():
            nodes = context.configurable_nodes
            total = rows.total_bytes
            parts += [
                (rows.is_set, nodes),
                (rows.changed, nodes),
                (rows.changed * rows.bytes, total),
            ]
            parts += [
                (rows.distance, nodes),
                (rows.minor_changed, nodes),
                (rows.minor_changed * rows.bytes, total),
            ]
            parts.append(((1 - rows.contiguity) * rows.bytes, total))
        return aggregation.shares(parts)


class NodeChange(LayoutBlock):
    """Nodes with any layout set or changed, and bytes of the changed tensors; log is log2(1 +
    x).
    """

    cause = Cause.CHANGE
    columns = {
        "change__nodes_set__share": Column(
            "share of configurable nodes with any layout set", Cause.FUSION
        ),
        "change__nodes_changed__share": (
            "share of configurable nodes with any layout unlike the default"
        ),
        "change__nodes_changed__log": (
            "number of configurable nodes with any layout unlike the default"
        ),
        "change__slots_changed__log": "number of layouts unlike the default",
        "change__all_bytes__log": "bytes of all tensors laid out unlike the default",
        "change__all_bytes__ratio": (
            "bytes laid out unlike the default, summed over slots, over all output bytes"
        ),
    }

    def prepare(self, context: LayoutContext, aggregation: Aggregation) -> Finalize:
        slots = context.slots.values()
        any_set = np.any([rows.is_set for rows in slots], axis=0)
        changed = np.sum([rows.changed for rows in slots], axis=0)
        changed_bytes = np.sum([rows.changed * rows.bytes for rows in slots], axis=0)
        requested = aggregation.sum([any_set, context.type_changed, changed, changed_bytes])
        nodes = context.configurable_nodes
        total = max(1.0, float(context.bytes.sum()))

        def finalize(batch: Batch) -> Floats:
            set_, nodes_changed, slots_changed, bytes_ = batch[requested].T
            logs = (np.log2(1 + counted) for counted in (nodes_changed, slots_changed, bytes_))
            return np.stack([set_ / nodes, nodes_changed / nodes, *logs, bytes_ / total], axis=1)

        return finalize


class ChangeByClass(LayoutBlock):
    """Bytes laid out unlike the default, by opcode class and slot, over the bytes of that slot."""

    cause = Cause.CHANGE
    columns = {
        f"change__{name}_{slot}_bytes__share": (
            f"bytes of the {slot} of {name} nodes laid out unlike the "
            f"default, over all {slot} bytes of configurable nodes"
        )
        for name in OPCODE_CLASSES
        for slot in LAYOUT_SLOTS
    }

    def prepare(self, context: LayoutContext, aggregation: Aggregation) -> Finalize:
        opcode_class = context.configurable_class[context.type_configurable]
        return aggregation.shares(
            ((opcode_class == number) * rows.changed * rows.bytes, rows.total_bytes)
            for number in range(len(OPCODE_CLASSES))
            for rows in context.slots.values()
        )


class InnerChange(LayoutBlock):
    """Nodes with tensors of equal shape and different layouts (implicit transposes), or with equal
    set layouts.
    """

    cause = Cause.CHANGE
    columns = {
        f"change__{what}__share": Column(
            f"share of {meaning}", Cause.COPIES if "unlike" in what else None
        )
        for what, meaning in (
            ("output_unlike_input", f"{_NODES} output and input {_UNLIKE}"),
            (
                "output_unlike_input_bytes",
                f"the output bytes of nodes whose output and input {_UNLIKE}",
            ),
            ("output_unlike_kernel", f"{_NODES} output and kernel {_UNLIKE}"),
            ("input_unlike_kernel", f"{_NODES} input and kernel {_UNLIKE}"),
            (
                "output_set_like_input",
                f"{_NODES} output and input are both set, and to the same layout",
            ),
            (
                "input_set_like_kernel",
                f"{_NODES} input and kernel are both set, and to the same layout",
            ),
        )
    }

    def prepare(self, context: LayoutContext, aggregation: Aggregation) -> Finalize:
        output, input_, kernel = slots = list(context.slots.values())
        dims = context.dims[context.slot_tensor[context.type_configurable]]
        unlike_input, unlike_kernel, operands = (
            (dims[:, a] == dims[:, b]).all(axis=1)
            & (slots[a].key != slots[b].key)
            & (slots[b].bytes > 0)
            for a, b in ((0, 1), (0, 2), (1, 2))
        )
        like_input = output.is_set & input_.is_set & (output.key == input_.key)
        like_kernel = input_.is_set & kernel.is_set & (input_.key == kernel.key)
        tables = [
            unlike_input,
            unlike_input * output.bytes,
            unlike_kernel,
            operands,
            like_input,
            like_kernel,
        ]
        nodes = context.configurable_nodes
        return aggregation.sum(tables, over=[nodes, output.total_bytes, nodes, nodes, nodes, nodes])


class TiedGroups(LayoutBlock):
    """Set outputs and turned outputs: means over groups of tied nodes, and shares of bytes.

    A set output is *turned* if its minor-most dimension differs from that of its group's first
    order (`TiedNode`): the order that pads least for a convolution or dot, row-major for a reshape.
    Means over groups do not grow with the size of the program, as sums over nodes do.
    """

    cause = Cause.MINOR
    columns = {
        "groups__set__share": (
            "mean over groups of tied nodes of the share of nodes with a set output"
        ),
        "groups__turned__share": (
            "mean over groups of tied nodes of the share of nodes with a turned output"
        ),
        "groups__turned_bytes__share": (
            "bytes of turned outputs, over the output bytes of all configurable nodes"
        ),
        **{
            f"groups__{kind}_{what}": text.format(kind)
            for kind in CLASS_ROLES
            for what, text in _GROUPS.items()
        },
    }

    def prepare(self, context: LayoutContext, aggregation: Aggregation) -> Finalize:
        tied = tied_nodes(context)
        group = groups_of(tied)
        kinds = np.array([node.signature[0] for node in tied])
        node = context.table.node
        minor = context.table.rows[:, 0]
        # minor-most dimension of each node's first order; -1 if none may be set
        first = np.array([node.orders[0][0] if node.orders[0] else -1 for node in tied], np.int64)
        is_set = minor >= 0
        turned = is_set & (minor != first[node])
        share = 1 / np.bincount(group)[group][node]  # sums to 1 within a group
        bytes_ = context.bytes[context.graph.configurable][node]
        groups = max(1, len(set(group)))
        total = context.slots["output"].total_bytes
        tables = [is_set * share, turned * share, turned * bytes_]
        over = [groups, groups, total]
        for kind in CLASS_ROLES:
            members = (kinds == kind)[node]
            tables += [
                members * turned * share,
                members * turned * bytes_,
                members * is_set * bytes_,
            ]
            over += [max(1, len(set(group[kinds == kind]))), total, total]
        return aggregation.sum(tables, over=over, each_node=True)
