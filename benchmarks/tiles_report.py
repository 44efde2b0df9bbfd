"""How true the predicted times of tiles are: tables, a learning curve and a picture.

    python -m benchmarks.tiles_report [--measured ROOT] [--picture FILE] [--curve] [--threads N]

The ranker that comes with xlarank on the valid split of ``tile:tpu-estimate``; with ``--measured`` on the kernels
of ``tile:xla`` below ROOT, of which it knows nothing, kernel by kernel, and learned from the other measured
kernels, too (each held out once). Who looks at measured kernels chooses nothing by them, and counts.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from scipy.stats import kendalltau

from benchmarks.peers import load
from benchmarks.pretrain_tiles import ROUNDS, estimated, fitted, scores_of, show
from xlarank.data.collection import graph_files
from xlarank.data.root import SAMPLE, find_data_root
from xlarank.features.rows import GraphRows
from xlarank.features.targets import TPU
from xlarank.models.fit_settings import FitSettings
from xlarank.models.pretrained import pretrained_model
from xlarank.models.rankers.tile_cost import TileCost
from xlarank.models.training_data import TrainingData
from xlarank.models.validation.metrics import graph_metrics

_SIZES = (25, 50, 100, 200)


def measured(root: Path) -> list[GraphRows]:
    """Rows of the rankable measured kernels."""
    files = graph_files(find_data_root(root).npz, ["tile:xla"], where=str(root))
    kernels = load([file.path for file in files if file.split == "train"], "tile").wide
    return [kernel for kernel in kernels if kernel.labelled and kernel.rankable]


def with_measured(kernels: list[GraphRows], real: list[GraphRows], held: int, threads: int) -> np.ndarray:
    """Scores of a measured kernel, learned from estimates and the other measured ones."""
    data = TrainingData.from_graphs(kernels, TPU)
    others = TrainingData.from_graphs([one for number, one in enumerate(real) if number != held], TPU)
    return scores_of([TileCost(kind="tile").fit(others.join(data), FitSettings(ROUNDS, 0, threads))], real[held])


def curve(kernels: list[GraphRows], valid: list[GraphRows], threads: int) -> None:
    """Print what so many train kernels teach about the valid ones; kernels of a program come and go together."""
    programs = sorted({kernel.name.rpartition("_")[0] for kernel in kernels})
    for size in (*(one for one in _SIZES if one < len(kernels)), len(kernels)):
        found = []
        for seed in range(3):
            order = np.random.default_rng(seed).permutation(programs).tolist()
            ranked = sorted(kernels, key=lambda kernel: order.index(kernel.name.rpartition("_")[0]))
            scores = [scores_of([fitted(ranked[:size], ROUNDS, seed, threads)], kernel) for kernel in valid]
            times, true = np.exp2(np.concatenate(scores)), np.concatenate([kernel.runtime for kernel in valid])
            taus = [graph_metrics("tile", s, k.cost, k.group)["tau"] for s, k in zip(scores, valid, strict=True)]
            found.append([np.mean(taus), np.median(np.abs(times / true - 1)), kendalltau(times, true)[0]])
        tau, error, across = np.mean(found, axis=0)
        print(f"{size} kernels: tau within {tau:.3f}, relative error {error:.3f}, tau across {across:.3f}")


def draw(path: Path, panels: dict[str, tuple[list[GraphRows], list[np.ndarray]]]) -> None:
    """Predicted times of the time model and of the ranker over those of the labels."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(panels), figsize=(5 * len(panels), 4.6), squeeze=False)
    for axis, (title, (kernels, scores)) in zip(axes[0], panels.items(), strict=True):
        true = np.concatenate([kernel.runtime for kernel in kernels]) / 1e3
        model = np.concatenate([time_model(kernel) for kernel in kernels]) / 1e3
        axis.plot(true, model, ".", ms=3, alpha=0.5, label="time model")
        axis.plot(true, np.exp2(np.concatenate(scores)) / 1e3, ".", ms=3, alpha=0.5, label="tile-cost")
        axis.plot([true.min(), true.max()], [true.min(), true.max()], "k-", lw=0.8)
        axis.set(xscale="log", yscale="log", xlabel=f"{title}, µs", ylabel="predicted, µs")
        axis.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def time_model(kernel: GraphRows) -> np.ndarray:
    """``(configs,)`` nanoseconds of the time model alone, at the clock of TPU v3."""
    column = kernel.matrix(used=np.array([kernel.columns.index(TPU.estimate)]))[:, 0]
    return np.asarray(np.exp2(column.astype(np.float64))[kernel.group] / 0.94)


def main() -> None:
    """Print, and draw where asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--measured", type=Path)
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--curve", action="store_true")
    parser.add_argument("--threads", type=int, default=0)
    asked = parser.parse_args()
    rankers = [one for one in pretrained_model("tile").rankers if isinstance(one, TileCost)]
    train, valid = (
        [kernel for kernel in estimated(SAMPLE, split) if kernel.rankable] for split in ("train", "valid")
    )
    scores = [scores_of(rankers, kernel) for kernel in valid]
    show("valid, estimated", valid, scores)
    panels = {"estimated by the compiler (valid)": (valid, scores)}
    if asked.curve:
        curve(train, valid, asked.threads)
    if asked.measured:
        real = measured(asked.measured)
        scores = [scores_of(rankers, kernel) for kernel in real]
        show("measured, zero-shot", real, scores)
        beside = [with_measured(train, real, number, asked.threads) for number in range(len(real))]
        show("measured, with the other measured kernels", real, beside)
        for kernel, found in zip(real, scores, strict=True):
            values = graph_metrics("tile", found, kernel.cost, kernel.group)
            shown = ", ".join(f"{one} {values[one]:.3f}" for one in ("score", "tau", "slowdown@1"))
            print(f"  {kernel.name} ({' or '.join(kernel.kinds)}, {len(kernel)} configurations): {shown}")
        panels["measured on TPU v3"] = (real, scores)
    if asked.picture:
        draw(asked.picture, panels)


if __name__ == "__main__":
    main()
