"""Files of scores of configurations, from any ranker, to use or blend in place of a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

from xlarank.data.collection import Collection
from xlarank.data.errors import ScoreFileError, counted
from xlarank.data.files import read_bytes
from xlarank.data.workspace import Workspace
from xlarank.features.rows import GraphRows
from xlarank.features.store import read_manifest
from xlarank.models.arrays import Floats
from xlarank.models.objectives import mean_rank
from xlarank.models.trained import Scores
from xlarank.models.validation.folds import FAMILY, KIND

_REQUIRED: Final = ("graph", "configuration", "score")
#: Columns read from a score file.
_READ: Final = pl.Schema({
    "graph": pl.String, "configuration": pl.Int64, "score": pl.Float64, "collection": pl.String, "split": pl.String,
    "held_out_by": pl.String, "seed": pl.String,
})  # fmt: skip


@dataclass(frozen=True)
class ScoreFiles:
    """Scores of configurations, lower is faster, from parquet or CSV files with `_REQUIRED` columns.

    The optional columns ``collection`` and ``split`` select rows; rows of a configuration that differ in ``seed``
    are averaged. If a file has both out-of-fold scores (``held_out_by``) and others, the train split uses the
    former, by family if possible, and other splits use the latter.

    Attributes:
        weights: weight of each file's ranks in the blend.
        tables: a table per file: ``graph, configuration, score, row`` and, if the file has it, ``collection``.
    """

    names: list[str]
    weights: list[float]
    tables: list[pl.DataFrame]

    @classmethod
    def read(cls, paths: Sequence[Path], split: str, weights: Sequence[float] = ()) -> ScoreFiles:
        """Read files; raises `ScoreFileError` for unreadable files and invalid ``weights``."""
        used = list(weights) or [1.0] * len(paths)
        if len(used) != len(paths) or not all(np.isfinite(used)) or min(used) <= 0:
            listed = ", ".join(f"{weight:g}" for weight in used)
            expected = f"a weight above 0 for each of {counted(len(paths), 'file')}"
            raise ScoreFileError(f"`weights` are {listed}", expected=expected)
        return cls(list(map(str, paths)), used, [_read(path, split) for path in paths])

    @property
    def name(self) -> str:
        return " and ".join(self.names)

    @cached_property
    def _by_graph(self) -> list[dict[tuple[Any, ...], pl.DataFrame]]:
        """Rows by graph, for each file; filtering a table for every graph would take quadratic time."""
        return [table.partition_by("graph", as_dict=True) for table in self.tables]

    def of(self, collection: Collection, graph: GraphRows) -> Scores | None:
        """Return the weighted mean ranks of a graph's rows over the files that score it; None if none does.

        Raises `ScoreFileError` for the first invalid row.
        """
        ranks, weights = [], []
        for file, weight, graphs in zip(self.names, self.weights, self._by_graph, strict=True):
            of_graph = graphs.get((graph.name,), _READ.to_frame())
            if "collection" in of_graph.columns:
                of_graph = of_graph.filter(pl.col("collection") == str(collection))
            if len(of_graph):
                ranks.append(mean_rank(_row_scores(file, of_graph, graph)))
                weights.append(weight)
        return Scores(np.average(ranks, axis=0, weights=weights)[None]) if ranks else None


def require_known_graphs(
    files: ScoreFiles, workspace: Workspace, collections: Sequence[Collection], split: str
) -> None:
    """Raise `ScoreFileError` for the first row whose graph is unknown, or in several collections."""
    collections_of: dict[str, list[str]] = {}
    for collection in collections:
        manifest = read_manifest(workspace, collection, split)
        for name in manifest.graphs if manifest else ():
            collections_of.setdefault(name, []).append(str(collection))
    for file, table in zip(files.names, files.tables, strict=True):
        if "collection" in table.columns:
            table = table.filter(pl.col("collection").is_in([str(collection) for collection in collections]))
        firsts = table.group_by("graph", maintain_order=True).agg(pl.col("row").first())
        for graph, row in firsts.iter_rows():
            got = f"row {row} of {file} scores {graph!r}"
            if graph not in collections_of:
                raise ScoreFileError(got, expected=f"{split} graphs of {', '.join(map(str, collections))}")
            if len(collections_of[graph]) > 1 and "collection" not in table.columns:
                expected = f"a column collection: {' or '.join(collections_of[graph])}"
                raise ScoreFileError(got, expected=expected, do="add it, or pass `collection`")


def _read(path: Path, split: str) -> pl.DataFrame:
    try:
        content = read_bytes(path)
        # read as strings, so that numeric names keep their leading zeros
        names = {name: kind for name, kind in _READ.items() if kind == pl.String}
        if path.suffix.lower() == ".csv":
            table = pl.read_csv(content, infer_schema_length=None, schema_overrides=names)
        else:
            table = pl.read_parquet(content)
        if missing := [name for name in _REQUIRED if name not in table.columns]:
            raise ValueError(f"it has no column {missing[0]}")
        columns = pl.Schema({name: kind for name, kind in _READ.items() if name in table.columns})
        table = table.select(*columns).cast(columns).with_row_index("row", 1)
    except (OSError, ValueError, pl.exceptions.PolarsError) as error:
        reason = str(error).splitlines()[0]
        expected = "parquet or csv with the columns graph, configuration, score"
        raise ScoreFileError(f"{path} cannot be read ({reason})", expected=expected) from error
    if "split" in table.columns:
        table = table.filter(pl.col("split") == split)
    if "held_out_by" in table.columns:
        # by family, then by kind, then others; on train, scores of models trained on the graph come last
        order = pl.col("held_out_by").replace_strict(
            {FAMILY: 0, KIND: 1, None: 3 if split == "train" else -1}, default=2, return_dtype=pl.Int8
        )
        table = table.filter(order == (order.min().over("collection") if "collection" in columns else order.min()))
    wrong = table.filter(pl.col("score").is_finite().not_() | pl.any_horizontal(pl.col(_REQUIRED).is_null()))
    if len(wrong):
        row = wrong.row(0, named=True)
        got = f"row {row['row']} of {path} gives configuration {row['configuration']} of {row['graph']} no score"
        raise ScoreFileError(got, expected="a finite number in each row")
    return table


def _row_scores(file: str, table: pl.DataFrame, graph: GraphRows) -> Floats:
    """Return the mean score of each distinct configuration, ``(rows,)``."""
    keys = ["configuration", *({"seed"} & {*table.columns})]
    for row in table.filter(~pl.struct(keys).is_first_distinct()).head(1).iter_rows(named=True):
        got = f"row {row['row']} of {file} scores configuration {row['configuration']} of {graph.name} again"
        raise ScoreFileError(got, expected="each configuration once, or once for each seed")
    position = np.searchsorted(graph.ids, table["configuration"].to_numpy())
    inside = graph.ids[np.minimum(position, len(graph.ids) - 1)] == table["configuration"].to_numpy()
    for row in table.filter(~pl.Series(inside)).head(1).iter_rows(named=True):
        got = f"row {row['row']} of {file} scores configuration {row['configuration']} of {graph.name}"
        raise ScoreFileError(got, expected=f"configurations 0 to {graph.ids[-1]}")
    row_of = graph.group[position]
    counts = np.bincount(row_of, minlength=len(graph))
    if not counts.all():
        lacking = graph.ids[np.flatnonzero(counts[graph.group] == 0)[0]]
        got = f"{file} has no score of configuration {lacking} of {graph.name}"
        raise ScoreFileError(got, expected="one of it, or of a configuration identical to it")
    scores: Floats = np.bincount(row_of, table["score"].to_numpy(), len(graph)) / counts
    return scores
