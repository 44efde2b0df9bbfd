"""Blocks of instances: pairs of rows, and nodes with their row of layouts and their neighbours."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from xlarank.data.schema import LAYOUT_SLOTS
from xlarank.features.block import Block, Cause, Column, Scope
from xlarank.features.instances.instance_context import ABSENT, InstanceContext, Values
from xlarank.features.layout.layout_context import LayoutContext
from xlarank.features.layout.output_rows import POSITIONS, ROLE_NAMES, OutputRows
from xlarank.features.layout.pairs import Combinations, pair_layouts
from xlarank.features.program.program_context import OPCODE_GROUPS
from xlarank.features.program.tensors import Floats, Ints, log2p, millionths

#: Batch size for describing combinations.
_VALUE_BATCH = 1 << 16
_SIDE: Final = {
    "given": "whether this side sets a layout",
    "changed": "whether this side's full layout differs from its default",
    "minor": "log2 of 1 + the minor-most size on this side",
    "distance": "share of dimension pairs this side orders differently from its default",
    "opcode": "opcode group of the node on this side",
}


class InstancePair(Block):
    """Two rows that lay out the same tensor; -1 for node instances."""

    scope = Scope.INSTANCE
    cause = Cause.COPIES
    columns = {
        "pair__kind__number": "0-2: consumer and producer 1, 2, 3 or more edges apart; "
        "3: two readers of one tensor",
        "pair__unlike__flag": "whether the full layouts of both sides differ",
        "pair__minor_unlike__flag": "whether the minor-most dimensions of both layouts differ",
        "pair__given__count": "sides that set a layout",
        "pair__slot__left": "slot of the left side (1 input, 2 kernel)",
        "pair__bytes__log2": "log2 of 1 + bytes of the shared tensor",
        "pair__bytes__share": "log2 of 1 + the shared tensor's millionths of the graph's bytes",
        "pair__turned__flag": "whether a transpose lies between the two sides",
        **{
            f"pair__{what}__{side}": text
            for side in ("left", "right")
            for what, text in _SIDE.items()
        },
    }

    def compute(self, context: InstanceContext) -> NDArray[np.float32]:
        parts = [np.full((len(context.rows), len(self.columns)), ABSENT, np.float32)]
        start = 0
        for relation, combinations in enumerate(context.by_relation):
            end = start + combinations.total
            present = context.present[(context.present >= start) & (context.present < end)] - start
            for at in range(0, len(present), _VALUE_BATCH):
                parts.append(
                    self._values(
                        context.layout, combinations, relation, present[at : at + _VALUE_BATCH]
                    )
                )
            start = end
        return np.concatenate(parts)

    def _values(
        self, context: LayoutContext, combinations: Combinations, relation: int, numbers: Ints
    ) -> NDArray[np.float32]:
        pairs = combinations.pairs
        (pair, left, right) = combinations.sides(numbers)
        requested, produced, sides_set = pair_layouts(context, pairs, pair, left, right)
        bytes_ = pairs.bytes[pair]
        unlike = requested != produced
        # The minor-most dimension is the lowest digit of a key.
        minor_unlike = requested % 7 != produced % 7
        values = [
            np.full(len(pair), relation),
            unlike,
            minor_unlike,
            sides_set,
            pairs.left_slot[pair],
        ]
        values += [log2p(bytes_), millionths(bytes_, context.bytes.sum()), ~pairs.straight[pair]]
        for types, node, slot in (
            (left, pairs.left, pairs.left_slot),
            (right, pairs.right, pairs.right_slot),
        ):
            is_set, changed, minor, distance = (
                context.by_slot[name][slot[pair], types]
                for name in ("is_set", "changed", "minor", "distance")
            )
            opcode = context.opcode_group[context.graph.configurable[node[pair]]]
            values += [is_set, changed, log2p(minor), distance, opcode]
        return np.stack(values, axis=1).astype(np.float32)


class InstanceGraph(Block):
    """Sizes of the graph of an instance."""

    scope = Scope.INSTANCE
    columns = {
        "graph__bytes__log2": "log2 of 1 + bytes of all outputs",
        "graph__nodes__log2": "log2 of 1 + nodes",
        "graph__configurable__log2": "log2 of 1 + configurable nodes",
    }

    def compute(self, context: InstanceContext) -> Floats:
        graph = context.layout.graph
        sizes = np.array(
            [context.layout.bytes.sum(), graph.nodes, len(graph.configurable)], np.float64
        )
        return np.broadcast_to(log2p(sizes), (len(context), len(self.columns)))


class InstanceRarity(Block):
    """Rarity of an instance among the graph's distinct candidates.

    Rows are counted at their node, combinations at all equal pairs.
    """

    scope = Scope.INSTANCE
    transductive = True
    cause = Cause.CANDIDATES
    columns = {
        "candidates__rarity__log2": (
            "-log2 of the share of distinct candidates whose node takes this row (or of "
            "equal pairs in candidates that take this combination)"
        ),
        "candidates__behind__log2": (
            "log2 of the count of the most frequent row (combination) over this one's"
        ),
    }

    def compute(self, context: InstanceContext) -> Floats:
        table = context.layout.table
        # A row that no configuration takes counts as taken once.
        frequency = np.maximum(table.frequency, 1)
        most = np.maximum.reduceat(frequency, table.start[:-1]) if table.nodes else frequency
        rarity = max(1, table.configs) / frequency
        behind = most[table.node] / frequency
        rows = np.log2(np.stack([rarity, behind], axis=1))[context.rows]
        if not context.total:
            return rows
        # combinations are counted among equal pairs
        frequency = np.maximum(context.frequency, 1)
        starts = np.unique(context.first)
        group = np.searchsorted(starts, np.arange(context.total), side="right") - 1
        total = np.add.reduceat(context.frequency, starts)
        most = np.maximum.reduceat(frequency, starts)
        rarity = np.maximum(total[group] / frequency, 1.0)
        behind = most[group] / frequency
        return np.concatenate([rows, np.log2(np.stack([rarity, behind], axis=1))[context.present]])


_OPERAND: Final = {
    "bytes": "log2 of 1 + the tensor's bytes",
    "share": "log2 of 1 + the tensor's millionths of the graph's bytes",
    "opcode": "opcode group of the node that produces the tensor",
    "configurable": "whether the tensor is produced by a configurable node",
    "fanout": "consumers of the tensor",
    "fused": "whether a fusing compiler would not store the tensor",
}
_MILLIONTHS: Final = "log2 of 1 + millionths of the bytes that a fusing compiler stores"


class NodeBlock(Block):
    """Columns of node instances, each a formula of `InstanceContext`, ``(R,)``; `ABSENT` for
    pairs.
    """

    scope = Scope.INSTANCE

    def __init__(
        self, title: str, about: str, columns: dict[str, str], cause: Cause = Cause.PROGRAM
    ) -> None:
        self.title = title
        self.__doc__ = about
        self.columns = columns
        self.cause = cause

    def compute(self, context: InstanceContext) -> NDArray[np.float32]:
        values = np.full((len(context), len(self.columns)), ABSENT, np.float32)
        for number, column in enumerate(self.columns.values()):
            assert isinstance(column, Column) and column.formula is not None
            values[: len(context.rows), number] = column.formula(context)[context.rows]
        return values


#: Quantities per node, ``(nodes,)``.
_QUANTITIES: Final[dict[str, Callable[[LayoutContext], Values]]] = {
    "opcode": lambda c: c.opcode_group,
    "rank": lambda c: c.rank,
    "bytes": lambda c: log2p(c.bytes),
    "share": lambda c: millionths(c.bytes, c.bytes.sum()),
    "flops": lambda c: log2p(c.flops),
    "flops_share": lambda c: millionths(c.flops, c.flops.sum()),
    "fanout": lambda c: np.bincount(c.graph.edges[:, 1], minlength=c.graph.nodes),
    "root": lambda c: c.column("is_root") > 0,
    "fused": lambda c: c.fused,
    "level": lambda c: c.level / max(1, int(c.level.max())),
    "configurable": lambda c: c.configurable_index >= 0,
}


def _node(quantity: str, meaning: str, relation: str = "node") -> Column:
    """Return a column with a quantity of each row's node or related node; `ABSENT` if there is
    none.
    """

    def formula(context: InstanceContext) -> Values:
        nodes = context.related[relation]
        return np.where(nodes >= 0, _QUANTITIES[quantity](context.layout)[nodes], ABSENT)

    return Column(meaning, Cause.FUSION if quantity == "fused" else None, formula)


NODE: Final = NodeBlock(
    "InstanceNode",
    """The node of a node instance, independent of its row: operation, sizes and neighbours.""",
    {
        "node__opcode__group": _node(
            "opcode", "index into xlarank.features.program.program_context.OPCODE_GROUPS"
        ),
        "node__rank__dims": _node("rank", "dimensions of the output"),
        "node__bytes__log2": _node("bytes", "log2 of 1 + bytes of the output"),
        "node__bytes__share": _node(
            "share", "log2 of 1 + the output's millionths of the graph's bytes"
        ),
        "node__flops__log2": _node("flops", "log2 of 1 + estimated floating-point operations"),
        "node__flops__share": _node(
            "flops_share", "log2 of 1 + the operations' millionths of the graph's"
        ),
        "node__fanout__count": _node("fanout", "consumers of the output"),
        "node__root__flag": _node("root", "whether the node is the program's root"),
        "node__fused__flag": _node(
            "fused",
            (
                "whether a fusing compiler would not store the output "
                "(xlarank.features.program.program_context)"
            ),
        ),
        "node__consumer__opcode": _node(
            "opcode", "opcode group of the consumer with the largest output", "consumer"
        ),
        "node__consumer__configurable": _node(
            "configurable", "whether the consumer is configurable", "consumer"
        ),
        "node__level__share": _node(
            "level", "longest path up from the node over the graph's longest path"
        ),
    },
)


#: Columns of a slot: meaning and cause (default: the block's).
_SLOT: Final[dict[str, tuple[Any, ...]]] = {
    "given": ("whether the row sets the slot's layout", Cause.FUSION),
    "changed": ("whether the full layout differs from the default",),
    "minor_changed": ("whether the minor-most dimension differs from the default's", Cause.MINOR),
    "distance": ("share of dimension pairs ordered differently from the default, 0 to 1",),
    "contiguity": (
        "contiguity of a copy from the default, 0 to 1: log(run) / log(tensor), in elements",
    ),
    "minor": ("log2 of 1 + the minor-most size", Cause.MINOR),
    "default_minor": ("log2 of 1 + the default's minor-most size", Cause.MINOR),
    "minor_place": (
        "position of the minor-most dimension counted from the last one, which is 0",
        Cause.MINOR,
    ),
    "minor_role": (
        "index of the minor-most dimension's role in a convolution, dot or reshape",
        Cause.MINOR,
    ),
    "kept": (
        "log2 of 1 + the bytes that a set layout keeps from being fused away, in "
        "millionths of the bytes "
        "that a fusing compiler stores",
        Cause.FUSION,
    ),
}


def _of_slot(slot: str, name: str, meaning: str, cause: Cause | None = None) -> Column:
    def formula(context: InstanceContext) -> Values:
        return np.where(context.related[slot] >= 0, context.of_slot(slot, name), ABSENT)

    return Column(meaning, cause, formula)


ROW: Final = NodeBlock(
    "InstanceRow",
    """Layouts set by the row of a node instance, per slot, compared with the defaults.""",
    {
        "row__given__count": Column(
            "slots whose layout is set", Cause.FUSION, lambda c: c.slots_with("given")
        ),
        "row__changed__count": Column(
            "slots whose full layout differs from the default",
            None,
            lambda c: c.slots_with("changed"),
        ),
        **{
            f"{slot}__{name}__row": _of_slot(slot, name, *spec)
            for slot in LAYOUT_SLOTS
            for name, spec in _SLOT.items()
        },
    },
    Cause.CHANGE,
)


OPERANDS: Final = NodeBlock(
    "InstanceOperands",
    """Input and kernel tensors of a node instance, and whether its slots share a layout.""",
    {
        **{
            f"{slot}__{quantity}__node": _node(quantity, meaning, slot)
            for slot in LAYOUT_SLOTS[1:]
            for quantity, meaning in _OPERAND.items()
        },
        **{
            f"row__input_is_{slot}__agrees": Column(
                f"whether input and {slot} have equal full layouts",
                None,
                partial(InstanceContext.same_as_input, slot=slot),
            )
            for slot in ("output", "kernel")
        },
    },
    Cause.CHANGE,
)


SURROUNDINGS: Final = NodeBlock(
    "InstanceSurroundings",
    """Opcode groups of the operands (up) and consumers (down) of a node instance.""",
    {
        f"near__{name}__{side}": Column(
            f"whether {neighbour} is of group {name}",
            None,
            partial(InstanceContext.near, side=side, group=OPCODE_GROUPS.index(name)),
        )
        for side, neighbour in (("up", "an operand"), ("down", "a consumer"))
        for name in (
            "convolution",
            "dot",
            "reduce",
            "transpose",
            "reshape",
            "broadcast",
            "transcendental",
        )
    },
    Cause.SURROUNDINGS,
)


def _of_output(
    meaning: str, formula: Callable[[OutputRows], Values], cause: Cause | None = None
) -> Column:
    def of_set(context: InstanceContext) -> Values:
        outputs = context.layout.output_rows
        return np.where(outputs.is_set, formula(outputs), ABSENT)

    return Column(meaning, cause, of_set)


OUTPUT: Final = NodeBlock(
    "InstanceOutput",
    """The output's layout and the region that shares it (`xlarank.features.layout.output_rows`).

    All columns are -1 if the row leaves the output to the compiler, and at least 0 otherwise.
    """,
    {
        "output__padded__ratio": _of_output(
            "log2 of bytes in tiles over true bytes of the output",
            lambda o: np.log2(o.padded),
            Cause.PADDING,
        ),
        "output__excess__ratio": _of_output(
            "log2 of bytes in tiles over those of the layout that pads least",
            lambda o: np.log2(o.padded / o.least),
            Cause.PADDING,
        ),
        "output__default_excess__ratio": _of_output(
            "log2 of bytes in tiles by default over those of the layout that pads least",
            lambda o: np.log2(o.default / o.least),
            Cause.PADDING,
        ),
        "output__padded__share": _of_output(
            f"{_MILLIONTHS}: the output's bytes in tiles",
            lambda o: log2p(1e6 * o.padded * o.bytes),
            Cause.PADDING,
        ),
        "region__padded__share": _of_output(
            f"{_MILLIONTHS}: the region's bytes in tiles, padded like the output",
            lambda o: log2p(1e6 * o.padded * o.region_bytes),
            Cause.PADDING,
        ),
        "region__excess__share": _of_output(
            f"{_MILLIONTHS}: the region's padding beyond the layout that pads least",
            lambda o: log2p(1e6 * (o.padded - o.least) * o.region_bytes),
            Cause.PADDING,
        ),
        "region__tensors__count": _of_output("tensors of the region", lambda o: o.region_tensors),
        "region__makers__count": _of_output(
            "configurable nodes of the region", lambda o: o.region_makers
        ),
        "output__second__size": _of_output(
            "log2 of 1 + the second minor-most size", lambda o: o.second_size
        ),
        "output__second__place": _of_output(
            "position of the second minor-most dimension counted from the last one (1); 0 for none",
            lambda o: o.second_place,
        ),
        **{
            f"region__{position}_{name}__{side}": _of_output(
                f"whether the {words} dimension is {name} to a node that {verb} the region",
                partial(OutputRows.in_region, position=position, use=side, role=role),
            )
            for position, words in POSITIONS.items()
            for side, verb in (("made", "makes"), ("read", "reads"))
            for role, name in enumerate(ROLE_NAMES)
        },
        **{
            f"region__{position}_reduced__read": _of_output(
                f"whether a reduction that reads the region removes the {words} dimension",
                partial(OutputRows.in_region, position=position, use="reduced"),
            )
            for position, words in POSITIONS.items()
        },
    },
    Cause.MINOR,
)
