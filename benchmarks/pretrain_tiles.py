"""Make the ranker of tiles that comes with xlarank: learned from tiles that the TPU's compiler estimated.

    python -m benchmarks.pretrain_tiles [--data-root D] [--out models/shipped/tile] [--seeds N] [--rounds N]

Learns absolute times (`tile-cost`) from the train kernels of ``tile:tpu-estimate``; its card holds metrics out of
fold by family. Prints tau, slowdowns and the relative error of the predicted times, out of fold and on the valid
split, beside the rules that need no model.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from scipy.stats import kendalltau

from benchmarks.adopt import MEASURED
from benchmarks.graph_rows import labelled_rows
from xlarank.data.collection import Collection, graph_files
from xlarank.data.root import SAMPLE, find_data_root
from xlarank.features.recipe import FeatureSettings, Recipe
from xlarank.features.rows import GraphRows
from xlarank.features.targets import TPU
from xlarank.models.fit_settings import FitSettings
from xlarank.models.pretrained import FOLDERS
from xlarank.models.rankers.tile_cost import TileCost
from xlarank.models.trained import ModelCard, save_model
from xlarank.models.training_data import TrainingData
from xlarank.models.validation.evaluation import baselines
from xlarank.models.validation.folds import family_folds
from xlarank.models.validation.metrics import graph_metrics

COLLECTION = Collection.parse("tile:tpu-estimate")
ROUNDS = 200
_FOLDS = 8
_SHOWN = ("score", "tau", "slowdown@1")


def estimated(data_root: Path, split: str) -> list[GraphRows]:
    """Rows of the estimated kernels of a split, without families whose measured kernels judge."""
    root = find_data_root(data_root)
    files = graph_files(root.npz, [str(COLLECTION)], where=str(root.path))
    chosen = [file.path for file in files if file.split == split and file.family not in MEASURED]
    return labelled_rows(chosen, "tile")


def fitted(kernels: list[GraphRows], rounds: int, seed: int, threads: int) -> TileCost:
    """What is shipped, learned from some kernels."""
    data = TrainingData.from_graphs(kernels, TPU)
    return TileCost(kind="tile").fit(data, FitSettings(rounds, seed, threads))


def scores_of(rankers: list[TileCost], kernel: GraphRows) -> np.ndarray:
    """``(configs,)`` mean scores: log2 of nanoseconds."""
    found = np.mean([ranker.predict(kernel.matrix(), kernel.columns) for ranker in rankers], axis=0)
    return np.asarray(found[kernel.group])


def show(title: str, kernels: list[GraphRows], scores: list[np.ndarray]) -> None:
    """Print metrics of the ranker and of rules, means over kernels, and how true its times are."""
    rows = {"tile-cost": [graph_metrics("tile", s, k.cost, k.group) for k, s in zip(kernels, scores, strict=True)]}
    for kernel in kernels:
        for name, values in baselines(COLLECTION, kernel).items():
            rows.setdefault(name, []).append(values)
    print(f"{title}: {len(kernels)} kernels")
    for name, values in rows.items():
        print(f"  {name}: " + ", ".join(f"{one} {np.mean([v[one] for v in values]):.3f}" for one in _SHOWN))
    predicted, actual = np.exp2(np.concatenate(scores)), np.concatenate([kernel.runtime for kernel in kernels])
    error = np.abs(predicted / actual - 1)
    print(
        f"  relative error: median {np.median(error):.3f}, 90 % below {np.quantile(error, 0.9):.2f}; "
        f"tau across kernels {kendalltau(predicted, actual)[0]:.3f}"
    )


def main() -> None:
    """Make it and say what it is."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data-root", type=Path, default=SAMPLE)
    parser.add_argument("--out", type=Path, default=FOLDERS["tile"])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--threads", type=int, default=0)
    asked = parser.parse_args()
    kernels = [kernel for kernel in estimated(asked.data_root, "train") if kernel.rankable]
    data = TrainingData.from_graphs(kernels, TPU)
    scores: dict[int, np.ndarray] = {}
    for held in family_folds(data.families, _FOLDS):
        others = [kernel for number, kernel in enumerate(kernels) if number not in set(held)]
        ranker = fitted(others, asked.rounds, 0, asked.threads)
        scores |= {number: scores_of([ranker], kernels[number]) for number in held}
    folds = {k.name: graph_metrics("tile", scores[number], k.cost, k.group) for number, k in enumerate(kernels)}
    show("out of fold by family", kernels, [scores[number] for number in range(len(kernels))])
    rankers = [fitted(kernels, asked.rounds, seed, asked.threads) for seed in range(asked.seeds)]
    valid = [kernel for kernel in estimated(asked.data_root, "valid") if kernel.rankable]
    show("valid", valid, [scores_of(rankers, kernel) for kernel in valid])
    card = ModelCard(
        collection=str(COLLECTION),
        model=TileCost.name,
        params=rankers[0].params.values(),
        rounds=asked.rounds,
        tuned=False,
        recipe=Recipe.of(FeatureSettings(), "tile"),
        columns=data.columns,
        trained_on={"train": sorted(kernel.name for kernel in kernels)},
        folds=folds,
        target=TPU.name,
    )
    save_model(asked.out, card, rankers)
    size = sum(path.stat().st_size for path in asked.out.rglob("*") if path.is_file())
    print(f"wrote {asked.out}: {len(kernels)} kernels, {asked.seeds} seeds, {size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
