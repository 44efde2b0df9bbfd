"""Rows of a graph: the columns and measurements of its distinct configurations."""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from xlarank.data.config_table import group_minimum
from xlarank.data.families import program_family
from xlarank.data.files import regular_only
from xlarank.data.graph import Kind
from xlarank.features.catalogue import columns_version
from xlarank.features.layout.hardware import copy_hardware

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class Recipe:
    """Everything but the source file that determines stored rows; others are rebuilt.

    Attributes:
        columns_version: `xlarank.features.catalogue.columns_version` of the kind.
        hardware: hardware whose copies are priced, of `xlarank.features.layout.hardware.HARDWARE`;
            None leaves their columns 0, at no cost. The columns mean the same for all hardware.
        max_configs: maximum rows per graph, drawn at random; 0 for all.
    """

    columns_version: str
    hardware: str | None
    max_configs: int

    @classmethod
    def of(cls, kind: Kind, hardware: str = "", *, max_configs: int = 0) -> Recipe:
        """Return the current recipe for a kind of graph on hardware (`xlarank.data.hardware`)."""
        priced = copy_hardware(hardware) if kind == "layout" else None
        return cls(columns_version(kind), priced, max_configs)


#: Number of bytes at the end of a file, enough for the list of the arrays of a graph.
_END: Final = 4096


@dataclass(frozen=True)
class Source:
    """Identity of the npz file that rows were made from.

    Attributes:
        end: CRC-32 of the last `_END` bytes, where a zip archive lists the CRC-32 of each array.
    """

    size: int
    end: int

    @classmethod
    def of(cls, path: Path) -> Source:
        """Return the identity of a file; raises `OSError`."""
        with open(path, "rb", opener=regular_only) as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(0, size - _END))
            return cls(size, zlib.crc32(stream.read()))


@dataclass(frozen=True, eq=False, repr=False)
class GraphRows:
    """One row for each *distinct* configuration of a graph.

    Columns that are constant within the graph are kept once, and expanded on demand by `matrix`: a
    million rows of a layout graph take 2.7 GB instead of 4.5 GB.

    Attributes:
        columns: names of the graph columns, then of the configuration columns.
        graph_values: ``(graph columns,)`` constants.
        config_values: ``(distinct, configuration columns)`` the other values of each row.
        group: ``(configs,)`` row of each configuration.
        ids: ``(configs,)`` index of each configuration in the npz file.
        runtime: ``(configs,)`` nanoseconds; 0 if not measured or withheld.
        normalizer: ``(configs,)`` divisor of each runtime; 1 for layouts.
        kernel_families: possible families of the kernel (`kernel_families` in
            `xlarank.features.tile.tile_context`); empty for layouts.
    """

    name: str
    columns: list[str]
    graph_values: NDArray[np.float32]
    config_values: NDArray[np.float32]
    group: NDArray[np.int64]
    ids: NDArray[np.int64]
    runtime: NDArray[np.int64]
    normalizer: NDArray[np.int64]
    kernel_families: tuple[str, ...] = ()

    def __len__(self) -> int:
        """Return the number of distinct configurations."""
        return len(self.config_values)

    @property
    def graph_columns(self) -> list[str]:
        return self.columns[: len(self.graph_values)]

    @property
    def config_columns(self) -> list[str]:
        return self.columns[len(self.graph_values) :]

    @property
    def labelled(self) -> bool:
        """Whether any configuration was measured."""
        return bool((self.runtime > 0).any())

    @property
    def cost(self) -> NDArray[np.float64]:
        """``(configs,)`` runtime over normalizer; lower is faster; inf if not measured."""
        return np.where(self.runtime > 0, self.runtime / self.normalizer, np.inf)

    @property
    def row_cost(self) -> NDArray[np.float64]:
        """``(distinct,)`` smallest cost of the configurations of each row."""
        return group_minimum(self.cost, self.group, len(self))

    @property
    def rankable(self) -> bool:
        """Whether there are at least two distinct configurations, of different cost if measured."""
        return is_rankable(self.row_cost)

    @property
    def unusable(self) -> str:
        """Why the graph can be neither trained on nor scored; empty if it can."""
        if not self.labelled:
            return "it has no labels"
        return "" if self.rankable else "all its configurations cost the same"

    def measured(self) -> GraphRows:
        """Return the rows that have a measured configuration."""
        is_measured = np.isfinite(self.row_cost)
        return self if is_measured.all() else self.take(np.flatnonzero(is_measured))

    def matrix(
        self, rows: NDArray[np.intp] | slice | None = None, used: NDArray[np.intp] | None = None
    ) -> NDArray[np.float32]:
        """Return ``(rows, columns)`` values: all or ``rows``, all or ``used`` (ascending)."""
        graph = self.graph_values
        config = self.config_values if rows is None else self.config_values[rows]
        if used is not None and len(used) < len(self.columns):
            width = len(graph)
            graph = graph[used[used < width]]
            config = config[:, used[used >= width] - width]
        matrix = np.empty((len(config), len(graph) + config.shape[1]), np.float32)
        matrix[:, : len(graph)] = graph
        matrix[:, len(graph) :] = config
        return matrix

    def take(self, keep: NDArray[np.integer]) -> GraphRows:
        """Return the rows ``keep``, in that order, with all their configurations."""
        number = np.full(len(self), -1)
        number[keep] = np.arange(len(keep))
        group = number[self.group]
        names = ("ids", "runtime", "normalizer")
        by_config = {name: getattr(self, name)[group >= 0] for name in names}
        values = self.config_values[keep]
        group = group[group >= 0]
        return replace(self, config_values=values, group=group, **by_config)

    def only(self, used: NDArray[np.intp]) -> GraphRows:
        """Return the rows with only the columns ``used`` (indices into ``columns``, ascending)."""
        width = len(self.graph_values)
        graph = self.graph_values[used[used < width]]
        config = self.config_values[:, used[used >= width] - width]
        columns = [self.columns[number] for number in used]
        return replace(self, columns=columns, graph_values=graph, config_values=config)


