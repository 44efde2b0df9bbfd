"""Make the ranker that comes with xlarank: learned from layouts that the TPU's compiler estimated.

    python -m benchmarks.pretrain [--data-root D] [--out models/shipped] [--seeds N] [--rounds N]

Learns from the train graphs of all collections ``layout:tpu-estimate:*`` together: the same physics behind two
searches. AlexNets are left out, because layouts of AlexNet that were measured judge. Members, weights and rounds
are fixed, not chosen: LightGBM on wide rows, lambdarank and ranknet in equal parts. Sums over instances are left
out because they extrapolate to what estimates never show (layouts set on operands). Columns are those of
configurations.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from benchmarks.adopt import MEASURED
from benchmarks.graph_rows import labelled_rows
from xlarank.data.collection import graph_files
from xlarank.data.root import SAMPLE, find_data_root
from xlarank.features.recipe import FeatureSettings, Recipe
from xlarank.features.rows import GraphRows
from xlarank.models.fit_settings import FitSettings
from xlarank.models.pretrained import COLLECTION, FOLDER
from xlarank.models.rankers.ensemble import Ensemble
from xlarank.models.trained import ModelCard, save_model
from xlarank.models.training_data import TrainingData
from xlarank.models.validation.folds import family_folds
from xlarank.models.validation.metrics import graph_metrics

#: Out of fold on the estimated programs: tau 0.629 at 150, 0.632 at 225, 0.635 at 300 rounds, which take over 2 MB.
ROUNDS = 225
WEIGHTS = {"weight_lambdarank": 1.0, "weight_ranknet": 1.0, "weight_sum_pooled": 0.0}
_FOLDS = 8


def estimated(data_root: Path | None, split: str = "train") -> dict[str, list[GraphRows]]:
    """Rows of the labelled graphs of each estimated collection: columns of configurations.

    Without families whose measured layouts judge (`benchmarks.adopt.MEASURED`).
    """
    root = find_data_root(data_root)
    found: dict[str, list[GraphRows]] = {}
    for file in graph_files(root.npz, [], where=str(root.path)):
        if (
            file.collection.parts[:2] == ("layout", "tpu-estimate")
            and file.split == split
            and file.family not in MEASURED
        ):
            rows = map(config_columns, labelled_rows([file.path], "layout"))
            found.setdefault(str(file.collection), []).extend(rows)
    return found


def config_columns(rows: GraphRows) -> GraphRows:
    """Without the columns that are constant within a graph."""
    return rows.only(np.arange(len(rows.graph_values), len(rows.columns)))


def wide_ensemble(graphs: list[GraphRows], rounds: int, seed: int, threads: int = 0) -> Ensemble:
    """What is shipped, learned from some graphs."""
    return Ensemble(WEIGHTS, kind="layout").fit(
        TrainingData.from_graphs(graphs), FitSettings(rounds, seed, threads)
    )


def main() -> None:
    """Make it and say what it is."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data-root", type=Path, default=SAMPLE)
    parser.add_argument("--out", type=Path, default=FOLDER)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--threads", type=int, default=0)
    asked = parser.parse_args()
    collections = estimated(asked.data_root)
    graphs = [graph for one in collections.values() for graph in one]
    data = TrainingData.from_graphs(graphs)
    folds: dict[str, dict[str, float]] = {}
    for held in family_folds(data.families, _FOLDS):
        ranker = wide_ensemble(
            [graph for number, graph in enumerate(graphs) if number not in set(held)],
            asked.rounds,
            0,
            asked.threads,
        )
        for number in held:
            graph = graphs[number]
            score = ranker.predict(graph.matrix(), graph.columns, graph.instances)[graph.group]
            folds[f"{_searched(collections, number)} {graph.name}"] = graph_metrics(
                "layout", score, graph.cost, graph.group
            )
    for name in collections:
        taus = [values["tau"] for graph, values in folds.items() if graph.startswith(name)]
        print(
            f"{name}: out of fold by family, tau {np.mean(taus):.3f} ± {np.std(taus):.3f} over {len(taus)} graphs"
        )
    settings = FeatureSettings()
    card = ModelCard(
        collection=COLLECTION,
        model=Ensemble.name,
        params=Ensemble(WEIGHTS, kind="layout").params.values(),
        rounds=asked.rounds,
        tuned=False,
        recipe=Recipe.of(settings, "layout"),
        columns=data.columns,
        trained_on={"train": sorted({graph.name for graph in graphs})},
        folds=folds,
    )
    rankers = [wide_ensemble(graphs, asked.rounds, seed, asked.threads) for seed in range(asked.seeds)]
    save_model(asked.out, card, rankers)
    size = sum(path.stat().st_size for path in asked.out.rglob("*") if path.is_file())
    print(f"wrote {asked.out}: {len(graphs)} graphs, {asked.seeds} seeds, {size / 1e6:.2f} MB")


def _searched(collections: dict[str, list[GraphRows]], number: int) -> str:
    """The collection of the graph of this number among all."""
    for name, graphs in collections.items():
        if number < len(graphs):
            return name
        number -= len(graphs)
    raise IndexError(number)


if __name__ == "__main__":
    main()
