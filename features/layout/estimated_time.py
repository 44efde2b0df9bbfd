"""Columns of the estimated time of a program, by `xlarank.features.layout.time_model`."""

from __future__ import annotations

from math import log2
from typing import Final

import numpy as np

from xlarank.features.block import Block, Cause, Scope
from xlarank.features.layout.aggregation import Aggregation, Batch, Finalize, LayoutBlock
from xlarank.features.layout.layout_context import LayoutContext
from xlarank.features.layout.time_model import KINDS, PEAK_FLOPS
from xlarank.features.program.tensors import Floats

#: Their sum is log2 of the estimated time; two float32 columns keep more digits.
FASTEST: Final = "work__fastest_time__log"
OVER_FASTEST: Final = "time__over_fastest__log"
#: Columns that increase with the estimated time.
TIMES: Final = (
    *(OVER_FASTEST, "time__over_default__log", "time__node_change__ratio"),
    *(f"time__{kind}_change__ratio" for kind in KINDS),
)
#: Minimum time in nanoseconds, which keeps logarithms finite.
_SHORTEST: Final = 1e-3


class FastestTime(Block):
    """The least time of a program over all layouts, by `TimeModel`."""

    scope = Scope.GRAPH
    columns = {FASTEST: "least estimated nanoseconds of all configurable nodes, log2"}

    def compute(self, context: LayoutContext) -> Floats:
        return np.array([log2(max(float(context.times.fastest_ns.sum()), _SHORTEST))])


class EstimatedTime(LayoutBlock):
    """Time of the configurable nodes by `TimeModel`, relative to other times, and its parts; log is log2.

    No parameter is learned. The time itself is `FastestTime` times ``over_fastest``.
    """

    cause = Cause.ESTIMATE
    columns = {
        OVER_FASTEST: "estimated time over the least that layouts allow, log2",
        "time__over_default__log": "estimated time over that of the compiler's default, log2",
        **{
            f"time__{kind}_change__ratio": f"change of the time of {nodes} over the default's time of all nodes"
            for kind, nodes in KINDS.items()
        },
        "time__node_change__ratio": "largest change of a node's time over the default's time of all nodes",
        "time__idle__share": "share of the estimated time beyond the unpadded work at the peak rate",
        "time__slower_nodes__log": "nodes slower than need be by 0.1 % of the fastest program, log2(1 + x)",
    }

    def prepare(self, context: LayoutContext, aggregation: Aggregation) -> Finalize:
        model, node = context.times, context.type_configurable
        default, fastest = (max(float(ns.sum()), _SHORTEST) for ns in (model.default_ns, model.fastest_ns))
        change = (model.type_ns - model.default_ns[node]) / default
        slower = model.type_ns - model.fastest_ns[node] > 1e-3 * fastest
        by_kind = [change * (model.kind[node] == kind) for kind in range(len(KINDS))]
        summed, largest = aggregation.sum([model.type_ns, *by_kind, slower]), aggregation.maximum([change])
        unpadded = float((1e9 * model.work / PEAK_FLOPS).sum())

        def finalize(batch: Batch) -> Floats:
            total, *changes, slower = batch[summed].T
            padding, total = total - unpadded, np.maximum(total, _SHORTEST)
            idle = np.maximum(padding / total, 0.0).round(12)
            # rounded, so that the order of summation does not break ties
            logs = (np.log2(total / reference).round(12) + 0.0 for reference in (fastest, default))
            return np.stack([*logs, *changes, batch[largest][:, 0], idle, np.log2(1 + slower)], axis=1)

        return finalize
