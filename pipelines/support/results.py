"""Evaluations of a workspace (`results.parquet`), predictions, and score files from any ranker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl
from polars.exceptions import PanicException, PolarsError

import xlarank
from xlarank.data.collection import Collection
from xlarank.data.errors import SubmissionError, WorkspaceError, counted, reason_of
from xlarank.data.families import program_family
from xlarank.data.files import atomic_write, read_bytes, write_parquet
from xlarank.data.workspace import Workspace
from xlarank.features.rows import GraphRows, Recipe
from xlarank.features.store import read_manifest
from xlarank.models.arrays import Floats
from xlarank.models.card import FAMILY, KIND
from xlarank.models.model import Model
from xlarank.models.objectives import mean_rank
from xlarank.models.rankers import params_of

#: One entry per metric of a graph. Nulls: ``held_out_by`` unless scores are out of fold, columns of
#: `run_of` and ``seconds`` for rules and score files, ``seconds`` for single seeds, ``seed`` for
#: all others; columns that an older file lacks.
#: ``seconds`` is the time to rank the graph or, for out-of-fold scores, to train and score all
#: folds.
SCHEMA: Final = pl.Schema(
    [
        ("collection", pl.String),
        ("split", pl.String),
        ("held_out_by", pl.String),
        ("ranker", pl.String),
        ("tuned", pl.Boolean),
        ("seed", pl.Int32),
        ("graph", pl.String),
        ("family", pl.String),
        ("metric", pl.String),
        ("value", pl.Float64),
        ("seconds", pl.Float64),
        ("version", pl.String),
        ("time", pl.Datetime("us", "UTC")),
        ("name", pl.String),
        ("settings", pl.String),
        ("blocks", pl.String),
        ("rows", pl.Int64),
    ]
)
#: Columns of a prediction file; ``held_out_by`` and ``fold`` are null unless the scores are out of
#: fold.
PREDICTIONS: Final = pl.Schema(
    {
        "graph": pl.String,
        "configuration": pl.Int32,
        "split": pl.String,
        "held_out_by": pl.String,
        "seed": pl.Int32,
        "fold": pl.Int32,
        "score": pl.Float64,
    }
)
#: Columns that identify a comparison of rankers, a run in it, and an evaluation, which a later one
#: replaces.
_SCOPE: Final = ("collection", "split", "held_out_by")
_RUN: Final = (*_SCOPE, "ranker", "tuned", "name", "settings", "blocks", "rows")
_KEY: Final = (*_RUN, "version")
#: Errors of damaged files; a panic of polars is no `Exception`.
_DAMAGED: Final = (OSError, ValueError, PolarsError, PanicException)


def run_of(
    model: Model,
    recipe: Recipe,
    rounds: int,
    name: str,
    tuned: bool,
    rows: int | None,
    seeds: int = 1,
) -> dict[str, Any]:
    """Return what identifies a run among those of one ranker, by column of `SCHEMA`.

    ``settings`` are the rounds, the seeds and the parameters that are not defaults; ``blocks`` are
    the tier, code and user's files of the columns.
    """
    defaults = params_of(model.name, model.kind)
    settings = [counted(rounds, "round"), counted(seeds, "seed")]
    for parameter, value in model.params.items():
        if value != defaults.get(parameter):
            shown = f"{value:.3g}" if isinstance(value, float) else value
            settings.append(f"{parameter}={shown}")
    files = [file.name for file in recipe.settings.block_files]
    return {
        "name": name or None,
        "tuned": tuned,
        "settings": ", ".join(settings),
        "blocks": " + ".join([f"{recipe.settings.tier} {recipe.columns_version}", *files]),
        "rows": rows,
    }


def results_table(
    rankings: Mapping[tuple[str, int | None], Mapping[str, Mapping[str, float]]],
    scope: tuple[str, str, str | None],
    run: Mapping[str, Any] | None = None,
    seconds: Mapping[str, float] | float | None = None,
) -> pl.DataFrame:
    """Return ``{graph: {metric: value}}`` by ranker and seed as a table of `SCHEMA`.

    ``scope`` are the collection, split and held_out_by; ``run`` (`run_of`) and ``seconds`` are
    those of the first ranker.
    """
    shared: dict[str, Any] = dict(zip(_SCOPE, scope, strict=True))
    shared |= {"version": xlarank.__version__, "time": datetime.now(UTC)}
    rows = []
    first = next(iter(rankings), None)
    for key, metrics in rankings.items():
        ranker, seed = key
        of_ranker = shared | {"ranker": ranker, "seed": seed}
        if first is not None and ranker == first[0]:
            of_ranker |= run or {}
        for graph, values in metrics.items():
            of_graph = of_ranker | {"graph": graph, "family": program_family(graph)}
            if key == first:
                of_graph["seconds"] = seconds[graph] if isinstance(seconds, Mapping) else seconds
            rows += [{**of_graph, "metric": metric, "value": values[metric]} for metric in values]
    return pl.DataFrame(rows, SCHEMA)


def write_results(workspace: Workspace, *tables: pl.DataFrame) -> None:
    """Add evaluations to the workspace in place of earlier ones of the same `_KEY`."""
    table = pl.concat(tables)
    if len(table):
        before = SCHEMA.to_frame()
        with suppress(WorkspaceError):  # a damaged table is replaced
            before = read_results(workspace)
        _replace_rows(workspace.results(), before, table, _KEY)


def _replace_rows(
    path: Path, before: pl.DataFrame, table: pl.DataFrame, key: Sequence[str]
) -> None:
    """Write the rows of ``before`` whose ``key`` is not in the table, then the table."""
    kept = before.join(
        table.select(key).unique(), on=key, how="anti", nulls_equal=True, maintain_order="left"
    )
    with atomic_write(path) as partial:
        write_parquet(partial, pl.concat([kept, table]))


def read_results(workspace: Workspace) -> pl.DataFrame:
    """Return all evaluations, none without a file; raises `WorkspaceError` for a damaged file."""
    path = workspace.results()
    if not path.exists():
        return SCHEMA.to_frame()
    try:
        table = pl.read_parquet(read_bytes(path))
        added = SCHEMA.to_frame().drop(table.columns, strict=False).columns
        return table.with_columns(pl.lit(None).alias(name) for name in added).cast(SCHEMA)
    except _DAMAGED as error:
        got = f"{path} cannot be read ({reason_of(error)})"
        raise WorkspaceError(got, do="remove it and evaluate again") from error


def prediction_table(
    graph: GraphRows,
    scores: Floats,
    split: str,
    held_out_by: str | None = None,
    fold: int | None = None,
    first_seed: int = 0,
) -> pl.DataFrame:
    """Return ``(seeds, rows)`` scores as a table, with the first of identical configurations."""
    first = graph.ids[np.unique(graph.group, return_index=True)[1]]
    seeds = np.repeat(first_seed + np.arange(len(scores)), len(first))
    return pl.select(
        graph=pl.lit(graph.name),
        configuration=pl.Series(np.tile(first, len(scores))),
        split=pl.lit(split),
        held_out_by=pl.lit(held_out_by),
        seed=pl.Series(seeds),
        fold=pl.lit(fold),
        score=pl.Series(scores.ravel()),
    ).cast(PREDICTIONS)


def write_predictions(
    workspace: Workspace, collection: Collection, name: str, tables: list[pl.DataFrame]
) -> None:
    """Write predictions in place of earlier ones with the same split and ``held_out_by``."""
    path = workspace.predictions(collection, name)
    table = pl.concat(tables)
    before = table.clear()
    with suppress(*_DAMAGED):  # missing or damaged
        before = pl.read_parquet(read_bytes(path)).cast(PREDICTIONS)
    _replace_rows(path, before, table, ("split", "held_out_by"))


def leaderboard(results: pl.DataFrame, metric: str = "score") -> pl.DataFrame:
    """Return runs and rules of each collection, split and unit held out, best first, by their
    latest evaluation.

    Runs of a ranker differ in name, settings, blocks or rows (`run_of`). ``difference`` is the mean
    difference to the first ranker on graphs scored by both, with standard error.
    """
    key = [*_RUN]
    means = results.filter(pl.col("metric") == metric, pl.col("seed").is_null())
    means = means.filter(pl.col("time") == pl.col("time").max().over(key))
    seconds = pl.col("seconds")
    standard_error = pl.col("value").std() / pl.len().sqrt()
    total = pl.when(seconds.count() > 0).then(seconds.sum())
    rows = means.group_by(key).agg(
        graphs=pl.len(),
        mean=pl.col("value").mean(),
        standard_error=standard_error,
        seconds=pl.when(pl.col("held_out_by").first().is_null())
        .then(total)
        .otherwise(seconds.max()),
        version=pl.col("version").first(),
        time=pl.col("time").first(),
    )
    higher_is_better = not metric.startswith("slowdown")
    order = [*_SCOPE, "mean", *_RUN[len(_SCOPE) :]]
    rows = rows.sort(
        order,
        descending=[column == "mean" and higher_is_better for column in order],
        nulls_last=True,
    )
    first = rows.unique(_SCOPE, keep="first", maintain_order=True)
    best = means.join(first, on=key, nulls_equal=True, how="semi").select(
        *_SCOPE, "graph", best="value"
    )
    gap = pl.col("value") - pl.col("best")
    paired = means.join(best, on=[*_SCOPE, "graph"], nulls_equal=True).with_columns(gap)
    differences = paired.group_by(key).agg(
        difference=pl.col("value").mean(), difference_error=standard_error
    )
    board = rows.join(differences, on=key, nulls_equal=True, how="left", maintain_order="left")
    last = ("seconds", "version", "time")
    return board.select(pl.exclude(last), *last)


_REQUIRED: Final = ("graph", "configuration", "score")
#: Columns read from a score file.
_READ: Final = pl.Schema(
    {
        "graph": pl.String,
        "configuration": pl.Int64,
        "score": pl.Float64,
        "collection": pl.String,
        "split": pl.String,
        "held_out_by": pl.String,
        "seed": pl.String,
    }
)


@dataclass(frozen=True)
class ScoreFiles:
    """Scores of configurations, lower is faster, from parquet or CSV files with `_REQUIRED`
    columns.

    The optional columns ``collection`` and ``split`` select entries; scores of several seeds are
    averaged. If a file has out-of-fold scores (``held_out_by``) and others, only train uses the
    former, by family if possible.

    Each table has the columns of `_READ` that the file has, and ``row``, the number of the entry
    from 1.
    """

    names: list[str]
    tables: list[pl.DataFrame]

    @classmethod
    def read(cls, paths: Sequence[Path], split: str) -> ScoreFiles:
        """Read files; raises `SubmissionError` for unreadable files."""
        return cls(list(map(str, paths)), [_read(path, split) for path in paths])

    @property
    def name(self) -> str:
        return " and ".join(self.names)

    @cached_property
    # Filtering for each graph is quadratic.
    def _by_graph(self) -> list[dict[tuple[Any, ...], pl.DataFrame]]:
        return [table.partition_by("graph", as_dict=True) for table in self.tables]

    def score(self, collection: Collection, graph: GraphRows) -> Floats | None:
        """Return mean ranks, ``(1, rows)``, or None; raises `SubmissionError`."""
        ranks = []
        for file, graphs in zip(self.names, self._by_graph, strict=True):
            entries = graphs.get((graph.name,), _READ.to_frame())
            if "collection" in entries.columns:
                entries = entries.filter(pl.col("collection") == str(collection))
            if len(entries):
                ranks.append(mean_rank(_row_scores(file, entries, graph)))
        return np.mean(ranks, axis=0)[None] if ranks else None

    def require_known_graphs(
        self, workspace: Workspace, collections: Sequence[Collection], split: str
    ) -> None:
        """Raise `SubmissionError` for the first row whose graph is unknown or ambiguous."""
        collections_of: dict[str, list[str]] = {}
        for collection in collections:
            manifest = read_manifest(workspace, collection, split)
            for name in manifest.graphs if manifest else ():
                collections_of.setdefault(name, []).append(str(collection))
        for file, table in zip(self.names, self.tables, strict=True):
            if "collection" in table.columns:
                table = table.filter(pl.col("collection").is_in(list(map(str, collections))))
            firsts = table.unique("graph", keep="first", maintain_order=True)
            for graph, row in firsts.select("graph", "row").iter_rows():
                got = f"row {row} of {file} scores {graph!r}"
                if graph not in collections_of:
                    expected = f"{split} graphs of {', '.join(map(str, collections))}"
                    raise SubmissionError(got, expected=expected)
                if len(collections_of[graph]) > 1 and "collection" not in table.columns:
                    expected = f"a column collection: {' or '.join(collections_of[graph])}"
                    raise SubmissionError(got, expected=expected, do="add it, or pass `collection`")


def _read(path: Path, split: str) -> pl.DataFrame:
    try:
        content = read_bytes(path)
        if path.suffix.lower() == ".csv":
            # as text: numeric names keep their leading zeros
            table = pl.read_csv(content, infer_schema=False)
        else:
            table = pl.read_parquet(content)
        if missing := [name for name in _REQUIRED if name not in table.columns]:
            raise ValueError(f"it has no column {missing[0]}")
        columns = pl.Schema({name: kind for name, kind in _READ.items() if name in table.columns})
        for name in ("configuration", "score"):
            if not (table.schema[name].is_numeric() or table.schema[name] in (pl.String, pl.Null)):
                raise ValueError(f"its column {name} is of type {table.schema[name]}")
        columns["configuration"] = pl.Float64()
        table = table.select(*columns).cast(columns)
        table = table.with_row_index("row", 1)
    except _DAMAGED as error:
        expected = "parquet or csv with the columns graph, configuration, score"
        got = f"{path} cannot be read ({reason_of(error)})"
        raise SubmissionError(got, expected=expected) from error
    whole = table["configuration"].cast(pl.Int64, strict=False)
    is_whole = whole.eq_missing(table["configuration"])
    _require(table, is_whole, path, "has the configuration {configuration:g}", "a whole number")
    table = table.with_columns(whole)
    if "split" in table.columns:
        table = table.filter(pl.col("split") == split)
    if "held_out_by" in table.columns:
        # in order of preference; scores that are not out of fold come first, but last on train
        ranks = {FAMILY: 0, KIND: 1, None: 3 if split == "train" else -1}
        order = pl.col("held_out_by").replace_strict(ranks, default=2, return_dtype=pl.Int8)
        first = order.min().over("collection") if "collection" in columns else order.min()
        table = table.filter(order == first)
    has_score = pl.col("score").is_finite() & pl.all_horizontal(pl.col(_REQUIRED).is_not_null())
    problem = "gives configuration {configuration} of {graph} no score"
    _require(table, has_score, path, problem, "a finite number in each row")
    return table


def _require(
    table: pl.DataFrame, valid: pl.Series | pl.Expr, file: Path | str, problem: str, expected: str
) -> None:
    """Raise `SubmissionError` for the first row not ``valid``; ``problem`` formats its values."""
    for row in table.filter(~valid).head(1).iter_rows(named=True):
        got = f"row {row['row']} of {file} {problem.format(**row)}"
        raise SubmissionError(got, expected=expected)


def _row_scores(file: str, table: pl.DataFrame, graph: GraphRows) -> Floats:
    """Return the mean score of each distinct configuration, ``(rows,)``; each seed scores all."""
    if "seed" in table.columns:
        seeds = table.partition_by("seed", include_key=False, as_dict=True)
        names = [file if len(seeds) == 1 else f"seed {seed} of {file}" for (seed,) in seeds]
        named = zip(names, seeds.values(), strict=True)
        return np.average([_row_scores(name, of_seed, graph) for name, of_seed in named], axis=0)
    problem = "scores configuration {configuration} of {graph}"
    is_first = pl.col("configuration").is_first_distinct()
    once = "each configuration once, or once for each seed"
    _require(table, is_first, file, f"{problem} again", once)
    configurations = table["configuration"].to_numpy()
    is_known = pl.Series(np.isin(configurations, graph.ids))
    _require(table, is_known, file, problem, f"configurations 0 to {graph.ids[-1]}")
    row_of = graph.group[np.searchsorted(graph.ids, configurations)]
    counts = np.bincount(row_of, minlength=len(graph))
    if not counts.all():
        lacking = graph.ids[np.flatnonzero(counts[graph.group] == 0)[0]]
        got = f"{file} has no score of configuration {lacking} of {graph.name}"
        raise SubmissionError(got, expected="one of it, or of a configuration identical to it")
    return np.bincount(row_of, table["score"].to_numpy(), len(graph)) / counts
