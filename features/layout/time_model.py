"""A physical model of a program's time on a TPU: the work of its matrix unit, from the layouts of outputs.

The matrix unit computes whole tiles of the output. An output of 64 features along 128 lanes takes as long as one of
128, so the time of a convolution or dot is its floating-point operations times the padded over the true size of its
output. Measured layouts of TPU v3 follow this model with nothing fitted (docs/explanation/layouts.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import permutations
from math import log2
from typing import Final

import numpy as np

from xlarank.data.schema import MAX_RANK, OPCODE
from xlarank.features.block import Block, Scope
from xlarank.features.layout.aggregation import Aggregation, Batch, Finalize, LayoutBlock
from xlarank.features.layout.layout_context import LayoutContext
from xlarank.features.layout.row_types import LayoutFacts
from xlarank.features.program.slots import node_flops
from xlarank.features.program.tensors import TPU, Floats, Ints, Tiling, complete_layout


@dataclass(frozen=True)
class Core:
    """One core of a TPU.

    Attributes:
        flops: peak rate of the matrix unit in floating-point operations a second, bfloat16, as XLA multiplies
            float32 by default.
        tiling: lanes and sublanes.
    """

    flops: float
    tiling: Tiling = TPU


#: 123 TFLOP/s a chip of two cores (Google Cloud, *TPU v3*, system architecture).
TPU_V3: Final = Core(flops=123e12 / 2)

#: The logarithm of the estimated time is the sum of both: apart they keep more digits as float32.
FASTEST: Final = "work__fastest_time__log"
OVER_FASTEST: Final = "time__over_fastest__log"
#: Kinds of configurable nodes, and what their nodes are.
KINDS: Final = {
    "convolution": "convolutions other than kernel gradients",
    "kernel_gradient": "gradients of kernels",
    "dot": "dots",
    "other": "other nodes",
}
#: Columns that grow with the time.
TIMES: Final = (
    *(OVER_FASTEST, "time__over_default__log", "time__node_change__ratio"),
    *(f"time__{kind}_change__ratio" for kind in KINDS),
)
_GRADIENT, _DOT, _OTHER = range(1, len(KINDS))
#: Nanoseconds of a program without any work.
_SHORTEST: Final = 1e-3
#: A node is counted as slower than it might be from this share of the fastest program on.
_MATTERS: Final = 1e-3


def output_padding(dims: Ints, layout: Ints, element_bytes: Floats, tiling: Tiling = TPU) -> Floats:
    """Return the padded over the true size of tensors as the matrix unit sees them, ``(tensors,)``.

    The minor-most dimension is rounded up to the lanes and the next to the sublanes, times as many elements as a
    word holds. A minor-most dimension of size 1 is skipped: the next one lies along the lanes.

    >>> dims = np.array([[3, 3, 1, 32, 0, 0]] * 2)
    >>> layout = np.array([[3, 2, 1, 0, -1, -1], [2, 3, 1, 0, -1, -1]])
    >>> output_padding(dims, layout, np.array([4.0, 4.0])).round(2).tolist()  # 128/32 * 8/1 and 128/32 * 8/3
    [32.0, 10.67]
    """
    tensors = np.arange(len(dims))
    sizes = np.where(layout >= 0, np.take_along_axis(dims, np.maximum(layout, 0), axis=1), 1)
    sizes = np.concatenate([np.maximum(sizes, 1), np.ones((len(dims), 1), np.int64)], axis=1)
    first = (sizes != 1).argmax(axis=1)  # 0 if all are 1
    packing = np.maximum(1.0, tiling.word_bytes / np.maximum(element_bytes, 1.0))
    has_second = first + 1 < (layout >= 0).sum(axis=1)
    lanes = _rounded(sizes[tensors, first], float(tiling.lanes))
    sublanes = _rounded(sizes[tensors, first + 1], tiling.sublanes * packing)
    return np.where(layout[:, 0] < 0, 1.0, lanes * np.where(has_second, sublanes, 1.0))


def _rounded(size: Ints, multiple: Floats | float) -> Floats:
    return np.asarray(np.ceil(size / multiple) * multiple / size)


class TimeModel:
    """Times of the configurable nodes of a program on one core of a TPU, in nanoseconds.

    The time of a convolution or dot is its floating-point operations times the padding of its output, at the peak
    rate; operands count as they are, since measured runtimes do not depend on their layouts. The work of a
    convolution is multiplied by its largest stride or window dilation, as positions between are passed over. Any
    other node does one operation for each padded element of its output, to order what is equal to the matrix unit.
    """

    def __init__(self, facts: LayoutFacts, core: Core = TPU_V3) -> None:
        self._facts, self._core = facts, core

    @cached_property
    def kind(self) -> Ints:
        """``(configurable nodes,)`` index into `KINDS`.

        The gradient of a kernel is a convolution whose window is larger than its output: it slides one activation
        over another.
        """
        facts, nodes = self._facts, self._facts.graph.configurable
        opcode = facts.graph.opcode[nodes]
        spatial = np.arange(MAX_RANK) < (facts.rank[nodes] - 2)[:, None]
        window = np.where(spatial, facts.column("window_size_0", MAX_RANK)[nodes], 1.0).prod(axis=1)
        positions = facts.volume[nodes]
        for name in ("batch", "feature"):
            dim = facts.column(f"convolution_dim_numbers_output_{name}_dim")[nodes].astype(np.int64)
            positions = positions / np.maximum(facts.dims[nodes, dim], 1)
        convolution = opcode == OPCODE["convolution"]
        conditions = convolution & (window > positions), convolution, opcode == OPCODE["dot"]
        return np.select(conditions, [_GRADIENT, 0, _DOT], _OTHER)

    @cached_property
    def work(self) -> Floats:
        """``(configurable nodes,)`` operations without padding."""
        facts, nodes = self._facts, self._facts.graph.configurable
        step = np.ones(len(nodes))
        for name in ("window_stride_0", "window_window_dilation_0"):
            step = np.maximum(step, facts.column(name, MAX_RANK)[nodes].max(axis=1))
        convolution = self.kind <= _GRADIENT
        work = np.where(self.kind == _OTHER, facts.volume[nodes], node_flops(facts)[nodes])
        return work * np.where(convolution, step, 1.0)

    def nanoseconds(self, node: Ints, padding: Floats) -> Floats:
        """Return the times of configurable nodes, ``(n,)``, whose outputs are padded by ``(n,)``."""
        return np.asarray(1e9 * self.work[node] * padding / self._core.flops)

    def _padding(self, node: Ints, layout: Ints) -> Floats:
        """``(n,)`` padding of the outputs of configurable nodes under full layouts ``(n, 6)``."""
        facts, tensor = self._facts, self._facts.graph.configurable[node]
        return output_padding(facts.dims[tensor], layout, facts.element_bytes[tensor], self._core.tiling)

    @cached_property
    def row_padding(self) -> Floats:
        """``(R,)`` padding of the output under every distinct row of the table."""
        facts, node = self._facts, self._facts.table.node.astype(np.int64)
        given = facts.table.rows[:, :MAX_RANK].astype(np.int64)
        return self._padding(node, complete_layout(given, facts.default_layout[facts.graph.configurable[node]]))

    @cached_property
    def row_ns(self) -> Floats:
        """``(R,)`` time of the node of every distinct row of the table under that row."""
        return self.nanoseconds(self._facts.table.node.astype(np.int64), self.row_padding)

    @cached_property
    def default_ns(self) -> Floats:
        """``(configurable nodes,)`` times under the compiler's default layouts."""
        node, facts = np.arange(len(self.kind)), self._facts
        return self.nanoseconds(node, self._padding(node, facts.default_layout[facts.graph.configurable]))

    @cached_property
    def fastest_ns(self) -> Floats:
        """``(configurable nodes,)`` least times under any layouts, whether a candidate has them or not.

        Padding depends on two dimensions alone, the minor-most one that is not of size 1 and the next. A tensor
        with a single dimension that is not of size 1 can lie along the lanes alone.
        """
        facts, nodes = self._facts, self._facts.graph.configurable
        rank, sizes = facts.rank[nodes], np.maximum(facts.dims[nodes], 1)
        least, layout = self.default_ns.copy(), np.full((len(nodes), MAX_RANK), -1)
        line = (sizes != 1).sum(axis=1) <= 1
        for pair in permutations(range(MAX_RANK), 2):
            layout[:, :2] = pair
            layout[line, 1] = -1
            node = np.flatnonzero((rank > max(pair)) & (line | (sizes[:, pair[0]] != 1)))
            least[node] = np.minimum(least[node], self.nanoseconds(node, self._padding(node, layout[node])))
        return least


