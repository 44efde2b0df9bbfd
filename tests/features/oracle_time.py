"""The time model of layouts node by node, from its formula: operations x padding / peak rate."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from math import ceil, log2, prod

from tests.features.oracle_configs import Configuration, Configured
from tests.features.oracle_program import Tensor

NS_PER_OPERATION = 1e9 / 61.5e12


def padding(tensor: Tensor, layout: Sequence[int]) -> float:
    """Padded over true size: 128 lanes, 8 sublanes of as many elements as fit into 4 bytes."""
    sizes = [max(1, tensor.dims[dimension]) for dimension in layout]
    while len(sizes) > 1 and sizes[0] == 1:
        sizes.pop(0)
    rows = 8 * max(1, 4 // max(1, tensor.element_bytes))
    tiles = zip(sizes, (128, rows), strict=False)
    return prod(ceil(size / tile) * tile / size for size, tile in tiles)


def kind_and_work(graph: Configured, place: int) -> tuple[str, float]:
    node = graph.configurable[place]
    opcode, tensor = graph.opcodes[node], graph.tensors[node]
    if opcode == "dot":
        return "dot", graph.flops(node)
    if opcode != "convolution":
        return "other", float(tensor.elements)
    batch, feature = (graph.entry(node, f"convolution_dim_numbers_output_{x}_dim") for x in ("batch", "feature"))
    sizes = [*tensor.dims, 0, 0, 0, 0, 0, 0]
    positions = tensor.elements / max(1, sizes[batch]) / max(1, sizes[feature])
    window = prod(graph.entry(node, f"window_size_{axis}") for axis in range(tensor.rank - 2))
    steps = [
        graph.entry(node, f"window_{what}_{axis}") for what in ("stride", "window_dilation") for axis in range(6)
    ]
    return "kernel_gradient" if window > positions else "convolution", graph.flops(node) * max(1, *steps)


def time_columns(graph: Configured, config: Configuration) -> dict[str, float]:
    total = default = fastest = true = 0.0
    changes = dict.fromkeys(("convolution", "kernel_gradient", "dot", "other"), 0.0)
    largest, lost = 0.0, []
    for place in graph.places:
        choice = config.choices[place][0]
        assert choice is not None
        kind, work = kind_and_work(graph, place)
        tensor = choice.tensor
        best = min(
            [padding(tensor, tensor.default)]
            + [padding(tensor, order) for order in permutations(range(tensor.rank)) if tensor.rank > 1]
        )
        now, before, least, bare = (
            work * ratio * NS_PER_OPERATION
            for ratio in (padding(tensor, choice.layout), padding(tensor, tensor.default), best, 1.0)
        )
        changes[kind] += now - before
        largest = max(largest, now - before)
        lost.append(now - least)
        total, default, fastest, true = total + now, default + before, fastest + least, true + bare
    total, default, fastest = (max(1e-3, value) for value in (total, default, fastest))
    return {
        "time__over_fastest__log": log2(total / fastest),
        "time__over_default__log": log2(total / default),
        **{f"time__{kind}_change__ratio": value / default for kind, value in changes.items()},
        "time__node_change__ratio": largest / default,
        "time__idle_lanes__share": max(0.0, 1 - true / total),
        "time__slower_nodes__log": log2(1 + sum(value > 1e-3 * fastest for value in lost)),
    }


def fastest_time(graph: Configured) -> float:
    total = 0.0
    for place in graph.places:
        tensor = graph.tensors[graph.configurable[place]]
        orders = [tensor.default, *(permutations(range(tensor.rank)) if tensor.rank > 1 else ())]
        total += kind_and_work(graph, place)[1] * min(padding(tensor, order) for order in orders) * NS_PER_OPERATION
    return log2(max(1e-3, total))
