"""Tables in the workspace: all evaluations, `results.parquet`, and the predictions of each ranker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

import xlarank
from xlarank.data.collection import Collection
from xlarank.data.errors import WorkspaceError
from xlarank.data.files import atomic_write, read_bytes, write_parquet
from xlarank.data.graph import program_family
from xlarank.data.workspace import Workspace
from xlarank.features.rows import GraphRows
from xlarank.models.arrays import Floats
from xlarank.models.validation.folds import FoldPlan
from xlarank.pipelines.training.training_sets import StoredTrainingSet

#: A row for each metric of a graph. ``held_out_by`` is null unless the scores are out of fold, ``tuned`` is null
#: for rules and files of scores, ``seed`` for the mean over seeds. ``seconds`` is the time to rank the graph;
#: for scores out of fold, the time to train and score all folds.
SCHEMA: Final = pl.Schema([
    ("collection", pl.String), ("split", pl.String), ("held_out_by", pl.String), ("ranker", pl.String),
    ("tuned", pl.Boolean), ("seed", pl.Int32), ("graph", pl.String), ("family", pl.String), ("metric", pl.String),
    ("value", pl.Float64), ("seconds", pl.Float64), ("version", pl.String), ("time", pl.Datetime("us", "UTC")),
])  # fmt: skip
#: Columns of a prediction file; null ``held_out_by`` and ``fold`` mean scores that are not out of fold.
PREDICTIONS: Final = pl.Schema({
    "graph": pl.String, "configuration": pl.Int32, "split": pl.String, "held_out_by": pl.String, "seed": pl.Int32,
    "fold": pl.Int32, "score": pl.Float64,
})  # fmt: skip
#: Columns within which rankers are compared, and those of one evaluation: another one replaces its rows.
_SCOPE: Final = ("collection", "split", "held_out_by")
_KEY: Final = (*_SCOPE, "ranker", "tuned", "version")


def results_table(
    metrics: Mapping[str, Mapping[str, float]], ranker: str, *, scope: tuple[str, str, str | None],
    tuned: bool | None = None, seed: int | None = None, seconds: Mapping[str, float] | float | None = None,
) -> pl.DataFrame:  # fmt: skip
    """Return ``{graph: {metric: value}}`` as rows of `SCHEMA`; ``scope`` is collection, split and held_out_by."""
    time = datetime.now(UTC)
    rows = [
        (*scope, ranker, tuned, seed, graph, program_family(graph), metric, value,
         seconds.get(graph) if isinstance(seconds, Mapping) else seconds, xlarank.__version__, time)
        for graph, values in metrics.items()
        for metric, value in values.items()
    ]  # fmt: skip
    return pl.DataFrame(rows, SCHEMA, orient="row")


def write_results(workspace: Workspace, tables: Sequence[pl.DataFrame]) -> None:
    """Add evaluations to the workspace in place of earlier ones of the same `_KEY`."""
    if tables:
        before = SCHEMA.to_frame()
        with suppress(WorkspaceError):  # a damaged table is replaced
            before = read_results(workspace)
        _replace_rows(workspace.results(), before, pl.concat(tables), _KEY)


def _replace_rows(path: Path, before: pl.DataFrame, table: pl.DataFrame, key: Sequence[str]) -> None:
    """Write the rows of ``before`` whose ``key`` is not in the table, and then the table."""
    kept = before.join(table.select(key).unique(), on=key, how="anti", nulls_equal=True, maintain_order="left")
    with atomic_write(path) as partial:
        write_parquet(partial, pl.concat([kept, table]))


def read_results(workspace: Workspace) -> pl.DataFrame:
    """Return all evaluations, none if there is no file; raises `WorkspaceError` for a damaged one."""
    path = workspace.results()
    if not path.exists():
        return SCHEMA.to_frame()
    try:
        return pl.read_parquet(read_bytes(path)).cast(SCHEMA)
    except (OSError, pl.exceptions.PolarsError) as error:
        reason = str(error).splitlines()[0]
        raise WorkspaceError(f"{path} cannot be read ({reason})", do="remove it and evaluate again") from error


def prediction_table(
    graph: GraphRows, scores: Floats, split: str, held_out_by: str | None = None, fold: int | None = None,
    first_seed: int = 0,
) -> pl.DataFrame:  # fmt: skip
    """Return the table of the ``(seeds, rows)`` scores of a graph, with the first of identical configurations."""
    first = graph.ids[np.unique(graph.group, return_index=True)[1]]
    seeds = np.repeat(first_seed + np.arange(len(scores)), len(first))
    return pl.select(
        graph=pl.lit(graph.name), configuration=pl.Series(np.tile(first, len(scores))), split=pl.lit(split),
        held_out_by=pl.lit(held_out_by), seed=pl.Series(seeds), fold=pl.lit(fold), score=pl.Series(scores.ravel()),
    ).cast(PREDICTIONS)  # fmt: skip


def write_predictions(
    workspace: Workspace, collection: Collection, ranker: str, tables: Sequence[pl.DataFrame]
) -> None:
    """Write predictions of a ranker, replacing its earlier ones with the same split and ``held_out_by``."""
    path, table = workspace.predictions(collection, ranker), pl.concat(tables)
    before = table.clear()
    with suppress(OSError, pl.exceptions.PolarsError):  # missing or damaged
        before = pl.read_parquet(read_bytes(path)).cast(PREDICTIONS)
    _replace_rows(path, before, table, ("split", "held_out_by"))


def write_out_of_fold(
    workspace: Workspace, training: StoredTrainingSet, plan: FoldPlan, ranker: str, scores: Mapping[str, Floats],
    seed: int,
) -> None:  # fmt: skip
    """Write out-of-fold ``{graph: (rows,) scores}`` of training graphs; without scores, write nothing."""
    split_of = {name: split for split, names in training.splits.items() for name in names}
    fold_of = {group: number for number, fold in enumerate(plan.folds) for group in fold.scored}
    tables = [
        prediction_table(graph, scores[graph.name][None], split_of[graph.name], plan.by, fold_of[group], seed)
        for group, graph in enumerate(training.data.parts)
        if graph.name in scores
    ]
    if tables:
        write_predictions(workspace, training.collection, ranker, tables)


def leaderboard(results: pl.DataFrame, metric: str = "score") -> pl.DataFrame:
    """Return rankers and rules of each collection, best first, each by its latest evaluation.

    ``difference`` is the mean difference to the first over the graphs that both scored, with its standard error.
    """
    key = [*_SCOPE, "ranker", "tuned"]
    means = results.filter(pl.col("metric") == metric, pl.col("seed").is_null())
    means = means.filter(pl.col("time") == pl.col("time").max().over(key))
    seconds, standard_error = pl.col("seconds"), pl.col("value").std() / pl.len().sqrt()
    total = pl.when(seconds.count() > 0).then(seconds.sum())
    rows = means.group_by(key).agg(
        graphs=pl.len(), mean=pl.col("value").mean(), standard_error=standard_error,
        seconds=pl.when(pl.col("held_out_by").first().is_null()).then(total).otherwise(seconds.max()),
        version=pl.col("version").first(), time=pl.col("time").first(),
    )  # fmt: skip
    higher_is_better = not metric.startswith("slowdown")
    order = [*_SCOPE, "mean", "ranker", "tuned"]
    rows = rows.sort(order, descending=[column == "mean" and higher_is_better for column in order], nulls_last=True)
    first = rows.unique(_SCOPE, keep="first", maintain_order=True)
    best = means.join(first, on=key, nulls_equal=True, how="semi").select(*_SCOPE, "graph", best="value")
    paired = means.join(best, on=[*_SCOPE, "graph"], nulls_equal=True).with_columns(
        pl.col("value") - pl.col("best")
    )
    differences = paired.group_by(key).agg(difference=pl.col("value").mean(), difference_error=standard_error)
    board = rows.join(differences, on=key, nulls_equal=True, how="left", maintain_order="left")
    return board.select(*key, "graphs", "mean", "standard_error", "difference", "difference_error", "seconds",
                        "version", "time")  # fmt: skip