class FastestTime(Block):
    """The least time of a program by `TimeModel`, whatever its layouts."""

    scope = Scope.GRAPH
    columns = {FASTEST: "least estimated nanoseconds of all configurable nodes, log2"}

    def compute(self, context: LayoutContext) -> Floats:
        return np.array([log2(_total(TimeModel(context).fastest_ns))])


class EstimatedTime(LayoutBlock):
    """The time of the configurable nodes by `TimeModel` beside other times, and what it is made of; log is log2.

    Nothing in it is learned. The time itself is `FastestTime` times ``over_fastest``.
    """

    columns = {
        OVER_FASTEST: "estimated time over the least under any layouts, log2",
        "time__over_default__log": "estimated time over that of the compiler's default, log2",
        **{
            f"time__{kind}_change__ratio": f"change of the time of {words} over the default's time of all nodes"
            for kind, words in KINDS.items()
        },
        "time__node_change__ratio": "largest change of a node's time over the default's time of all nodes",
        "time__idle_lanes__share": "share of the estimated time that pads outputs, all nodes together",
        "time__slower_nodes__log": "nodes slower than need be by 0.1 % of the fastest program, log2(1 + x)",
    }

    def prepare(self, context: LayoutContext, aggregation: Aggregation) -> Finalize:
        model, node = TimeModel(context), context.table.node
        default, fastest = _total(model.default_ns), _total(model.fastest_ns)
        change = (model.row_ns - model.default_ns[node]) / default
        slower = model.row_ns - model.fastest_ns[node] > _MATTERS * fastest
        by_kind = [change * (model.kind[node] == kind) for kind in range(len(KINDS))]
        summed = aggregation.sum([model.row_ns, *by_kind, model.row_ns / model.row_padding, slower], each_node=True)
        largest = aggregation.maximum([change], each_node=True)

        def finalize(batch: Batch) -> Floats:
            total, *changes, true, slower = batch[summed].T
            padding = total - true
            total = np.maximum(total, _SHORTEST)
            idle = np.maximum(padding / total, 0.0).round(12)
            # sums in another order are still ties
            logs = (np.log2(total / other).round(12) + 0.0 for other in (fastest, default))
            return np.stack([*logs, *changes, batch[largest][:, 0], idle, np.log2(1 + slower)], axis=1)

        return finalize


def _total(times: Floats) -> float:
    return max(float(times.sum()), _SHORTEST)
