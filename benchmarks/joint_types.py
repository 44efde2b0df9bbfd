"""What counts of exact joint types add: rankers with and without them, families held out.

    python -m benchmarks.joint_types [--data-root D] [--collection C]... [--model NAME]... [--known N]...
                                     [--rounds N] [--seeds N]

Every graph of the train split is scored by models that saw none of its family, and whose vocabulary was learned
without it. Prints a row for each collection, ranker and size of the vocabulary, in Markdown: the mean score over
graphs at the best number of rounds of the ranker without types, ± its standard error over graphs, and the mean over
graphs of the difference to that, ± its standard error.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from xlarank.data.collection import Collection, graph_files
from xlarank.data.graph import read_graph
from xlarank.data.root import SAMPLE, find_data_root
from xlarank.features.assemble import assemble
from xlarank.models.fit_settings import FitSettings
from xlarank.models.ranking_data import RankingData
from xlarank.models.registry import ranker_class
from xlarank.models.training_set import TrainingSet
from xlarank.models.validation.curves import join_curves, validate_folds
from xlarank.models.validation.folds import family_folds

_FOLDS = 5


def scores(data: RankingData, model: str, known: int, rounds: int, seeds: int) -> NDArray[np.float64]:
    """``(graphs, stages)`` out of fold, the mean over seeds."""
    ranker = ranker_class(model)({"joint_types": known}, kind="layout")
    found = []
    for seed in range(seeds):
        settings = FitSettings(rounds, seed)
        folds = validate_folds(TrainingSet("layout", data), family_folds(data.families, _FOLDS), ranker, settings)
        found.append(join_curves(list(folds)).column("score"))
    mean: NDArray[np.float64] = np.mean(found, axis=0)
    return mean


def told(values: NDArray[np.float64], sign: str = "") -> str:
    """Mean and standard error of ``(graphs,)``."""
    return f"{values.mean():{sign}.4f} ± {values.std(ddof=1) / np.sqrt(len(values)):.4f}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data-root", type=Path, default=SAMPLE)
    parser.add_argument("--collection", action="append", default=[])
    parser.add_argument("--model", action="append", default=[])
    parser.add_argument("--known", type=int, action="append", default=[])
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=2)
    asked = parser.parse_args()
    root = find_data_root(asked.data_root)
    files = [
        file for file in graph_files(root.npz, asked.collection, where=str(root.path)) if file.split == "train"
    ]
    print("| collection | ranker | types | score | difference |\n|---|---|---|---|---|", flush=True)
    for name in sorted({str(file.collection) for file in files if file.collection.kind == "layout"}):
        collection = Collection.parse(name)
        read = [read_graph(file.path, "layout") for file in files if file.collection == collection]
        rows = [assemble(graph) for graph in read]
        data = RankingData.from_graphs([graph for graph in rows if graph.labelled and graph.rankable])
        for model in asked.model or ["ranknet", "sum-pooled"]:
            without = scores(data, model, 0, asked.rounds, asked.seeds)
            best = int(without.mean(axis=0).argmax())
            print(f"| {name} | {model} | none | {told(without[:, best])} | |", flush=True)
            for known in asked.known or [256]:
                found = scores(data, model, known, asked.rounds, asked.seeds)[:, best]
                print(f"| | | {known} | {told(found)} | {told(found - without[:, best], '+')} |", flush=True)


if __name__ == "__main__":
    main()
