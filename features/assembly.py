"""Computation of the rows of a graph by blocks of columns."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from xlarank.data.errors import GraphFileError, ParameterError
from xlarank.data.graph import Graph, GraphLike, LayoutGraph, TileGraph, as_graph
from xlarank.data.hardware import WORDS, require_hardware
from xlarank.features.block import Block
from xlarank.features.catalogue import blocks_of, columns_in
from xlarank.features.layout.aggregation import aggregate
from xlarank.features.layout.hardware import copy_hardware
from xlarank.features.layout.layout_context import LayoutContext
from xlarank.features.listwise import RANK_SOURCES
from xlarank.features.rows import GraphRows, rows_table
from xlarank.features.tile.tile_context import TileContext, kernel_families

if TYPE_CHECKING:
    import polars as pl


def compute_features(graph: GraphLike, *, target: str | None = None) -> pl.DataFrame:
    """Compute the rows of a graph or of an npz file, one for each *distinct* configuration.

    The columns are as in `xlarank.load_rows`, without the folds; ``collection`` and ``split`` are
    null. The copies of layouts are priced for the hardware ``target`` (`xlarank.data.hardware`), by
    default the graph's own. Raises `GraphFileError` for a broken file, and `ParameterError`
    for layouts for unknown hardware.

    Examples:
        >>> import xlarank
        >>> from xlarank.data.collection import SAMPLE
        >>> rows = xlarank.compute_features(SAMPLE / "npz/tile/cpu/valid/bmm_tb__a.npz")
        >>> rows.select("graph", "configuration", "repeats", "runtime_ns").row(0)
        ('bmm_tb__a', 0, 1, 569144)
    """
    graph = as_graph(graph)
    hardware = graph.target if target is None else require_hardware(target)
    if graph.kind == "layout" and not hardware:
        got = f"{graph.name} does not say its hardware"
        raise ParameterError(got, expected=WORDS, do="pass target=")
    return rows_table([assemble(graph, hardware)])


def assemble(
    graph: Graph, hardware: str | None = None, only: Collection[str] | None = None
) -> GraphRows:
    """Compute the columns of each *distinct* configuration.

    Copies of layouts are priced for ``hardware`` (`xlarank.data.hardware`); without it, or for the
    dataset's, their columns are 0. With ``only``, blocks that have none of these columns are left
    out, unless ranks or standard scores are needed.
    """
    blocks = blocks_of(graph.kind)
    if only is not None:
        needed = [block for block in blocks if not block.columns.keys().isdisjoint(only)]
        # ranks and standard scores read columns of other blocks
        if not any(RANK_SOURCES.keys() & block.columns.keys() for block in needed):
            blocks = needed
    graph_names = columns_in(blocks, "graph")
    names = columns_in(blocks, "configuration")
    graph_values = np.zeros(len(graph_names), np.float32)
    rows = np.zeros((len(names), len(graph.first)), np.float32).T
    families: tuple[str, ...] = ()
    normalizer = np.ones(graph.configs, np.int64)
    context: LayoutContext | TileContext
    if isinstance(graph, LayoutGraph):
        context = LayoutContext(graph, hardware=copy_hardware(hardware or ""))
    else:
        context = TileContext(cast(TileGraph, graph))
        families = kernel_families(context)
        normalizer = context.graph.normalizers
    with np.errstate(over="ignore"):  # infinite values are refused
        if isinstance(context, LayoutContext):
            batched = [block for block in blocks if block.batched]
            functions = [(block, block.function(context)) for block in batched]
            aggregate(context, functions, [rows[:, columns_of(block, names)] for block in batched])
        for block in blocks:
            if block.scope == "graph":
                columns = graph_values[columns_of(block, graph_names)]
            else:
                columns = rows[:, columns_of(block, names)]
            if not block.batched:
                columns[...] = block.require_shape(block.function(context), columns.shape)
            require_finite(graph.name, block, columns)
            context.columns |= dict(zip(block.columns, columns.T, strict=True))
    return GraphRows(
        graph.name,
        [*graph_names, *names],
        graph_values,
        rows,
        graph.group,
        np.arange(graph.configs),
        graph.runtime,
        normalizer,
        families,
    )


def columns_of(block: Block, names: Sequence[str]) -> slice:
    """Return the slice of ``names`` that holds the columns of a block."""
    first = names.index(next(iter(block.columns)))
    return slice(first, first + len(block.columns))


def require_finite(graph: str, block: Block, values: NDArray[np.float32]) -> None:
    """Raise `GraphFileError` unless all values of a block are finite."""
    finite = np.isfinite(values)
    if finite.all():
        return
    column = int(np.nonzero(~finite)[-1].min())
    name = [*block.columns][column]
    value = values[..., column][~finite[..., column]].flat[0]
    got = f"{graph}.npz: its column {name} holds {value}"
    raise GraphFileError(got, expected="smaller sizes in the file", do="mend or remove it")
