"""Make a ranker that comes with xlarank: learned from what the TPU's compiler estimated.

    python -m benchmarks.pretrain [--kind layout|tile] [--data-root D] [--out FOLDER] [--seeds N] [--rounds N]

Of layouts, it learns from the train graphs of all collections ``layout:tpu-estimate:*`` together: the same physics
behind two searches. Members, weights and rounds are fixed, not chosen: LightGBM on wide rows, lambdarank and
ranknet in equal parts. Sums over instances are left out because they extrapolate to what estimates never show
(layouts set on operands). Columns are those of configurations. Of tiles, it learns absolute times (`tile-cost`).
AlexNets are left out: the measured ones are held out. The card holds metrics out of fold by family, whose
means are printed.
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
from xlarank.data.collection import graph_files
from xlarank.data.graph import Kind, read_graph
from xlarank.data.root import SAMPLE, find_data_root
from xlarank.features.assemble import assemble
from xlarank.features.recipe import FeatureSettings, Recipe
from xlarank.features.rows import GraphRows
from xlarank.features.targets import TPU
from xlarank.models.base import Ranker
from xlarank.models.rankers.ensemble import Ensemble
from xlarank.models.rankers.wide_rows import TileCost
from xlarank.models.trained import SHIPPED_COLLECTION, SHIPPED_FOLDERS, ModelCard, save_model
from xlarank.models.training_data import FitSettings, TrainingData
from xlarank.models.validation.folds import family_folds
from xlarank.models.validation.metrics import graph_metrics

#: Out of fold on the estimated programs: tau 0.629 at 150, 0.632 at 225, 0.635 at 300 rounds, which take over 2 MB.
ROUNDS = 225
TILE_ROUNDS = 200
WEIGHTS = {"weight_lambdarank": 1.0, "weight_ranknet": 1.0, "weight_sum_pooled": 0.0}
_FOLDS = 8


def labelled_rows(files: Iterable[Path], kind: Kind) -> list[GraphRows]:
    """All columns of the labelled, rankable graphs."""
    rows = [assemble(read_graph(path, kind), FeatureSettings()) for path in files]
    return [one for one in rows if one.labelled and one.rankable]


def time_errors(predictions: Sequence[NDArray[Any]], times: Sequence[NDArray[Any]]) -> tuple[float, float]:
    """Median relative error of predicted times of each kernel's tiles, and tau over all tiles of all kernels."""
    predicted, actual = np.concatenate(predictions), np.concatenate(times)
    return float(np.median(np.abs(predicted / actual - 1))), float(kendalltau(predicted, actual).statistic)


def estimated(data_root: Path | None, kind: Kind = "layout") -> dict[str, list[GraphRows]]:
    """Rows of the labelled graphs of each estimated collection; of layouts, columns of configurations.

    Without families whose measured configurations are held out (`benchmarks.adopt.MEASURED`).
    """
    root = find_data_root(data_root)
    found: dict[str, list[GraphRows]] = {}
    for file in graph_files(root.npz, [], where=str(root.path)):
        wanted = file.collection.parts[:2] == (kind, "tpu-estimate") and file.split == "train"
        if wanted and file.family not in MEASURED:
            for rows in labelled_rows([file.path], kind):
                varying = np.arange(len(rows.graph_values), len(rows.columns))
                found.setdefault(str(file.collection), []).append(rows.only(varying) if kind == "layout" else rows)
    return found


def fitted(kind: Kind, graphs: list[GraphRows], settings: FitSettings) -> Ranker[Any]:
    """What is shipped for a kind, learned from some graphs."""
    if kind == "tile":
        return TileCost(kind="tile").fit(TrainingData.from_graphs(graphs, TPU), settings)
    return Ensemble(WEIGHTS, kind="layout").fit(TrainingData.from_graphs(graphs), settings)


def out_of_fold(kind: Kind, graphs: list[GraphRows], settings: FitSettings) -> list[NDArray[Any]]:
    """Scores of each graph by a ranker that learned from other families."""
    scores: dict[int, NDArray[Any]] = {}
    for held in family_folds(TrainingData.from_graphs(graphs).families, _FOLDS):
        ranker = fitted(kind, [graph for at, graph in enumerate(graphs) if at not in set(held)], settings)
        for at, graph in ((at, graphs[at]) for at in held):
            scores[at] = ranker.predict(graph.matrix(), graph.columns, graph.instances)[graph.group]
    return [scores[at] for at in range(len(graphs))]


def main() -> None:
    """Make it and say what it is."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kind", choices=["layout", "tile"], default="layout")
    parser.add_argument("--data-root", type=Path, default=SAMPLE)
    parser.add_argument("--out", type=Path, help="default: where the shipped rankers are")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--threads", type=int, default=0)
    asked = parser.parse_args()
    kind: Kind = asked.kind
    tile = kind == "tile"
    rounds = asked.rounds or (TILE_ROUNDS if tile else ROUNDS)
    collections = estimated(asked.data_root, kind)
    graphs = [graph for rows in collections.values() for graph in rows]
    scores = out_of_fold(kind, graphs, FitSettings(rounds, 0, asked.threads))
    titles = [one.name if tile else f"{name} {one.name}" for name, rows in collections.items() for one in rows]
    folds = {
        title: graph_metrics(kind, score, graph.cost, graph.group)
        for title, score, graph in zip(titles, scores, graphs, strict=True)
    }
    for name in collections:
        metrics = [values for title, values in folds.items() if tile or title.startswith(name)]
        means = {one: np.mean([values[one] for values in metrics]) for one in ("score", "tau", "slowdown@1")}
        print(f"{name}, {len(metrics)} graphs out of fold: {', '.join(f'{k} {v:.3f}' for k, v in means.items())}")
    if tile:
        error, across = time_errors([np.exp2(one) for one in scores], [one.runtime for one in graphs])
        print(f"relative error of the times: median {error:.3f}; tau across kernels {across:.3f}")
    rankers = [fitted(kind, graphs, FitSettings(rounds, seed, asked.threads)) for seed in range(asked.seeds)]
    card = ModelCard(
        collection=next(iter(collections)) if tile else SHIPPED_COLLECTION,
        model=rankers[0].name,
        params=rankers[0].params.values(),
        rounds=rounds,
        tuned=False,
        recipe=Recipe.of(FeatureSettings(), kind),
        columns=graphs[0].columns,
        trained_on={"train": sorted({graph.name for graph in graphs})},
        folds=folds,
        target=TPU.name if tile else "",
    )
    out = asked.out or SHIPPED_FOLDERS[kind]
    save_model(out, card, rankers)
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    print(f"wrote {out}: {len(graphs)} graphs, {asked.seeds} seeds, {size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
