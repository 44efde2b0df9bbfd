"""Columns of node instances about the output: what its layout pads, and who reads it how."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from xlarank.features.instances.block import ABSENT, NodeBlock
from xlarank.features.layout.context import LayoutContext
from xlarank.features.layout.regions import ROLE_NAMES
from xlarank.features.program.tensors import log2p

_ENDS: Final = {"minor": "minor-most", "second": "second minor-most"}
_MILLIONTHS: Final = "log2 of 1 + millionths of the bytes that a fusing compiler stores"


class InstanceOutput(NodeBlock):
    """The output's layout and the region that shares it (`xlarank.features.layout.regions`).

    -1 where the row leaves the output to the compiler; all others are 0 or more.
    """

    columns = {
        "output__padded__ratio": "log2 of bytes in tiles over true bytes of the output",
        "output__excess__ratio": "log2 of bytes in tiles over those of the layout that pads least",
        "output__default_excess__ratio": "the same of the default layout",
        "output__padded__share": f"{_MILLIONTHS}: the output's bytes in tiles",
        "region__padded__share": f"{_MILLIONTHS}: the region's bytes in tiles, padded like the output",
        "region__excess__share": f"{_MILLIONTHS}: what the region is padded beyond the layout that pads least",
        "region__tensors__count": "tensors of the region",
        "region__makers__count": "configurable nodes of the region",
        "output__second__size": "log2 of 1 + the second minor-most size",
        "output__second__place": "the second minor-most dimension counted from the last one, plus 1; 0 for none",
        **{
            f"region__{end}_{name}__{side}": f"whether the {words} dimension is {name} to a node that "
            f"{verb} the region"
            for end, words in _ENDS.items()
            for side, verb in (("made", "makes"), ("read", "reads"))
            for name in ROLE_NAMES
        },
        **{
            f"region__{end}_reduced__read": f"whether a reduction that reads the region removes the {words} "
            "dimension"
            for end, words in _ENDS.items()
        },
    }

    def of_rows(self, context: LayoutContext) -> dict[str, NDArray[Any]]:
        rows, regions = context.output_rows, context.regions
        node = context.graph.configurable[context.table.node]
        second = np.maximum(rows.second, 0)
        has_second = rows.second >= 0
        found: dict[str, NDArray[Any]] = {
            "output__padded__ratio": np.log2(rows.padded),
            "output__excess__ratio": np.log2(rows.padded / rows.least),
            "output__default_excess__ratio": np.log2(rows.default / rows.least),
            "output__padded__share": log2p(1e6 * rows.padded * rows.bytes),
            "region__padded__share": log2p(1e6 * rows.padded * rows.region_bytes),
            "region__excess__share": log2p(1e6 * (rows.padded - rows.least) * rows.region_bytes),
            "region__tensors__count": regions.tensors[rows.region],
            "region__makers__count": regions.makers[rows.region],
            "output__second__size": log2p(np.where(has_second, context.dims[node, second], 1)),
            "output__second__place": np.where(has_second, context.rank[node] - second, 0),
        }
        for end, dim in (("minor", rows.minor), ("second", rows.second)):
            at, has = np.maximum(dim, 0), dim >= 0
            for side, roles in (("made", regions.made), ("read", regions.read)):
                for number, name in enumerate(ROLE_NAMES):
                    found[f"region__{end}_{name}__{side}"] = has & roles[rows.region, number, at]
            found[f"region__{end}_reduced__read"] = has & regions.reduced[rows.region, at]
        return {name: np.where(rows.given, found[name], ABSENT) for name in self.columns}
