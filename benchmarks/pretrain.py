"""Make the shipped ranker of tiles of TPUs.

    python -m benchmarks.pretrain [--data-root D] [--out FOLDER] [--seeds N] [--rounds N]

The ranker of tiles learns absolute times (`time-trees`) from what the TPU's compiler estimated.
AlexNets are left out, since measured ones are held out. Its card holds metrics out of fold by
family, whose means are printed.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import kendalltau

from benchmarks.adopt import MEASURED
from xlarank.data.collection import SAMPLE, Collection, find_data_root, graph_files
from xlarank.data.graph import Kind, read_graph
from xlarank.features.assembly import assemble
from xlarank.features.rows import GraphRows, Recipe
from xlarank.models.card import ModelCard
from xlarank.models.model import Model
from xlarank.models.stored import SHIPPED_MODELS
from xlarank.models.training_data import TPU, FitSettings, TrainingData
from xlarank.models.validation.folds import family_folds
from xlarank.models.validation.metrics import graph_metrics

TILE_ROUNDS = 200
_FOLDS = 8


def labelled_rows(
    files: Iterable[Path], kind: Kind, collection: Collection | None = None
) -> list[GraphRows]:
    """Return all columns of the labelled, rankable graphs, for the hardware of a collection."""
    hardware = None if collection is None else collection.hardware
    graphs = (assemble(read_graph(path, kind), hardware) for path in files)
    return [graph for graph in graphs if graph.labelled and graph.rankable]


def time_errors(
    predictions: Sequence[NDArray[Any]], times: Sequence[NDArray[Any]]
) -> tuple[float, float]:
    """Return the median relative error of predicted times, and tau over all tiles together."""
    predicted = np.concatenate(predictions)
    actual = np.concatenate(times)
    return float(np.median(np.abs(predicted / actual - 1))), float(
        kendalltau(predicted, actual).statistic
    )


def estimated_tiles(data_root: Path | None) -> list[GraphRows]:
    """Return the estimated kernels, except families of `benchmarks.adopt.MEASURED`."""
    root = find_data_root(data_root)
    files = graph_files(root.npz, ["tile:tpu-estimate"], where=str(root.path))
    files = [file for file in files if file.split == "train" and file.family not in MEASURED]
    return labelled_rows([file.path for file in files], "tile")


def fitted(graphs: list[GraphRows], settings: FitSettings, seeds: int = 1) -> Model:
    data = TrainingData.from_graphs(graphs, TPU)
    return Model.of("time-trees", "tile").fit(data, settings, seeds)


def out_of_fold(graphs: list[GraphRows], settings: FitSettings) -> list[NDArray[Any]]:
    """Return the scores of each graph by a model fitted on other families."""
    scores: dict[int, NDArray[Any]] = {}
    for _, held in family_folds(TrainingData.from_graphs(graphs).families, _FOLDS):
        model = fitted(
            [graph for number, graph in enumerate(graphs) if number not in set(held)], settings
        )
        for number in held:
            graph = graphs[number]
            scores[number] = model.score(graph)[graph.group]
    return [scores[number] for number in range(len(graphs))]


def tile_ranker(data_root: Path, rounds: int, seeds: int, threads: int) -> tuple[Model, ModelCard]:
    """Return the model of tiles, and print its metrics out of fold."""
    graphs = estimated_tiles(data_root)
    scores = out_of_fold(graphs, FitSettings(rounds, 0, threads))
    folds = {
        graph.name: graph_metrics("tile", score, graph.cost, graph.group)
        for score, graph in zip(scores, graphs, strict=True)
    }
    means = {
        name: np.mean([values[name] for values in folds.values()])
        for name in ("score", "tau", "slowdown@1")
    }
    shown = ", ".join(f"{name} {mean:.3f}" for name, mean in means.items())
    print(f"{len(graphs)} graphs out of fold: {shown}")
    error, across = time_errors(
        [np.exp2(score) for score in scores], [graph.runtime for graph in graphs]
    )
    print(f"relative error of the times: median {error:.3f}; tau across kernels {across:.3f}")
    model = fitted(graphs, FitSettings(rounds, 0, threads), seeds)
    card = ModelCard(
        collection="tile:tpu-estimate",
        rounds=rounds,
        recipe=Recipe.of(model.kind),
        trained_on={"train": sorted({graph.name for graph in graphs})},
        folds=folds,
        target="tpu-v3",
    )
    return model, card


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data-root", type=Path, default=SAMPLE)
    parser.add_argument("--out", type=Path, help="default: where the shipped rankers are")
    for name, default in {"seeds": 2, "rounds": TILE_ROUNDS, "threads": 0}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    args = parser.parse_args()
    model, card = tile_ranker(args.data_root, args.rounds, args.seeds, args.threads)
    out = args.out or SHIPPED_MODELS / "tile"
    model.save(out, card)
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    print(f"wrote {out}: {size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
