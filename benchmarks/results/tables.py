"""One function per table. Measured graphs are only evaluated on: nothing is chosen by them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.pretrain import labelled_rows, time_errors
from benchmarks.results.size import size
from benchmarks.results.stored import Cell, Table
from xlarank.data.collection import (
    SAMPLE,
    Collection,
    DataRoot,
    GraphFile,
    discover,
    find_data_root,
    graph_files,
)
from xlarank.data.errors import DataRootError, ModelError
from xlarank.data.workspace import Workspace
from xlarank.features.rows import GraphRows
from xlarank.features.store import each_graph, stored_collections
from xlarank.models.model import RULE
from xlarank.models.stored import ESTIMATED_TIME, SHIPPED_TREES, shipped_model, shipped_trees
from xlarank.models.validation.metrics import paired_difference
from xlarank.pipelines.build_features import build_features
from xlarank.pipelines.cross_validate import cross_validate
from xlarank.pipelines.support.baselines import RANDOM, baselines
from xlarank.pipelines.support.evaluation import evaluate_graph

#: ``{graph: {metric: value}}``
Scores = dict[str, dict[str, float]]

QUICK: Final = ("lambdarank", "ranknet")
OTHERS: Final = ("xgb-pairwise", "ensemble")
#: Heads of a comparison: name and score of what ranks, then others.
_COMPARED: Final = (
    "ranks by default",
    "its score",
    "our formula",
    "best simple count",
    "which count",
)
_SHOWN: Final = ("score", "tau", "slowdown@1", "slowdown@5")


@dataclass(frozen=True)
class Job:
    """Data root, workspace for columns, and collections (none: all) of a table."""

    root: DataRoot
    workspace: Path
    collections: Sequence[str] = ()


def _of(scores: Scores, metric: str) -> Cell:
    values = np.array([metrics[metric] for metrics in scores.values()])
    return [float(values.mean()), float(values.std())] if len(values) > 1 else float(values[0])


def _difference(scores: Scores, incumbent: Scores) -> str | None:
    """Return the mean difference with its interval, such as ``+0.012 (-0.010 to +0.031)``."""
    ours = {graph: scores[graph]["score"] for graph in scores if graph in incumbent}
    if not ours:
        return None
    gap = paired_difference(ours, {graph: incumbent[graph]["score"] for graph in ours})
    return f"{gap.mean:+.3f} ({gap.low:+.3f} to {gap.high:+.3f})"


def _best_count(rankings: Mapping[str, Scores], metric: str = "score") -> tuple[str, Scores]:
    """Return the simple count of the best mean, except chance, without its prefix."""
    names = [name for name in rankings if name.startswith(RULE) and name != f"{RULE}{RANDOM}"]
    best = max(
        names, key=lambda name: np.mean([metrics[metric] for metrics in rankings[name].values()])
    )
    return best.removeprefix(RULE), rankings[best]


def _untrained(collection: Collection, graphs: Sequence[GraphRows]) -> dict[str, Scores]:
    """Return the rankings that need no training: simple counts, the formula, shipped trees."""
    rankings: dict[str, Scores] = {}
    for graph in graphs:
        for name, metrics in baselines(collection, graph).items():
            rankings.setdefault(name, {})[graph.name] = metrics
    return rankings


def _files(job: Job) -> dict[Collection, list[GraphFile]]:
    files = graph_files(job.root.npz, job.collections, where=str(job.root.path))
    files = [file for file in files if file.split in ("train", "valid")]
    return {
        collection: [*group]
        for collection, group in groupby(files, key=lambda file: file.collection)
    }


def measured(job: Job) -> Table:
    """What ranks without training on measured layouts of a TPU, by graph, and on kernels."""
    if job.root.path == SAMPLE:
        raise DataRootError(
            "the sample holds nothing that was measured on a TPU", do="pass --data-root"
        )
    rows: list[list[Cell]] = []
    metrics = {"layout": "Kendall's tau", "tile": "1 - slowdown@5"}
    for collection, files in _files(job).items():
        graphs = labelled_rows([file.path for file in files], collection.kind, collection)
        parts = [[graph] for graph in graphs] if collection.kind == "layout" else [graphs]
        for part in filter(None, parts):
            ranker = shipped_model(collection.kind, collection.hardware).name
            scores = _shipped(collection, part)
            rankings = _untrained(collection, part)
            name, count = _best_count(rankings)
            title = part[0].name if len(part) == 1 else f"{len(part)} kernels"
            rows.append(
                [
                    str(collection),
                    title,
                    sum(len(graph) for graph in part),
                    metrics[collection.kind],
                    ranker,
                    _of(scores, "score"),
                    _of(rankings[ESTIMATED_TIME], "score"),
                    _of(count, "score"),
                    name,
                    *(_of(scores, metric) for metric in _SHOWN[2:]),
                ]
            )
    heads = ["collection", "graph", "distinct configurations", "metric", *_COMPARED]
    return Table(
        title="Graphs measured on a TPU, ranked without training on measurements",
        labels="measured on TPU v3",
        seeds=0,
        heads=[*heads, *_SHOWN[2:]],
        rows=rows,
    )


def _shipped(collection: Collection, graphs: Sequence[GraphRows]) -> Scores:
    model = shipped_model(collection.kind, collection.hardware)
    scores = {graph.name: model.score(model.select(graph)) for graph in graphs}
    return {graph.name: evaluate_graph(collection, graph, scores[graph.name]) for graph in graphs}


def shipped(job: Job) -> Table:
    """What ranks without training on estimated graphs of both splits, tiles out of fold.

    Nothing in the formula of layouts is learned, but its form was chosen by looking at such graphs.
    """
    rows: list[list[Cell]] = []
    for collection, files in _files(replace(job, root=find_data_root(SAMPLE))).items():
        if "estimate" not in collection.parts[1]:
            continue
        ranker = shipped_model(collection.kind, collection.hardware)
        folds = ranker.require_card().folds
        for split in ("train", "valid"):
            paths = [file.path for file in files if file.split == split]
            graphs = labelled_rows(paths, collection.kind, collection)
            held_out = split
            if split == "train" and folds:
                held_out = "families held out"
                graphs = [graph for graph in graphs if graph.name in folds]
            if not graphs:
                continue
            scores = _shipped(collection, graphs)
            if held_out != split:
                scores = {graph.name: folds[graph.name] for graph in graphs}
            rankings = _untrained(collection, graphs)
            name, count = _best_count(rankings, "tau")
            rows.append(
                [
                    str(collection),
                    held_out,
                    len(graphs),
                    ranker.name,
                    _of(scores, "tau"),
                    _of(rankings[ESTIMATED_TIME], "tau"),
                    _of(count, "tau"),
                    name,
                    *(_of(scores, metric) for metric in _SHOWN[2:]),
                ]
            )
    return Table(
        title="Estimated graphs, Kendall's tau",
        labels="estimated by the TPU's compiler (v3)",
        seeds=1,
        heads=["collection", "evaluated on", "graphs", *_COMPARED, *_SHOWN[2:]],
        rows=rows,
    )


def tiles(job: Job) -> Table:
    """The shipped trees of tiles next to every count, and the accuracy of their predicted times."""
    rows: list[list[Cell]] = []
    for place in {SAMPLE: find_data_root(SAMPLE), job.root.path: job.root}.values():
        for collection, files in _files(Job(place, job.workspace)).items():
            if collection.kind == "layout" or collection.parts[1] == "cpu":
                continue
            split = "valid" if place.path == SAMPLE else "train"
            kernels = labelled_rows([file.path for file in files if file.split == split], "tile")
            rankings = _untrained(collection, kernels) | {
                SHIPPED_TREES: _shipped(collection, kernels)
            }
            where = f"{collection}, {len(kernels)} kernels"
            for name, scores in rankings.items():
                errors = _errors(kernels) if name == SHIPPED_TREES else (None, None)
                rows.append([where, name, *(_of(scores, metric) for metric in _SHOWN[:3]), *errors])
    heads = [
        "kernels",
        "ranking",
        *_SHOWN[:3],
        "error of the times, median",
        "tau of the times across kernels",
    ]
    labels = "estimated by the TPU's compiler (tile:tpu-estimate), measured on TPU v3 (tile:xla)"
    return Table(title="Tiles of TPU kernels", labels=labels, seeds=0, heads=heads, rows=rows)


def _errors(kernels: Sequence[GraphRows]) -> tuple[float, float]:
    model = shipped_trees()
    times = [np.exp2(model.score(model.select(kernel))[kernel.group]) for kernel in kernels]
    return time_errors(times, [kernel.runtime for kernel in kernels])


def rankers(job: Job) -> Table:
    """lambdarank and ranknet out of fold on every collection, next to the formula and a count."""
    return _compared(_built(job), QUICK)


def other_rankers(job: Job) -> Table:
    """The slower rankers out of fold on every collection."""
    return _compared(_built(job), OTHERS)


_LABELS: Final = (
    "measured on CPU (cpu) and on an NVIDIA H200 (nvidia-h200), "
    "estimated by the TPU's compiler (tpu-estimate)"
)


def _built(job: Job) -> Workspace:
    workspace = Workspace(job.workspace)
    build_features(job.root, workspace, collection=job.collections, split=("train",))
    return workspace


def _out_of_fold(place: Workspace, collection: Collection, ranker: str) -> Scores:
    """Return metrics by a ranker fitted without a graph's family or a tile's kernel family."""
    by = "family" if collection.kind == "layout" else "kernel-family"
    evaluation = cross_validate(place, ranker, by=by, collection=str(collection))
    return next(iter(evaluation.rankings[str(collection)].values()))


def _compared(place: Workspace, names: Sequence[str]) -> Table:
    rows: list[list[Cell]] = []
    for collection in stored_collections(place):
        scores: dict[str, Scores] = {}
        for name in names:
            try:
                scores[name] = _out_of_fold(place, collection, name)
            except ModelError as error:  # a ranker of layouts alone
                print(f"{collection}: {error}", flush=True)
            print(f"{collection} {name} done", flush=True)
        graphs = [
            graph
            for graph in each_graph(place, collection, "train")
            if graph.name in scores[names[0]]
        ]
        rankings = _untrained(collection, graphs)
        count, count_scores = _best_count(rankings)
        estimate = rankings[ESTIMATED_TIME]
        scores = {**scores, ESTIMATED_TIME: estimate, f"simple count: {count}": count_scores}
        for name, ranked in scores.items():
            gain = None if ranked is estimate else _difference(ranked, estimate)
            slower = []
            for metric in _SHOWN[2:]:
                slower.append(float(np.mean([metrics[metric] for metrics in ranked.values()])))
            rows.append([str(collection), name, len(ranked), _of(ranked, "score"), gain, *slower])
    heads = ["collection", "ranker", "graphs", "score"]
    heads += ["difference to the estimated time (95 %, paired)", *_SHOWN[2:]]
    title = "Out-of-fold scores: unseen program families, unseen kernel families"
    return Table(title=title, labels=_LABELS, seeds=1, heads=heads, rows=rows)


def graph_network(job: Job) -> Table:
    """A graph network and trees on the same folds; an hour, resumed if --workspace is given."""
    try:
        from benchmarks import graph_network as peer
    except ModuleNotFoundError as missing:
        raise SystemExit(f"{missing}: pip install -e '.[peer]'") from None
    return peer.graph_network(job)


def speed(job: Job) -> Table:
    """Time from a file to its columns and to its ranking, next to `numpy.load`."""
    rows: list[list[Cell]] = []
    by_size = sorted(discover(job.root.npz), key=lambda file: file.path.stat().st_size)
    # No shipped ranker.
    largest = {file.collection: file for file in by_size if str(file.collection) != "tile:cpu"}
    for file in largest.values():
        words = [sys.executable, "-m", "benchmarks.results.timing", str(file.path)]
        # as in the commands
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
        done = subprocess.run(words, capture_output=True, text=True, check=True, env=environment)
        load, features, ranked, memory, configs = map(float, done.stdout.split())
        rows.append(
            [
                f"{file.collection} {file.name}",
                int(configs),
                1000 * load,
                1000 * features,
                round(features / load),
                1000 * ranked,
                int(memory),
            ]
        )
    heads = [
        "file",
        "configurations",
        "`numpy.load`, ms",
        "all columns, ms",
        "ratio",
        "ranking, ms",
        "peak MB",
    ]
    return Table(
        title="CPU time from a file to its columns and its ranking, warm",
        labels="not used",
        seeds=0,
        heads=heads,
        rows=rows,
    )


#: Name -> the function that makes it.
TABLES: Final[dict[str, Callable[[Job], Table]]] = {
    "measured": measured,
    "shipped": shipped,
    "tiles": tiles,
    "rankers": rankers,
    "other-rankers": other_rankers,
    "graph-network": graph_network,
    "speed": speed,
    "size": size,
}
