"""The columns of one huge layout graph by several workers, each for some of its configurations.

What a chunk computes is the one pass over the configurations, the part that grows with them; a column is the same
bits as in one piece, because chunks end where that pass ends a batch. Ranks within the graph and the like need all
configurations and are computed where the chunks are joined. Every worker reads the file for itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from xlarank.data.errors import GraphFileError
from xlarank.data.graph import LayoutGraph, read_graph
from xlarank.data.sizes import graph_size

# Stored rows and models are tied to a hash of this code, so its parts are used as they are.
from xlarank.features import assemble as whole
from xlarank.features.instances.instances import LazyInstances
from xlarank.features.instances.table import instance_table
from xlarank.features.layout import block as one_pass
from xlarank.features.layout.block import LayoutBlock, compute_together
from xlarank.features.layout.context import LayoutContext
from xlarank.features.rows import GraphRows
from xlarank.pipelines.building.graph_job import GraphJob

#: Configurations x configurable nodes below which reading the file several times costs more than it saves.
WORTH_CHUNKS: Final = 1 << 24


def chunks_of(job: GraphJob, share: float) -> int:
    """Into how many chunks to divide a graph that is ``share`` times what each worker has to do."""
    if share <= 1 or job.file.collection.kind != "layout":
        return 1
    try:
        size = graph_size(job.file.path, "layout")
    except GraphFileError:  # whoever reads it says so
        return 1
    return int(np.ceil(share)) if size.configs * size.configurable >= WORTH_CHUNKS else 1


def chunk_columns(job: GraphJob, number: int, chunks: int) -> NDArray[np.float32]:
    """``(configurations of the chunk, configuration columns)``; 0 in columns that need all configurations."""
    context = _context(job)
    blocks, names = whole._with_columns(job.settings.blocks("layout"))
    start, stop = _bounds(context, chunks)[number : number + 2]
    found = np.zeros((len(names), stop - start), np.float32).T
    summed = [(block, at) for block, at in blocks if isinstance(block, LayoutBlock)]
    compute_together(context, summed, found, context.table.codes[start:stop])
    return found


def joined_rows(job: GraphJob, parts: Sequence[NDArray[np.float32]]) -> GraphRows:
    """What `xlarank.features.assemble.assemble` gives of the graph, from the columns of all its chunks."""
    context = _context(job)
    blocks, names = whole._with_columns(job.settings.blocks("layout"))
    rows = np.zeros((len(names), context.table.configs), np.float32).T
    bounds = _bounds(context, len(parts))
    for start, stop, part in zip(bounds, bounds[1:], parts, strict=False):
        rows[start:stop] = part
    for block, at in blocks:
        if isinstance(block, LayoutBlock):
            context.columns |= {name: rows[:, at + number] for number, name in enumerate(block.columns)}
    whole._one_by_one([(block, at) for block, at in blocks if not isinstance(block, LayoutBlock)], context, rows)
    instances = LazyInstances(lambda: instance_table(context, candidates=job.settings.candidates))
    constants = whole._constants(job.settings.blocks("layout"), context)
    return GraphRows.of(context.graph, constants, names, rows, instances)


def _context(job: GraphJob) -> LayoutContext:
    graph = read_graph(job.file.path, job.file.collection.kind)
    assert isinstance(graph, LayoutGraph)
    return LayoutContext(graph, job.settings.tiling)


def _bounds(context: LayoutContext, chunks: int) -> list[int]:
    """Where chunks begin and the last one ends: on the batches of the pass, whose products have these very rows."""
    low, high = one_pass._CONFIGS
    step = min(high, max(low, one_pass._CODES // context.configurable_nodes))
    configs = context.table.configs
    batches = -(-configs // step)
    return [min(configs, step * (batches * number // chunks)) for number in range(chunks + 1)]
