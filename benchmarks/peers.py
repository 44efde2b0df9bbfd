"""All rankers and the naive peers side by side, families held out and on valid.

    python -m benchmarks.peers [--data-root D] [--collection C]... [--model NAME]... [--seeds N] [--rounds N]
                               [--out FILE]

Every ranker with its default parameters, and two that know little:

- number of layouts set (tile: the mean of 200 random orders): no model at all;
- naive pooled row: the raw configuration columns, the mean over configurable nodes for layouts, beside the sizes
  of the graph; LightGBM's lambdarank as it comes (31 levels, truncation 30, 31 leaves, learning rate 0.1).

Out of fold: every train graph by models that saw none of its family. Valid: by models of the whole train split. The
number of rounds is the best out of fold, over all seeds together, and the same on valid. Each number is the mean
over graphs of the score (Kendall's tau for layouts, 1 - slowdown of the best of the top 5 for tiles), averaged over
seeds, ± its standard deviation over graphs; in brackets the standard deviation over seeds of the mean. Differences
within the brackets are noise. Beside it stands what the first choice and the best of five lose, out of fold. A
second table has each one's differences to the first ranker, graph by graph, with 95 % intervals over graphs.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from benchmarks.transcript import Transcript
from xlarank.data.collection import Collection, GraphFile, graph_files
from xlarank.data.config_table import code_counts
from xlarank.data.graph import Graph, Kind, LayoutGraph, TileGraph, read_graph
from xlarank.data.root import find_data_root
from xlarank.data.schema import LAYOUT_COLUMNS, TILE_COLUMNS
from xlarank.features.assemble import assemble
from xlarank.features.recipe import FeatureSettings
from xlarank.features.rows import GraphRows
from xlarank.models.fit_settings import FitSettings
from xlarank.models.objectives import MAX_GROUP, mean_rank
from xlarank.models.params import Number, Whole, param
from xlarank.models.rankers.lambdarank import query_groups
from xlarank.models.rankers.lightgbm import LightGBMRanker, TreeParams
from xlarank.models.rankers.lightgbm_data import RowTargets
from xlarank.models.registry import RANKERS, ranker_class
from xlarank.models.training_data import TrainingData
from xlarank.models.validation.curves import Curves, join_curves, validate_folds
from xlarank.models.validation.folds import family_folds
from xlarank.models.validation.metrics import graph_metrics
from xlarank.models.validation.paired import difference

_FOLDS = 10
_SET = "change__nodes_set__share"
_SIZES = ["nodes", "edges", "configurable nodes"]
#: Random orders to average.
_ORDERS = 200
#: LightGBM's default gains end at label 30.
_LEVELS = 31
#: Of a graph, averaged over seeds.
_SHOWN = ("score", "slowdown@1", "slowdown@5")

#: ``{graph: {metric: value}}``
PerGraph = dict[str, dict[str, float]]


@dataclass(frozen=True, kw_only=True)
class NaivePooledParams(TreeParams):
    """LightGBM's own defaults."""

    ranker: ClassVar[str] = "naive pooled row"

    learning_rate: float = param(0.1, Number(0, above=True))
    num_leaves: int = param(31, Whole(2))
    feature_fraction: float = param(1.0, Number(0, 1, above=True))
    bagging_fraction: float = param(1.0, Number(0, 1, above=True))
    lambda_l2: float = param(0.0, Number(0))


class NaivePooled(LightGBMRanker[NaivePooledParams]):
    """Lambdarank with LightGBM's own defaults on whatever rows it is given."""

    name = NaivePooledParams.ranker
    params_class = NaivePooledParams

    def _fit(self, data: TrainingData, settings: FitSettings) -> None:
        levels = data.per_group(lambda cost: np.rint((1 - mean_rank(cost)) * (_LEVELS - 1)))
        # beyond LightGBM's limit on a group its rows are dealt into several, as for the ranker of that name
        deal, sizes = query_groups(data, MAX_GROUP, settings.seed)
        self._train(
            data, RowTargets(label=levels, sizes=sizes), {"objective": "lambdarank"}, settings, columns="all",
            init_score_weight=0.0, deal=deal,
        )  # fmt: skip


@dataclass(frozen=True)
class Split:
    """The graphs of a split, as wide rows and as naive ones (in the same order)."""

    wide: list[GraphRows]
    naive: list[GraphRows]

    def rows(self, model: str) -> list[GraphRows]:
        return self.naive if model == NaivePooled.name else self.wide


def naive_rows(graph: Graph, wide: GraphRows) -> GraphRows:
    """The raw configuration columns of each distinct configuration, and three sizes of the graph."""
    if isinstance(graph, LayoutGraph):
        nodes, columns = graph.table.nodes, [*LAYOUT_COLUMNS]
        pooled = code_counts(graph.table.codes, len(graph.table.rows)) @ graph.table.rows.astype(np.float32)
        pooled = pooled / max(1, nodes)
    else:
        assert isinstance(graph, TileGraph)
        nodes, columns, pooled = 0, [*TILE_COLUMNS], graph.config_feat
    sizes = np.array([graph.nodes, len(graph.edges), nodes], np.float32)
    rows = np.asarray(pooled[graph.duplicates.first], np.float32)
    return replace(wide, columns=[*_SIZES, *columns], graph_values=sizes, config_values=rows)


def load(files: list[Path], kind: Kind) -> Split:
    """Read and featurise the labelled, rankable graphs."""
    split = Split([], [])
    for path in files:
        graph = read_graph(path, kind)
        wide = assemble(graph, FeatureSettings())
        if wide.labelled and wide.rankable:
            split.wide.append(wide)
            split.naive.append(naive_rows(graph, wide))
    return split


