"""Rankings of the configurations of one graph, or of every graph in a folder."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from xlarank.data.errors import GraphFileError, XlarankError, counted
from xlarank.data.files import atomic_write
from xlarank.data.graph import Graph, GraphLike, LayoutGraph
from xlarank.data.workspace import DEFAULT_ROOT, Workspace, WorkspaceLike
from xlarank.features.rows import GraphRows
from xlarank.models.model import Model
from xlarank.models.validation.metrics import compiler_cost, graph_metrics, order_of, speedups
from xlarank.pipelines.ranking.model_choice import (
    Choice,
    ModelFrom,
    choose_for_graph,
    rows_for_model,
)
from xlarank.pipelines.support.progress import steps_of
from xlarank.pipelines.support.tables import Table

if TYPE_CHECKING:  # imported when a table or an explanation is requested
    import polars as pl

    from xlarank.pipelines.ranking.score_difference import Explanation


def rank(
    graph: GraphLike,
    workspace: WorkspaceLike = DEFAULT_ROOT,
    *,
    target: str | None = None,
    collection: str | None = None,
    model_from: ModelFrom | None = None,
) -> Ranking:
    """Rank the configurations of a graph, or of an npz file.

    The hardware is ``target`` ("tpugraphs" for a file of the TpuGraphs dataset, or a chip:
    "tpu-v3", "tpu-v4", "tpu-v5e", "tpu-v6e", "cpu", "nvidia-h200"), or the hardware of
    ``collection``; else of the collection whose folder contains the file, else as the file says.

    If the workspace has a trained model of ``collection``, by default the folder's, the
    highest mean out of fold ranks: the model, or the ranker that needs no training. That is the
    estimated time, for tiles of TPUs trees that learned from estimates of the TPU's compiler.
    ``model_from`` decides otherwise: "trained", "shipped", a collection with a model, the folder
    of one, or a fitted `GraphRanker`.

    Raises `GraphFileError` for the file, `ParameterError` if nothing names its hardware, and
    `ModelError` if there is no model.

    Examples:
        >>> import xlarank
        >>> kernel = xlarank.SAMPLE / "npz/tile/cpu/valid/bmm_tb__a.npz"
        >>> ranking = xlarank.rank(kernel, workspace="nowhere")
        >>> ranking.reason
        'estimated time of the loops on cpu'
        >>> len(ranking.best(5)), ranking.to_polars().height
        (5, 64)
    """
    chosen, choice, hardware = choose_for_graph(
        Workspace.of(workspace), graph, target=target, collection=collection, model_from=model_from
    )
    return Ranking(chosen, rows_for_model(chosen, choice.model, hardware), choice, hardware)


def rank_folder(
    folder: Path,
    workspace: WorkspaceLike = DEFAULT_ROOT,
    *,
    target: str | None = None,
    collection: str | None = None,
    model_from: ModelFrom | None = None,
) -> tuple[dict[str, Ranking], dict[str, str]]:
    """Rank every npz file below a folder; return rankings and reasons for failures by name.

    Hidden files and folders, and virtual environments, are left out. Raises `GraphFileError` if
    nothing is left.
    """
    environments = {path.parent for path in folder.rglob("*/pyvenv.cfg")}
    files = []
    for path in sorted(folder.rglob("*.npz")):
        is_hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if not is_hidden and environments.isdisjoint(path.parents):
            files.append(path)
    if not files:
        got = f"{folder} holds no npz files"
        do = "for dumps of programs run import-hlo first, or rank one of them"
        raise GraphFileError(got, expected="graphs in TpuGraphs format", do=do)
    rankings: dict[str, Ranking] = {}
    broken: dict[str, str] = {}
    ranked = partial(
        rank, workspace=workspace, target=target, collection=collection, model_from=model_from
    )
    with steps_of("ranking graphs", len(files)) as step:
        for path in files:
            name = path.relative_to(folder).as_posix().removesuffix(".npz")
            try:
                rankings[name] = ranked(path)
            except XlarankError as error:
                broken[name] = str(error)
            step(name)
    return rankings, broken


class Ranking(Table):
    """The configurations of a graph, ranked by a model's scores of its rows.

    Attributes:
        graph: name of the graph.
        target: hardware that it is ranked for; empty if unknown.
        collection: collection that the model was trained on; None if it needed no training.
        order: ``(configs,)`` configuration ids, fastest first.
        scores: ``(configs,)`` by configuration id; lower is faster; only comparable within the
            graph.
        same_as: ``(configs,)`` lowest id of an identical configuration.
        runtime: ``(configs,)`` measured nanoseconds, 0 if not measured.
        metrics: `graph_metrics`; None unless two distinct configurations differ in runtime.
        fallback: description of the fallback for an unseen kernel family, if it was used; else
            empty.
        speedup: ``(configs,)`` runtime of the compiler's default over each configuration's runtime,
            each the minimum of its repeats (tiles: of runtime / normalizer), NaN if not measured;
            None if the default is unknown.
        speedups: speedups of the first and of the best of five
            (`xlarank.models.validation.metrics`), if known.
        estimated: ``(configs,)`` predicted nanoseconds; None if the model only ranks, or with a
            ``fallback``.
        ranked_by: name of the ranker.
        reason: its name and why it ranks.
        notes: whether the model was trained on the graph.
        data, model: the graph itself, and its ranker.
    """

    metrics: dict[str, float] | None = None
    speedup: NDArray[np.float64] | None = None
    speedups: dict[str, float] | None = None
    estimated: NDArray[np.float64] | None = None

    def __init__(self, graph: Graph, rows: GraphRows, choice: Choice, target: str) -> None:
        model = choice.model
        card = model.require_card()
        scores = model.score(rows)
        kind = model.kind
        group = rows.group
        self.graph = graph.name
        self.target = target
        self.collection = None if model.shipped else card.collection
        self.data = graph
        self.model = model
        self.fallback = card.fallback_note(rows)
        self.ranked_by = model.name
        self.reason = choice.reason
        self.notes = [*filter(None, [_known_note(graph.name, model)])]
        self.runtime = graph.runtime
        self.scores = scores[group]
        self.order = order_of(self.scores)
        self.same_as = graph.first[group]
        if rows.labelled and rows.rankable:
            self.metrics = graph_metrics(kind, self.scores, rows.cost, group)
        if rows.labelled and (compiler := compiler_cost(kind, rows)) is not None:
            row_cost = rows.row_cost[group]
            self.speedup = np.where(np.isfinite(row_cost), compiler / row_cost, np.nan)
            self.speedups = speedups(self.scores, row_cost, compiler, group)
        times = None if self.fallback else model.nanoseconds(scores)
        if times is not None:
            self.estimated = times[group]

    def __repr__(self) -> str:
        first = ", ".join(map(str, self.order[:5])) + ", ..." * (len(self.order) > 5)
        configs = counted(len(self.order), "configuration")
        counts = f"{configs} ({np.count_nonzero(self.runtime):,} measured)"
        return f"<Ranking of {self.graph!r} by {self.ranked_by}: {counts}, fastest first: {first}>"

    def explain(self, config: int | None = None, against: str | int | None = None) -> Explanation:
        """Explain the difference of the scores of a configuration, by default the first."""
        # slow import: networkx
        from xlarank.pipelines.ranking.score_difference import explain_graph

        return explain_graph(self.data, self.model, self.target, config=config, against=against)

    def best(self, top: int | None = None) -> list[dict[str, Any]]:
        """Return the first ``top`` distinct configurations (all by default).

        Values of each: ``rank``, from 1; ``configuration``, the first of the ``identical`` ones;
        ``score``, ``runtime_ns``, ``speedup`` and ``estimated_ns``, None if unknown.
        """
        duplicates: dict[int, list[int]] = {}
        for config in self.order:
            duplicates.setdefault(int(self.same_as[config]), []).append(int(config))
        rows = []
        for rank, (config, *identical) in enumerate([*duplicates.values()][:top], start=1):
            speedup = None if self.speedup is None else self.speedup[config]
            row = {
                "rank": rank,
                "configuration": config,
                "score": float(self.scores[config]),
                "runtime_ns": int(self.runtime[config]) or None,
                "identical": identical,
                "speedup": None if speedup is None or np.isnan(speedup) else float(speedup),
                "estimated_ns": None if self.estimated is None else float(self.estimated[config]),
            }
            rows.append(row)
        return rows

    def ties(self, top: int | None = None) -> list[NDArray[np.intp]]:
        """Return the configurations with each score, the first ``top`` scores or all."""
        return [np.flatnonzero(self.scores == score) for score in np.unique(self.scores)[:top]]

    @property
    def tied_first(self) -> int:
        """The number of configurations with the lowest score; 0 if these are all identical."""
        tied = self.scores == self.scores[self.order[0]]
        return int(tied.sum()) if len(np.unique(self.same_as[tied])) > 1 else 0

    @property
    def default_place(self) -> tuple[int, int, int] | None:
        """First configuration that sets no layout, its place from 1, and the number of its ties.

        None for tiles, and if there is no such configuration.
        """
        graph = self.data
        if not isinstance(graph, LayoutGraph) or not len(graph.unset):
            return None
        default = int(graph.unset[0])
        score = self.scores[default]
        ahead = int(np.count_nonzero(self.scores < score))
        return default, ahead + 1, int(np.count_nonzero(self.scores == score)) - 1

    def to_polars(self) -> pl.DataFrame:
        """Return a table with one row per configuration, fastest first; unknown values are null.

        Columns: ``rank`` (of all, from 1), ``configuration``, ``score``, ``same_as``,
        ``runtime_ns``, ``speedup``.
        """
        import polars as pl

        order = self.order
        speedup = np.full(len(order), np.nan) if self.speedup is None else self.speedup[order]
        table = {
            "rank": np.arange(1, len(order) + 1),
            "configuration": order,
            "score": self.scores[order],
            "same_as": self.same_as[order],
            "runtime_ns": self.runtime[order],
            "speedup": speedup,
        }
        unknown = pl.col("runtime_ns").replace(0, None), pl.col("speedup").fill_nan(None)
        return pl.DataFrame(table).with_columns(*unknown)

    def as_json(self, top: int | None = None) -> dict[str, Any]:
        """Return JSON values of the full order, with details of the first ``top``."""
        return {
            "graph": self.graph,
            "target": self.target,
            "collection": self.collection,
            "ranked_by": self.ranked_by,
            "reason": self.reason,
            "fallback": self.fallback,
            "notes": self.notes,
            "order": self.order.tolist(),
            "scores": self.scores.tolist(),
            "estimated_ns": None if self.estimated is None else self.estimated.tolist(),
            "best": self.best(top),
            "metrics": self.metrics,
            "speedups": self.speedups,
        }


def _known_note(name: str, model: Model) -> str:
    """Return a note if a model was trained on a graph, with the score of the graph out of fold."""
    card = model.require_card()
    if not model.members or name not in card.known_graphs:
        return ""
    note = "the model was trained on this graph, so agreement with its labels proves nothing"
    if name in card.folds:
        note += f"; out of fold, its score is {card.folds[name]['score']:.3f}"
    return note


def write_rankings(path: Path, rankings: Mapping[str, Ranking]) -> None:
    """Write the distinct configurations of rankings, by graph, as CSV; raise `WorkspaceError`."""
    heads = "graph model rank configuration score runtime_ns identical speedup".split()
    with (
        atomic_write(path) as partial,
        partial.open("w", encoding="utf-8", errors="backslashreplace", newline="") as stream,
    ):
        # writes None as an empty cell, and floats with all digits
        writer = csv.DictWriter(stream, heads, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        for name, ranking in rankings.items():
            for entry in ranking.best():
                identical = ";".join(map(str, entry["identical"]))
                row = {"graph": name, "model": ranking.ranked_by, **entry}
                writer.writerow(row | {"identical": identical})
