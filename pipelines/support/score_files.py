"""Scores of configurations from any ranker, in files or frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import polars as pl
from polars.exceptions import PanicException, PolarsError

from xlarank.data.collection import Collection
from xlarank.data.errors import XlarankError
from xlarank.data.files import read_bytes
from xlarank.features.rows import GraphRows
from xlarank.models.arrays import Floats
from xlarank.pipelines.training.frames import Frame, polars_frame

#: A frame, or a parquet or CSV file.
ScoresLike: TypeAlias = "str | Path | Frame"
_REQUIRED: Final = ("graph", "configuration", "score")
#: Columns that are read; the last two are optional.
_SCHEMA: Final = pl.Schema(
    {
        "graph": pl.String,
        "configuration": pl.Int64,
        "score": pl.Float64,
        "collection": pl.String,
        "split": pl.String,
    }
)
#: Errors of damaged files; a panic of polars is no `Exception`.
_DAMAGED: Final = (OSError, ValueError, TypeError, PolarsError, PanicException)


@dataclass(frozen=True)
class Scores:
    """Scores of configurations, lower is faster.

    Attributes:
        name: name of the file or the frame in messages.
        table: the columns of `_SCHEMA` that it has, and ``row``, the number of the entry from 1.
    """

    name: str
    table: pl.DataFrame

    @classmethod
    def read(cls, source: ScoresLike | None, split: str) -> Scores | None:
        """Read the entries of a split, None without a source; raises `XlarankError`."""
        if source is None:
            return None
        name = str(source) if isinstance(source, str | Path) else "the frame of scores"
        return cls(name, _table(source, name, split))

    @cached_property
    def _by_graph(self) -> dict[tuple[Any, ...], pl.DataFrame]:
        # filtering the table for each graph is quadratic
        return self.table.partition_by("graph", as_dict=True)

    def score(self, collection: Collection, graph: GraphRows) -> Floats | None:
        """Return the scores, ``(rows,)``, or None if there is none; raises `XlarankError`."""
        entries = self._by_graph.get((graph.name,), _SCHEMA.to_frame())
        if "collection" in entries.columns:
            entries = entries.filter(pl.col("collection") == str(collection))
        return _row_scores(self.name, entries, graph) if len(entries) else None

    def require_known_graphs(self, graphs: Mapping[str, Sequence[str]], split: str) -> None:
        """Raise `XlarankError` for a row whose graph is not one of those by collection."""
        collections_of: dict[str, list[str]] = {}
        for collection, names in graphs.items():
            for graph in names:
                collections_of.setdefault(graph, []).append(collection)
        table = self.table
        if "collection" in table.columns:
            table = table.filter(pl.col("collection").is_in([*graphs]))
        firsts = table.unique("graph", keep="first", maintain_order=True)
        for graph, row in firsts.select("graph", "row").iter_rows():
            got = f"row {row} of {self.name} scores {graph!r}"
            if graph not in collections_of:
                raise XlarankError(got, expected=f"{split} graphs of {', '.join(graphs)}")
            if len(collections_of[graph]) > 1 and "collection" not in table.columns:
                expected = f"a column collection: {' or '.join(collections_of[graph])}"
                raise XlarankError(got, expected=expected, do="add it, or pass `collection`")


def _table(source: Any, name: str, split: str) -> pl.DataFrame:
    """Return the entries of a file or frame that are of the split."""
    try:
        table = _frame(source)
        if missing := [column for column in _REQUIRED if column not in table.columns]:
            raise ValueError(f"it has no column {missing[0]}")
        columns = pl.Schema({key: kind for key, kind in _SCHEMA.items() if key in table.columns})
        columns["configuration"] = pl.Float64()
        table = table.select(*columns).cast(columns).with_row_index("row", 1)
    except _DAMAGED as error:
        expected = "parquet or csv with the columns graph, configuration, score"
        got = f"{name} cannot be read ({error})"
        raise XlarankError(got, expected=expected) from error
    if "split" in table.columns:
        table = table.filter(pl.col("split") == split)
    whole = pl.col("configuration").cast(pl.Int64, strict=False)
    is_whole = whole == pl.col("configuration")
    valid = pl.all_horizontal(pl.col("graph").is_not_null(), is_whole, pl.col("score").is_finite())
    problem = "gives configuration {configuration} of {graph} the score {score}"
    expected = "whole configurations and finite scores"
    _require(table, valid.fill_null(False), name, problem, expected)
    return table.with_columns(whole)


def _frame(source: Any) -> pl.DataFrame:
    if not isinstance(source, str | Path):
        return polars_frame(source)
    path = Path(source)
    content = read_bytes(path)
    if path.suffix.lower() == ".csv":
        return pl.read_csv(content, infer_schema=False)  # numeric names keep their leading zeros
    return pl.read_parquet(content)


def _require(
    table: pl.DataFrame, valid: pl.Series | pl.Expr, name: str, problem: str, expected: str
) -> None:
    """Raise `XlarankError` for the first row not ``valid``; ``problem`` formats its values."""
    for row in table.filter(~valid).head(1).iter_rows(named=True):
        got = f"row {row['row']} of {name} {problem.format(**row)}"
        raise XlarankError(got, expected=expected)


def _row_scores(name: str, table: pl.DataFrame, graph: GraphRows) -> Floats:
    """Return the score of each distinct configuration, ``(rows,)``."""
    problem = "scores configuration {configuration} of {graph}"
    is_first = pl.col("configuration").is_first_distinct()
    _require(table, is_first, name, f"{problem} again", "each configuration once")
    configurations = table["configuration"].to_numpy()
    is_known = pl.Series(np.isin(configurations, graph.ids))
    _require(table, is_known, name, problem, f"configurations 0 to {graph.ids[-1]}")
    row_of = graph.group[np.searchsorted(graph.ids, configurations)]
    counts = np.bincount(row_of, minlength=len(graph))
    if not counts.all():
        lacking = graph.ids[np.flatnonzero(counts[graph.group] == 0)[0]]
        got = f"{name} has no score of configuration {lacking} of {graph.name}"
        raise XlarankError(got, expected="one of it, or of a configuration identical to it")
    return np.bincount(row_of, table["score"].to_numpy(), len(graph)) / counts
