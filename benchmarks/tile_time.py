"""Fit the constants of the time model of TPU tiles to estimated cycles.

    python -m benchmarks.tile_time ROOT [ROOT...]

``ROOT`` is an output folder of ``benchmarks.tiles``. Positive constants are fitted for each kind of
kernel to the logarithm of the cycles of the train split, with equal weight per kernel and a robust
loss. They are printed for `xlarank.features.tile.tpu_time`, with the median relative error and the
rank correlation across kernels.
"""

from __future__ import annotations

import argparse
from copy import copy
from dataclasses import astuple, fields, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares
from scipy.stats import kendalltau

from benchmarks.pretrain import time_errors
from xlarank.data.graph import TileGraph, read_graph
from xlarank.features.tile.tile_context import TileContext
from xlarank.features.tile.tpu_time import COSTS, Costs, WindowLoop

Floats = NDArray[np.float64]
#: Clock of a TPU v3.
_MEGAHERTZ = 940.0
#: Scale of each constant of `Costs`; less than a hundredth of it counts as zero.
_SCALES = (100, 10, 10, 10, 1, 1, 1e-3, 1, 0.1, 1, 1, 1, 1)


def read(roots: list[Path], split: str) -> list[tuple[WindowLoop, Floats]]:
    """Return loop and cycles of every kernel of a split."""
    kernels = []
    for path in sorted(
        path for root in roots for path in root.glob(f"npz/tile/tpu-estimate/{split}/*.npz")
    ):
        graph = read_graph(path, "tile")
        assert isinstance(graph, TileGraph)
        cycles = graph.runtime[graph.first] * _MEGAHERTZ / 1000
        kernels.append((WindowLoop(TileContext(graph)), cycles))
    return kernels


def joined(kernels: list[tuple[WindowLoop, Floats]]) -> tuple[WindowLoop, Floats, Floats]:
    """Return one loop of all configurations, their cycles, and weights equal per kernel."""
    loop = copy(kernels[0][0])
    for name in vars(loop).keys() - {"kind"}:
        setattr(loop, name, np.concatenate([getattr(kernel, name) for kernel, _ in kernels]))
    weight = np.concatenate([np.full(len(cycles), len(cycles) ** -0.5) for _, cycles in kernels])
    return loop, np.concatenate([cycles for _, cycles in kernels]), weight


def fit(kernels: list[tuple[WindowLoop, Floats]], start: Costs) -> Costs:
    """Return the best fit of several starts; negligible constants are 0."""
    loop, cycles, weight = joined(kernels)

    def residual(logs: Floats) -> Floats:
        difference: Floats = np.log(Costs(*np.exp(logs)).cycles(loop) / cycles)
        return weight * difference

    computing = replace(start, fixed=1000.0, computed=2.0, copied=15.0, drain=0.5)
    fitted = []
    for costs in (start, computing, replace(computing, copied=2.0, byte=start.byte / 1.2)):
        begin = np.log(np.maximum(astuple(costs), 1e-4))
        bounds = (begin - 9, begin + 5)
        scale = 0.2 * weight.mean()
        fitted.append(
            least_squares(
                residual, begin, bounds=bounds, loss="soft_l1", f_scale=scale, max_nfev=99
            )
        )
    values = np.exp(min(fitted, key=lambda fit: float(fit.cost)).x)
    constants = {}
    for field, value, scale in zip(fields(Costs), values, _SCALES, strict=True):
        quantity = {"row": "rows", "kernel_run": "kernel_runs"}.get(field.name, field.name)
        present = np.any(getattr(loop, quantity, 1))
        constants[field.name] = float(f"{value:.3g}") if present and value > 1e-2 * scale else 0.0
    return Costs(**constants)


def accuracy(kernels: list[tuple[WindowLoop, Floats]], costs: dict[str, Costs]) -> str:
    """Return the median relative error, tau across all tiles, and mean tau within kernels."""
    actual = [cycles for _, cycles in kernels]
    estimates = [costs[loop.kind].cycles(loop) for loop, _ in kernels]
    within = [kendalltau(*pair).statistic for pair in zip(estimates, actual, strict=True)]
    error, across = time_errors(estimates, actual)
    return (
        f"{len(kernels)} kernels: error {error:.3f}, tau across {across:.3f}, within "
        f"{np.nanmean(within):.3f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("roots", type=Path, nargs="+")
    args = parser.parse_args()
    train = read(args.roots, "train")
    costs = {
        kind: fit([kernel for kernel in train if kernel[0].kind == kind], start)
        for kind, start in COSTS.items()
    }
    for kind, constants in costs.items():
        print(f'    "{kind}": {constants},')
    for name, kernels in {"train": train, "valid": read(args.roots, "valid")}.items():
        print(f"{name}, {accuracy(kernels, costs)}")
        for kind in COSTS:
            of_kind = [kernel for kernel in kernels if kernel[0].kind == kind]
            print(f"  {kind}, {accuracy(of_kind, costs)}")


if __name__ == "__main__":
    main()
