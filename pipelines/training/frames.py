"""Rows in frames, as `xlarank.load_rows` returns them, with any further columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from xlarank.data.collection import Collection
from xlarank.data.errors import ModelError
from xlarank.data.graph import Kind
from xlarank.features.rows import KEYS, GraphRows
from xlarank.models.arrays import Indices
from xlarank.models.card import FAMILY, KERNEL_FAMILY
from xlarank.models.training_data import TrainingData
from xlarank.models.validation.folds import Fold, FoldPlan

if TYPE_CHECKING:
    import polars as pl

_FOLDS: Final = ("fold", "held_out")
_EXPECTED: Final = "rows as xlarank.load_rows returns them"


def is_frame(value: object) -> bool:
    """Return whether a value is a frame of polars or pandas."""
    return type(value).__name__ == "DataFrame" and hasattr(value, "columns")


def read_frame(frame: Any) -> tuple[Collection, pl.DataFrame]:
    """Return the collection and the rows of a frame of polars or pandas; raises `ModelError` for
    missing columns, values that are no numbers, and rows of several collections.
    """
    import polars as pl

    table = frame if isinstance(frame, pl.DataFrame) else pl.DataFrame(pl.from_pandas(frame))
    for name in ("collection", "graph", "configuration", "runtime_ns", "label"):
        if name not in table.columns:
            raise ModelError(f"the frame has no column {name}", expected=_EXPECTED)
    collections = table["collection"].unique().to_list()
    if len(collections) != 1 or collections[0] is None:
        listed = ", ".join(map(str, collections)) or "no rows"
        raise ModelError(f"the frame is of {listed}", expected="rows of one collection")
    for name in _features(table):
        kind = table.schema[name]
        if not (kind.is_numeric() or kind == pl.Boolean):
            got = f"the column {name} of the frame is of type {kind}"
            raise ModelError(got, expected="numbers", do="drop or encode it")
    return Collection.parse(collections[0]), table


def _features(table: pl.DataFrame) -> list[str]:
    return [name for name in table.columns if name not in (*KEYS, *_FOLDS)]


def rows_by_graph(table: pl.DataFrame) -> Iterator[tuple[Indices, GraphRows]]:
    """Yield the positions in a frame, and the rows, of each graph; each is one configuration."""
    features = _features(table)
    for part in table.with_row_index("position").partition_by("graph", maintain_order=True):
        yield part["position"].to_numpy().astype(np.intp), _graph_rows(part, features)


def frame_folds(
    table: pl.DataFrame, data: TrainingData, kind: Kind
) -> tuple[TrainingData, FoldPlan]:
    """Return the graphs that have a fold in a frame, and their folds; all graphs and folds by
    family if none has.
    """
    import polars as pl

    if not {*_FOLDS} <= {*table.columns} or table["fold"].is_null().all():
        return data, FoldPlan.of(data)
    by_graph = table.unique("graph", maintain_order=True).drop_nulls("held_out")
    held_out = dict(by_graph.select("graph", "held_out").iter_rows())
    fold = pl.col("fold").cast(pl.Int32)  # a float in pandas
    fold_of = dict(by_graph.select("graph", fold).iter_rows())
    data = replace(data, parts=[part for part in data.parts if part.name in held_out])
    folds = []
    for number in sorted({*fold_of.values()} - {None}):
        scored = [group for group, name in enumerate(data.names) if fold_of[name] == number]
        held = [group for group, name in enumerate(data.names) if number in held_out[name]]
        folds.append(Fold(scored, held))
    by_family = kind == "layout" or folds == FoldPlan.by_family(data).folds
    return data, FoldPlan(FAMILY if by_family else KERNEL_FAMILY, folds)


def _graph_rows(part: pl.DataFrame, features: list[str]) -> GraphRows:
    """Return the rows of a graph; repeats of a configuration count once."""
    import polars as pl

    runtime = part["runtime_ns"].fill_null(0).cast(pl.Int64).to_numpy()
    label = part["label"].cast(pl.Float64).fill_null(1.0).to_numpy()
    normalizer = np.maximum(1, np.rint(runtime / label)).astype(np.int64)
    return GraphRows(
        part["graph"][0],
        features,
        np.empty(0, np.float32),
        part.select(pl.col(features).cast(pl.Float32)).to_numpy(),
        np.arange(len(part)),
        part["configuration"].cast(pl.Int64).to_numpy(),
        runtime,
        normalizer,
    )
