"""Computation of all columns of a graph."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from xlarank.data.config_table import group_codes
from xlarank.data.graph import Graph, LayoutGraph, TileGraph, graph_kind, read_graph, structure_hash
from xlarank.features.block import Scope
from xlarank.features.candidates import placed_columns
from xlarank.features.catalogue import INSTANCE_BLOCKS, naming_lines
from xlarank.features.instances.graph_instances import Instances, LazyInstances
from xlarank.features.instances.pair_blocks import InstanceContext
from xlarank.features.layout.aggregation import LayoutBlock, columns_of, compute_together
from xlarank.features.layout.layout_context import LayoutContext
from xlarank.features.recipe import FeatureSettings
from xlarank.features.rows import GraphRows, rows_table
from xlarank.features.tile.tile_context import TileContext, kernel_kinds

if TYPE_CHECKING:  # imported on first use
    import polars as pl


def compute_features(
    graph: Graph | str | Path, *, tier: str = "full", candidates: bool = True, blocks: Sequence[str | Path] = ()
) -> pl.DataFrame:
    """Compute the rows of a graph or of an npz file, one for each *distinct* configuration.

    The columns are those of `xlarank.load_rows` without the folds; ``collection`` and ``split`` are null. The
    "fast" tier omits expensive columns; ``candidates=False`` omits those computed from all configurations of the
    graph; ``blocks`` are files that define your own columns and are executed. Raises `GraphFileError` for a broken
    file, `BlockError` for a failing block and `XlarankError` for an unknown tier.

    Examples:
        >>> import xlarank
        >>> from xlarank.data.collection import SAMPLE
        >>> rows = xlarank.compute_features(SAMPLE / "npz" / "tile" / "cpu" / "valid" / "bmm_tb__a.npz")
        >>> rows.select("graph", "configuration", "repeats", "runtime_ns", "kernel__is_dot__flag").row(0)
        ('bmm_tb__a', 0, 1, 569144, 1.0)
    """
    settings = FeatureSettings.of(tier, candidates, blocks)
    return rows_table([assemble(graph if isinstance(graph, Graph) else read_graph(Path(graph)), settings)])


def assemble(
    graph: Graph, settings: FeatureSettings | None = None, only: Collection[str] | None = None
) -> GraphRows:
    """Compute the columns of each *distinct* configuration of a graph; raises `BlockError` if a user's block fails.

    With ``only``, blocks that have none of these columns are left out.
    """
    settings = settings or FeatureSettings()
    chosen = settings.blocks(graph_kind(graph))
    if only is not None:
        needed = [block for block in chosen if not block.columns.keys().isdisjoint(only)]
        # ranks and scores of other columns need all blocks
        chosen = chosen if any(placed_columns().keys() & block.columns.keys() for block in needed) else needed
    with naming_lines(graph.name, settings.block_files):
        names = [name for block in chosen if block.scope is Scope.CONFIG for name in block.columns]
        context: LayoutContext | TileContext
        if isinstance(graph, LayoutGraph):
            context = LayoutContext(graph, settings.tiling)
            rows = compute_together(context, chosen, names)
            extra: dict[str, Any] = {
                "instances": LazyInstances(partial(instance_table, context, settings.candidates))
            }
        else:
            context = TileContext(cast(TileGraph, graph), settings.tiling)
            rows = np.zeros((len(names), context.configs), np.float32).T
            extra = {"kinds": kernel_kinds(context)}
        for block in [block for block in chosen if block.scope is Scope.CONFIG]:
            columns = rows[:, columns_of(block, names)]
            if not isinstance(block, LayoutBlock):
                columns[...] = block.require_shape(block.compute(context), *columns.shape)
            context.columns |= dict(zip(block.columns, columns.T, strict=True))
        constants: dict[str, np.float32] = {}
        for block in [block for block in chosen if block.scope is Scope.GRAPH]:
            values = block.require_shape(block.compute(context), len(block.columns))
            constants |= zip(block.columns, np.asarray(values, np.float32), strict=True)
        normalizer = graph.normalizers if isinstance(graph, TileGraph) else np.ones(graph.configs, np.int64)
        return GraphRows(
            graph.name, [*constants, *names], np.array(list(constants.values()), np.float32), rows,
            graph.duplicates.group, np.arange(graph.configs), graph.runtime, normalizer, **extra,
        )  # fmt: skip


def instance_table(context: LayoutContext, candidates: bool = True) -> Instances:
    """Return the instances of the distinct configurations; without ``candidates``, no transductive columns."""
    table, instances = context.table, InstanceContext(context)
    blocks = [block for block in INSTANCE_BLOCKS if candidates or not block.transductive]
    parts = [block.compute(instances).astype(np.float32) for block in blocks]
    values = np.ascontiguousarray(np.concatenate(parts, axis=1))
    same = group_codes(values.view(np.int32))
    # codes relative to each node's first row fit a small type
    codes = np.empty(table.codes.shape, np.min_scalar_type(int(np.diff(table.start).max(initial=1)) - 1))
    row_instance, pair_instance = np.full(len(table.rows), -1), np.full(instances.total, -1)
    row_instance[instances.rows] = same.group[: len(instances.rows)]
    pair_instance[instances.taken] = same.group[len(instances.rows) :]
    graph, node = context.graph, context.graph.configurable
    return Instances(
        columns=[name for block in blocks for name in block.columns], values=values[same.first],
        codes=np.subtract(table.codes, table.start[:-1], out=codes, casting="unsafe"),
        node=node.astype(np.int32), opcode=graph.opcode[node].astype(np.int16), first=table.start[:-1],
        rows=table.rows, row_instance=row_instance.astype(np.int32),
        request=context.requested.by_row(context).astype(np.int32), pairs=instances.pairs.astype(np.int32),
        pair_first=instances.first.astype(np.int32), pair_width=instances.width.astype(np.int32),
        pair_instance=pair_instance.astype(np.int32), sizes=context.dims[node].astype(np.int32),
        structure=np.array([structure_hash(graph.opcode, graph.edges)], np.uint64),
    )  # fmt: skip
