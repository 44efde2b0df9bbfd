"""Fit the constants of the time model of TPU tiles to estimated cycles.

    python -m benchmarks.tile_time ROOT [ROOT...] [--megahertz 940]

``ROOT`` is what ``benchmarks.tiles`` wrote. Constants are positive and fitted to the logarithm of the cycles of
the train split, each kernel weighed alike, with a robust loss, for each kind of kernel apart. They are printed
for `xlarank.features.tile.tpu_time`, with the median relative error and the rank correlation across kernels.
"""

from __future__ import annotations

import argparse
from dataclasses import astuple, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares
from scipy.stats import kendalltau

from benchmarks.pretrain import time_errors
from xlarank.data.graph import TileGraph, read_graph
from xlarank.features.tile.tile_context import TileContext
from xlarank.features.tile.tpu_time import COSTS, Costs
from xlarank.features.tile.window_loop import WindowLoop, window_loop

Floats = NDArray[np.float64]
#: A hundredth of these is nothing, in the order of `Costs`.
_SCALES = (100, 10, 10, 1, 10, 1, 1, 1e-3, 1, 0.1, 1, 1, 1, 1)


def read(roots: list[Path], split: str, megahertz: float) -> list[tuple[WindowLoop, Floats]]:
    """Loops and cycles of every kernel of a split."""
    found = []
    for path in sorted(path for root in roots for path in root.glob(f"npz/tile/tpu-estimate/{split}/*.npz")):
        graph = read_graph(path, "tile")
        assert isinstance(graph, TileGraph)
        cycles = graph.runtime[graph.duplicates.first] * megahertz / 1000
        found.append((window_loop(TileContext(graph)), cycles))
    return found


def joined(kernels: list[tuple[WindowLoop, Floats]]) -> tuple[WindowLoop, Floats, Floats]:
    """One loop of all configurations, their cycles, and weights by which kernels count alike."""
    first = kernels[0][0]
    names = [one.name for one in fields(first) if one.name != "kind"]
    parts: dict[str, Any] = {name: np.concatenate([getattr(loop, name) for loop, _ in kernels]) for name in names}
    weight = np.concatenate([np.full(len(cycles), len(cycles) ** -0.5) for _, cycles in kernels])
    return replace(first, **parts), np.concatenate([cycles for _, cycles in kernels]), weight


def fit(kernels: list[tuple[WindowLoop, Floats]], start: Costs) -> Costs:
    """Constants that suit the kernels best, of several starts; what comes to nothing is 0."""
    loop, cycles, weight = joined(kernels)

    def residual(logs: Floats) -> Floats:
        found: Floats = weight * np.log(Costs(*np.exp(logs)).cycles(loop) / cycles)
        return found

    computing = replace(start, fixed=1000.0, computed=2.0, copied=15.0, drain=0.5)
    fitted = []
    for one in (start, computing, replace(computing, copied=2.0, byte=start.byte / 1.2)):
        begin = np.log(np.maximum(astuple(one), 1e-4))
        bounds, scale = (begin - 9, begin + 5), 0.2 * weight.mean()
        fitted.append(least_squares(residual, begin, bounds=bounds, loss="soft_l1", f_scale=scale, max_nfev=99))
    values = np.exp(min(fitted, key=lambda one: float(one.cost)).x)
    named = zip(fields(Costs), values, _SCALES, strict=True)
    known = {}
    for cost, value, scale in named:
        quantity = {"row": "rows", "kernel_run": "kernel_runs"}.get(cost.name, cost.name)
        met = np.any(getattr(loop, quantity, 1))  # whether any kernel has what the constant is of
        known[cost.name] = float(f"{value:.3g}") if met and value > 1e-2 * scale else 0.0
    return Costs(**known)


def accuracy(kernels: list[tuple[WindowLoop, Floats]], costs: dict[str, Costs]) -> str:
    """Median relative error, tau across all tiles, and mean tau within kernels."""
    found = [costs[loop.kind].cycles(loop) for loop, _ in kernels]
    within = [kendalltau(one, cycles).statistic for one, (_, cycles) in zip(found, kernels, strict=True)]
    error, across = time_errors(found, [cycles for _, cycles in kernels])
    return f"{len(kernels)} kernels: error {error:.3f}, tau across {across:.3f}, within {np.nanmean(within):.3f}"


def main() -> None:
    """Fit and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("roots", type=Path, nargs="+")
    parser.add_argument("--megahertz", type=float, default=940.0)
    asked = parser.parse_args()
    train = read(asked.roots, "train", asked.megahertz)
    costs = {kind: fit([one for one in train if one[0].kind == kind], start) for kind, start in COSTS.items()}
    for kind, found in costs.items():
        print(f'    "{kind}": {found},')
    valid = read(asked.roots, "valid", asked.megahertz)
    for name, kernels in (("train", train), ("valid", valid)):
        print(f"{name}, {accuracy(kernels, costs)}")
        for kind in COSTS:
            print(f"  {kind}, {accuracy([one for one in kernels if one[0].kind == kind], costs)}")


if __name__ == "__main__":
    main()
