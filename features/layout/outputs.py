"""Layouts set on outputs: what they pad, and which dimensions they put along the lanes and sublanes.

On TPUs the layouts of outputs decide. In the real AlexNet file the operand slots of convolutions and dots change
nothing; eight output slots explain the runtimes.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from xlarank.features.layout.aggregation import Aggregation, Batch, Finalize, LayoutBlock
from xlarank.features.layout.layout_context import LayoutContext
from xlarank.features.layout.regions import CLASS_ROLES, ROLE_NAMES
from xlarank.features.program.tensors import Floats

_WHOSE: Final = ("all", *CLASS_ROLES)
_SUMMED: Final = {
    "excess": "bytes that regions of set outputs are padded beyond the layout that pads least",
    "own_excess": "the same of the set outputs alone",
    "padded": "bytes that regions of set outputs take in tiles",
    "set": "true bytes of set outputs",
}
_LARGEST: Final = {
    "excess": "largest of the bytes that the region of a set output is padded beyond the least",
    "padded": "largest of the bytes that the region of a set output takes in tiles",
}
_STORED: Final = "over the bytes of all tensors that a fusing compiler stores"
_TILES: Final = "bytes in tiles of regions of set outputs whose"


def _of_dimensions(end: str, dimension: str) -> dict[str, str]:
    columns = {
        f"outputs__{side}_{end}_{name}__ratio": f"{_TILES} {dimension} is {name} to a node that {does} the region, "
        + _STORED
        for name in ROLE_NAMES
        for side, does in (("made", "makes"), ("read", "reads"))
    }
    removed = f"{_TILES} {dimension} a reduction of the region removes, {_STORED}"
    return {**columns, f"outputs__read_{end}_reduced__ratio": removed}


class Outputs(LayoutBlock):
    """Padding and dimension roles of the regions (`xlarank.features.layout.regions`) of outputs that are set.

    Unset outputs are left to the compiler and count nothing. A region with several set outputs counts for each.
    """

    columns = {
        **{
            f"outputs__{whose}_{what}__ratio": f"{text} ({whose} nodes), {_STORED}"
            for what, text in _SUMMED.items()
            for whose in _WHOSE
        },
        **{f"outputs__{what}__max": f"{text}, {_STORED}" for what, text in _LARGEST.items()},
        "outputs__waste__max": "largest of padded over true bytes of the set outputs, minus 1",
        **_of_dimensions("minor", "minor-most dimension"),
        **_of_dimensions("second", "second minor-most dimension"),
    }

    def prepare(self, context: LayoutContext, aggregation: Aggregation) -> Finalize:
        rows, regions = context.output_rows, context.regions
        padded = rows.given * rows.padded * rows.region_bytes
        excess = rows.given * (rows.padded - rows.least) * rows.region_bytes
        summed = (excess, rows.given * (rows.padded - rows.least) * rows.bytes, padded, rows.given * rows.bytes)
        kind = context.coarse_class[context.table.node]
        mine = [np.ones(len(kind), bool), *(kind == number for number in range(len(CLASS_ROLES)))]
        tables: list[NDArray[np.float64]] = [values * some for values in summed for some in mine]
        for dim in (rows.minor, rows.second):
            at, has = np.maximum(dim, 0), dim >= 0
            for role in range(len(ROLE_NAMES)):
                tables += [padded * (has & roles[rows.region, role, at]) for roles in (regions.made, regions.read)]
            tables.append(padded * (has & regions.reduced[rows.region, at]))
        added = aggregation.sum(tables, each_node=True)
        largest = aggregation.maximum([excess, padded, rows.given * (rows.padded - 1)], each_node=True)
        first = len(summed) * len(mine)

        def finalize(batch: Batch) -> Floats:
            values = batch[added]
            return np.concatenate([values[:, :first], batch[largest], values[:, first:]], axis=1)

        return finalize
