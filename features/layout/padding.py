"""Memory lost to the hardware's tiles, and layouts that do not suit its lanes and sublanes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from xlarank.data.schema import LAYOUT_SLOTS
from xlarank.features.block import Tier
from xlarank.features.layout.aggregation import Aggregation, Batch, Finalize, LayoutBlock, Request
from xlarank.features.layout.layout_context import LayoutContext
from xlarank.features.program.opcode_classes import COARSE_CLASSES
from xlarank.features.program.tensors import Floats

_WASTE: Final = {
    "waste__mean": "mean of the waste over {}",
    "waste__max": "largest waste, {}",
    "waste_bytes__ratio": "bytes of padding over true bytes, all {} together",
    "waste_change__mean": "mean of the waste minus the default's over {}",
    "waste_change_bytes__ratio": "bytes of padding beyond the default's over true bytes, all {} together",
}
_WASTE_OF_CLASS: Final = {"waste__log": "sum of the waste over {}, log2(1 + x)", **_WASTE}


#: Groups of tensors with columns of their own: name, what they are, index of the coarse class (None for all).
_Group = tuple[str, str, int | None]
_ALL: Final[list[_Group]] = [("", "", None)]
_BY_CLASS: Final[list[_Group]] = [(f"{name}_", f"{name} ", at) for at, name in enumerate(COARSE_CLASSES)]


def _columns(block: str, groups: Sequence[_Group]) -> dict[str, str]:
    return {
        f"{block}__{name}{slot}_{what}": text.format(f"{slot} tensors of configurable {words}nodes")
        for name, words, coarse in groups
        for slot in LAYOUT_SLOTS
        for what, text in (_WASTE if coarse is None else _WASTE_OF_CLASS).items()
    }


class Padding(LayoutBlock):
    """Padding waste (padded size / true size - 1) with the two minor-most dimensions rounded up to 128 x 8.

    TPU arrays live in tiles of 8 sublanes x 128 lanes; a layout decides which dimensions are rounded up.
    """

    columns = _columns("padding", _ALL)
    parts: ClassVar[Sequence[tuple[str, Sequence[_Group]]]] = [("waste", _ALL)]  # of `TensorPhysics`, for groups

    def prepare(self, context: LayoutContext, aggregation: Aggregation) -> Finalize:
        shares: list[tuple[NDArray[Any], float]] = []
        wastes: list[Floats] = []
        nodes_of: list[float] = []
        for of_tile, _, _, coarse in (each := [(tile, *group) for tile, groups in self.parts for group in groups]):
            for rows in context.slots.values():
                now = getattr(rows.now, of_tile)
                extra = now - getattr(rows.default, of_tile)
                nodes, bytes_ = float(context.configurable_nodes), rows.total_bytes
                if coarse is not None:
                    mine = context.type_coarse_class == coarse
                    now, extra = mine * now, mine * extra
                    nodes, bytes_ = context.nodes_of_class[coarse], rows.bytes_of_class[coarse]
                for waste in (now, extra):
                    shares += [(waste, nodes), (waste * rows.bytes, bytes_)]
                wastes.append(now)
                nodes_of.append(nodes)
        summed, largest = aggregation.shares(shares), aggregation.maximum(wastes)
        # columns of whole groups have no sum of the waste
        logged = np.repeat([coarse is not None for *_, coarse in each], len(LAYOUT_SLOTS))
        kept = np.stack([logged, *[np.ones(len(wastes), bool)] * len(_WASTE)], axis=1)

        def finalize(batch: Batch) -> Floats:
            table = batch[summed].reshape(len(batch), len(wastes), 4)
            mean, most = table[:, :, :1], batch[largest][:, :, None]
            logs = np.log2(1 + mean * np.array(nodes_of)[:, None])
            values: Floats = np.concatenate([logs, mean, most, table[:, :, 1:]], axis=2)[:, kept]
            return values

        return finalize


class FinePadding(Padding):
    """`Padding` of convolutions, dots, reshapes and other nodes apart, and with XLA's finer tiles (``packed``).

    Finer tiles pack narrow elements into words and have fewer rows for tensors of few rows.
    """

    tier = Tier.FULL
    columns = {**_columns("padding", _BY_CLASS), **_columns("packed", _ALL), **_columns("packed", _BY_CLASS)}
    parts = [("waste", _BY_CLASS), ("packed", _ALL), ("packed", _BY_CLASS)]


_MISFITS = {
    "largest": "largest dimension is not minor-most",
    "lanes": "minor-most size is no multiple of the lanes (128)",
    "sublanes": "second minor-most size is no multiple of the sublanes (8)",
}


class Violation(LayoutBlock):
    """Violation ratios: shares of configurable nodes (or of bytes) whose layout wastes lanes or sublanes.

    The first is the ratio that lifted Harvard's ordered pair accuracy from 0.6 to 0.75 (2023).
    """

    columns = {
        f"violation__{slot}_{name}{of}__share": f"share of {whose.format(slot)} {what}"
        for slot in LAYOUT_SLOTS
        for name, what in _MISFITS.items()
        for of, whose in (
            ("", "configurable nodes: the {}'s"),
            ("_bytes", "the {} bytes:"),
            ("_change", "configurable nodes minus the default's: the {}'s"),
        )
    }

    def prepare(self, context: LayoutContext, aggregation: Aggregation) -> Request:
        parts: list[tuple[NDArray[Any], float]] = []
        nodes = context.configurable_nodes
        for rows in context.slots.values():
            for name in ("violation", "minor_misfit", "second_misfit"):
                now, default = getattr(rows.now, name), getattr(rows.default, name)
                parts += [(now, nodes), (now * rows.bytes, rows.total_bytes), (now.astype(float) - default, nodes)]
        return aggregation.shares(parts)