#: Columns of `rows_table` before the features.
KEYS: Final = (
    *("collection", "graph", "family", "split", "configuration"),
    *("repeats", "runtime_ns", "label"),
)


def rows_table(
    graphs: Sequence[GraphRows], collection: str | None = None, split: str | None = None
) -> pl.DataFrame:
    """Return rows of graphs with equal columns as a table: `KEYS`, then features, float32.

    ``configuration`` is the first of ``repeats`` identical configurations, ``label`` their smallest
    cost (runtime over normalizer) and ``runtime_ns`` that runtime; both are null if none was
    measured.
    """
    import polars as pl

    sizes = [len(graph) for graph in graphs]
    names = [graph.name for graph in graphs]
    group = rows_of_configurations(graphs)
    cost, ids, runtime = (
        np.concatenate([getattr(g, name) for g in graphs]) for name in ("cost", "ids", "runtime")
    )
    by_row = np.lexsort((cost, group))  # stable: the first of equal costs
    fastest = by_row[np.unique(group[by_row], return_index=True)[1]]
    graph_of_row = np.repeat(np.arange(len(graphs)), sizes)
    measured = pl.Series(np.isfinite(cost[fastest]))
    keys: dict[str, Any] = {
        "collection": pl.lit(collection, pl.String),
        "graph": pl.Series(names, dtype=pl.String).gather(graph_of_row),
        "family": pl.Series(map(program_family, names), dtype=pl.String).gather(graph_of_row),
        "split": pl.lit(split, pl.String),
        "configuration": pl.Series(ids[np.unique(group, return_index=True)[1]], dtype=pl.Int32),
        "repeats": pl.Series(np.bincount(group), dtype=pl.Int32),
        "runtime_ns": pl.when(measured).then(runtime[fastest]),
        "label": pl.when(measured).then(cost[fastest]),
    }
    if len(graphs) == 1:  # broadcast: the graph may be large
        constants = graphs[0].graph_values
        values = graphs[0].config_values.T
    else:
        by_graph = np.stack([graph.graph_values for graph in graphs], axis=1)
        constants = np.repeat(by_graph, sizes, axis=1)
        values = np.concatenate([graph.config_values.T for graph in graphs], axis=1)
    features = pl.DataFrame(dict(zip(graphs[0].config_columns, values, strict=True)))
    literals = dict(zip(graphs[0].graph_columns, map(pl.lit, constants), strict=True))
    return pl.select(eager=True, **keys).with_columns(**literals).hstack(features)


def is_rankable(row_cost: NDArray[np.float64]) -> bool:
    """Return whether there are two distinct configurations, of different cost if measured.

    >>> is_rankable(np.array([1.0, np.inf])), is_rankable(np.full(2, np.inf))
    (False, True)
    """
    measured = row_cost[np.isfinite(row_cost)]
    return bool((measured != measured[:1]).any()) if len(measured) else len(row_cost) > 1


def rows_of_configurations(graphs: Sequence[GraphRows]) -> NDArray[np.int64]:
    """Return the row of each configuration of all graphs."""
    starts = accumulate(map(len, graphs[:-1]), initial=0)
    pairs = zip(graphs, starts, strict=True)
    return np.concatenate([graph.group + start for graph, start in pairs])


def graph_generator(seed: int, name: str) -> np.random.Generator:
    """Return a random generator for a seed and a graph."""
    return np.random.default_rng([seed, zlib.crc32(name.encode())])


def sample_rows(rows: GraphRows, recipe: Recipe) -> GraphRows:
    """Return all rows, or a sample of ``max_configs``: of the measured ones if there are any."""
    limit = recipe.max_configs or len(rows)
    rows = rows.measured() if len(rows) > limit and rows.labelled else rows
    return rows if len(rows) <= limit else random_rows(rows, limit)


def random_rows(graph: GraphRows, rows: int) -> GraphRows:
    """Return random rows and the first configuration's row, the compiler's default of tiles."""
    drawn = graph_generator(0, graph.name).choice(len(graph), rows, replace=False)
    first = graph.group[graph.ids == 0]
    others = drawn[~np.isin(drawn, first)]
    return graph.take(np.sort(np.concatenate([first, others])[:rows]))
