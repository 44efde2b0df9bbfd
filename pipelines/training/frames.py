"""Rows in frames, as `xlarank.load_rows` returns them, with any further columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from xlarank.data.collection import Collection
from xlarank.data.errors import ModelError
from xlarank.features.rows import KEYS, GraphRows
from xlarank.models.arrays import Indices
from xlarank.models.card import FAMILY, KERNEL_FAMILY
from xlarank.models.training_data import TrainingData
from xlarank.models.validation.folds import MOST_FOLDS, Fold, FoldPlan, family_folds

if TYPE_CHECKING:
    import polars as pl

_FOLDS: Final = ("fold", "held_out")
_EXPECTED: Final = "rows as xlarank.load_rows returns them"


def is_frame(value: object) -> bool:
    """Return whether a value is a frame of polars or pandas."""
    return type(value).__name__ == "DataFrame" and hasattr(value, "columns")


@dataclass(frozen=True, eq=False)
class RowFrame:
    """Rows of one collection by graph.

    Attributes:
        table: all rows. Columns that are neither keys nor folds are features, in their order.
        positions: positions in ``table`` of the rows of each graph.
        graphs: rows of each graph; each is one configuration.
    """

    collection: Collection
    table: pl.DataFrame
    positions: list[Indices]
    graphs: list[GraphRows]

    @classmethod
    def of(cls, frame: Any) -> RowFrame:
        """Read a frame of polars or pandas; raises `ModelError` for missing columns, values that
        are no numbers, and rows of several collections.
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
        features = [name for name in table.columns if name not in (*KEYS, *_FOLDS)]
        for name in features:
            kind = table.schema[name]
            if not (kind.is_numeric() or kind == pl.Boolean):
                got = f"the column {name} of the frame is of type {kind}"
                raise ModelError(got, expected="numbers", do="drop or encode it")
        if "fold" in table.columns:  # a float in pandas
            table = table.with_columns(pl.col("fold").cast(pl.Int32))
        by_graph = table.with_row_index("position").partition_by("graph", maintain_order=True)
        positions = [part["position"].to_numpy().astype(np.intp) for part in by_graph]
        graphs = [_graph_rows(part, features) for part in by_graph]
        return cls(Collection.parse(collections[0]), table, positions, graphs)

    def plan(self, data: TrainingData) -> tuple[TrainingData, FoldPlan]:
        """Return the graphs that have a fold and their folds; folds by family without any."""
        if not {*_FOLDS} <= {*self.table.columns} or self.table["fold"].is_null().all():
            return data, FoldPlan.of(data)
        table = self.table.unique("graph", maintain_order=True).drop_nulls("held_out")
        held_out = dict(table.select("graph", "held_out").iter_rows())
        data = data.take([group for group, name in enumerate(data.names) if name in held_out])
        fold_of = dict(table.select("graph", "fold").iter_rows())
        folds = []
        for number in range(1 + table["fold"].drop_nulls().to_numpy().max()):
            scored = [group for group, name in enumerate(data.names) if fold_of[name] == number]
            held = [group for group, name in enumerate(data.names) if number in held_out[name]]
            folds.append(Fold(scored, held))
        by_family = folds == family_folds(data.families, MOST_FOLDS)
        by = FAMILY if by_family or self.collection.kind == "layout" else KERNEL_FAMILY
        return data, FoldPlan(by, folds)


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
