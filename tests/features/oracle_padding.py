"""Padding columns, tensor by tensor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import log2

from tests.features.oracle_configs import KINDS, SLOTS, Configuration, Configured
from tests.features.oracle_tensor import Choice, Tensor

Waste = Callable[[Tensor, Sequence[int]], float]


def padding_columns(graph: Configured, config: Configuration) -> dict[str, float]:
    values: dict[str, float] = {}
    tiles: dict[str, Waste] = {"padding": Tensor.waste, "packed": Tensor.packed}
    for block, waste in tiles.items():
        for slot, name in enumerate(SLOTS):
            whole = _sums(config.present(slot), waste, graph.count, graph.slot_bytes(slot))
            values |= {f"{block}__{name}_{what}": value for what, value in whole.items() if what != "waste__log"}
            for kind in KINDS:
                places = graph.of_kind(kind)
                count, total = max(1, len(places)), graph.slot_bytes(slot, places)
                part = _sums(config.present(slot, places), waste, count, total)
                values |= {f"{block}__{kind}_{name}_{what}": value for what, value in part.items()}
    return values


def _sums(present: Sequence[Choice], waste: Waste, count: int, total: float) -> dict[str, float]:
    now = [waste(choice.tensor, choice.layout) for choice in present]
    usual = [waste(choice.tensor, choice.tensor.default) for choice in present]
    extra = [mine - default for mine, default in zip(now, usual, strict=True)]
    size = [choice.tensor.bytes for choice in present]
    return {
        "waste__log": log2(1 + sum(now)),
        "waste__mean": sum(now) / count,
        "waste__max": max(now, default=0.0),
        "waste_bytes__ratio": sum(w * b for w, b in zip(now, size, strict=True)) / total,
        "waste_change__mean": sum(extra) / count,
        "waste_change_bytes__ratio": sum(w * b for w, b in zip(extra, size, strict=True)) / total,
    }
