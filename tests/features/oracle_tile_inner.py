"""The innermost loop of a tile and the estimate of its time the slow way: one configuration at a time.

Written from the docstrings of `xlarank.features.tile.inner_loop`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, log2, prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.features.oracle_tile import TileOracle

INNER = (
    *(f"inner__{name}__log" for name in ("odd", "chains", "loads", "lines", "spill", "cycles")),
    *(f"estimate__{name}__log" for name in ("run", "memory", "longer", "sum")),
    "inner__divides__flag",
    "inner__lanes__share",
)


def inner_columns(oracle: TileOracle, row: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Of one configuration."""
    if not oracle.vectorised:
        return dict.fromkeys(INNER, 0.0)
    output, given, size = (
        oracle.tile(row, "output"),
        oracle.tile(row, "input"),
        max(1, oracle.tensors[oracle.walked].element_bytes),
    )
    vector = [min(pair) for pair in zip(given, output, strict=True)]
    last = max(1, oracle.output_rank) - 1
    n, m = vector[last], prod(vector[:last])
    lanes = max(1.0, 32 / size)
    per_row = ceil(n / lanes)
    sums, depth = m * per_row, oracle.depth or 1.0
    kind = oracle.classes[oracle.main]
    window = prod(entry for entry in oracle.entries(oracle.main, "window_size_0", 6) if entry > 0)
    shared = kind == "dot" or (kind == "convolution" and depth > window)
    if shared:
        chains, loads = sums, m + per_row
    else:
        chains = sums * (prod(oracle.tile(row, "kernel")) if oracle.contracted else 1)
        loads = sums + (per_row if kind == "convolution" else 0)
    lines = ceil(n * size / 64)
    fetch = _fetch(oracle, depth, size) if shared else 0
    spilled = max(0, sums + per_row + 1 - 16)
    divides = all(out % part == 0 for out, part in zip(output, vector, strict=True))
    slowest = max(sums / 2, 4 * sums / chains, loads / 2, lines * fetch)
    cycles = (slowest + 1.5 * spilled) * lanes / (m * n) if divides else 4 * lanes
    odd = int(n)
    while odd % 2 == 0:
        odd //= 2
    run = _run(oracle, output)
    moved = oracle.tensors[oracle.main].bytes + sum(oracle.tensors[node].bytes for node in oracle.main_operands)
    speed = 32 if moved < 2**20 else 12 if moved < 2**24 else 4
    memory = moved / max(1, oracle.tensors[oracle.main].elements) / speed * (1 + 256 / (run * size))
    computing = cycles / lanes * depth
    return {
        "inner__divides__flag": float(divides),
        "inner__lanes__share": n / (lanes * per_row),
        "inner__odd__log": log2(odd),
        "inner__chains__log": log2(max(1, 8 / chains)),
        "inner__loads__log": log2(loads / (m * n)),
        "inner__lines__log": log2(lines / (m * n if shared else n)),
        "inner__spill__log": log2(1 + spilled),
        "inner__cycles__log": log2(cycles),
        "estimate__run__log": log2(run),
        "estimate__memory__log": log2(max(1e-6, memory)),
        "estimate__longer__log": log2(max(1e-6, computing, memory)),
        "estimate__sum__log": log2(max(1e-6, computing + memory)),
    }


def _fetch(oracle: TileOracle, depth: float, size: float) -> float:
    """Cycles a line: where the rows of a panel, one below the other, find a place."""
    apart = max(1, round(oracle.extents["output"][max(1, oracle.output_rank) - 1] * size / 64))
    for sets, cycles in ((64, 0.5), (1024, 2.0)):
        reached = {number * apart % sets for number in range(sets)}
        if depth <= 8 * len(reached):
            return cycles
    return 12.0


def _run(oracle: TileOracle, output: Sequence[float]) -> float:
    run = 1.0
    for i in reversed(range(oracle.output_rank)):
        run *= output[i]
        if output[i] < oracle.extents["output"][i]:
            break
    return run