def without_model(kind: Kind, graph: GraphRows) -> dict[str, float]:
    """Metrics of the naive order: fewest layouts set first; for tiles the mean of random orders."""
    if kind == "layout":
        values = graph.config_values[:, graph.columns.index(_SET) - len(graph.graph_values)].astype(np.float64)
        orders = values[None]
    else:
        orders = np.random.default_rng(0).random((_ORDERS, len(graph)))
    found = [graph_metrics(kind, order[graph.group], graph.cost, graph.group) for order in orders]
    return {metric: float(np.mean([one[metric] for one in found])) for metric in _SHOWN}


def told(scores: NDArray[np.float64]) -> str:
    """``(seeds, graphs)`` scores in words."""
    if not scores.size:
        return "-"
    per_graph = scores.mean(axis=0)
    over_seeds = f" (± {scores.mean(axis=1).std():.3f})" if len(scores) > 1 else ""
    return f"{per_graph.mean():.3f} ± {per_graph.std():.3f}{over_seeds}"


def compare(
    kind: Kind, train: Split, valid: Split, models: list[str], *, seeds: int, rounds: int, threads: int = 0
) -> Iterator[str]:
    """The lines of the table in Markdown, as they come."""
    yield (
        f"| ranker | rounds | out of fold ({len(train.wide)} graphs) | valid ({len(valid.wide)} graphs) | "
        "slowdown@1, out of fold | slowdown@5, out of fold |"
    )
    yield "|---|---|---|---|---|---|"
    name = "number of layouts set" if kind == "layout" else "random order"
    naive, other = ({graph.name: without_model(kind, graph) for graph in split.wide} for split in (train, valid))
    yield f"| {name} | - | {told(_scores(naive))} | {told(_scores(other))} | {_lost(naive)} |"
    out_of_fold: dict[str, PerGraph] = {name: naive}
    for model in [NaivePooled.name, *models]:
        training = TrainingData.from_graphs(train.rows(model))
        ranker, folds = ranker_class(model)(kind=kind), family_folds(training.families, _FOLDS)
        curves = []
        for seed in range(seeds):
            parts = validate_folds(training, folds, ranker, FitSettings(rounds, seed, threads))
            curves.append(join_curves(list(parts)))
        stage = _stage(curves)
        chosen = curves[0].rounds[stage]
        scores = np.array([curve.column("score")[:, stage] for curve in curves])
        judged = np.empty((seeds, len(valid.wide)))
        for seed in range(seeds):
            fitted = ranker.clone().fit(training, FitSettings(chosen, seed, threads))
            for place, graph in enumerate(valid.rows(model)):
                score = fitted.predict(graph.matrix(), graph.columns, graph.instances)[graph.group]
                judged[seed, place] = graph_metrics(kind, score, graph.cost, graph.group)["score"]
        out_of_fold[model] = _over_seeds(curves, stage)
        yield f"| {model} | {chosen} | {told(scores)} | {told(judged)} | {_lost(out_of_fold[model])} |"
    yield from _differences(out_of_fold, models[0])


def _over_seeds(curves: list[Curves], stage: int) -> PerGraph:
    """Each graph's metrics at one stage, the mean over seeds."""
    of_seeds = [curve.at(stage) for curve in curves]
    return {
        graph: {metric: float(np.mean([one[graph][metric] for one in of_seeds])) for metric in _SHOWN}
        for graph in of_seeds[0]
    }


def _scores(graphs: PerGraph) -> NDArray[np.float64]:
    return np.array([[values["score"] for values in graphs.values()]])


def _lost(graphs: PerGraph) -> str:
    """Two cells: what the first choice loses, and the best of five."""
    return " | ".join(f"{np.mean([values[metric] for values in graphs.values()]):.3f}" for metric in _SHOWN[1:])


def _differences(found: dict[str, PerGraph], first: str) -> Iterator[str]:
    """The second table: everything less the first ranker, out of fold, paired."""
    yield ""
    yield f"| out of fold less {first} (95 %, paired) | " + " | ".join(_SHOWN) + " |"
    yield "|---|---|---|---|"
    for name, graphs in found.items():
        if name != first:
            cells = (str(difference(graphs, found[first], metric)) for metric in _SHOWN)
            yield f"| {name} | " + " | ".join(cells) + " |"


def _stage(curves: list[Curves]) -> int:
    """The best stage of all seeds together."""
    return int(np.argmax(np.mean([curve.smooth_score() for curve in curves], axis=0)))


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--collection", action="append", default=[])
    parser.add_argument("--model", action="append", default=[], help="default: all of them")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=300, help="most boosting rounds")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--out", type=Path, help="also write the tables to this file")
    asked = parser.parse_args()
    root = find_data_root(asked.data_root)
    files = graph_files(root.npz, asked.collection, where=str(root.path))
    models = asked.model or [*RANKERS]
    RANKERS[NaivePooled.name] = NaivePooled
    say = Transcript(asked.out)

    for collection in sorted({file.collection for file in files}):
        train, valid = (_load_split(collection, split, files) for split in ("train", "valid"))
        metric = "Kendall's tau" if collection.kind == "layout" else "1 - slowdown@5"
        say(f"\n## {collection}\n\n{metric}, {asked.seeds} seeds.\n")
        for line in compare(
            collection.kind, train, valid, models, seeds=asked.seeds, rounds=asked.rounds, threads=asked.threads
        ):
            say(line)


def _load_split(collection: Collection, split: str, files: list[GraphFile]) -> Split:
    paths = [file.path for file in files if file.collection == collection and file.split == split]
    return load(paths, collection.kind)


if __name__ == "__main__":
    main()
