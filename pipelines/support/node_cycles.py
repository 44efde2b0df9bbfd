"""Cycles of the nodes of stored graphs, read from the files that the rows were made from."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from xlarank.data.collection import Collection
from xlarank.data.errors import XlarankError
from xlarank.data.graph import LayoutGraph, read_graph
from xlarank.data.hlo.compiler.attribution import node_cycles
from xlarank.data.hlo.compiler.cycle_table import read_cycles
from xlarank.data.root import find_data_root
from xlarank.features.recipe import Source
from xlarank.features.rows import GraphRows
from xlarank.features.store import Manifest
from xlarank.models.ranking_data import LazyCycles


def stored_cycles(manifest: Manifest, collection: Collection, split: str, rows: GraphRows) -> LazyCycles | None:
    """Cycles by row and configurable node, read when asked for; None for tiles, which are one operation each."""
    if collection.kind != "layout":
        return None
    return LazyCycles(partial(_cycles, manifest, collection, split, rows))


def _cycles(manifest: Manifest, collection: Collection, split: str, rows: GraphRows) -> NDArray[np.float64] | None:
    """None where the file has none, is gone, or is another one by now."""
    try:
        npz = find_data_root(Path(manifest.data_root)).npz
        path = npz.joinpath(*collection.parts, split, f"{rows.name}.npz")
        if Source.of(path) != Source(**manifest.graphs[rows.name]["source"]):
            return None
        return cycles_of_rows(path, rows)
    except (OSError, XlarankError):
        return None


def cycles_of_rows(path: Path, rows: GraphRows) -> NDArray[np.float64] | None:
    """``(rows, configurable nodes)`` cycles of a file's distinct configurations; None where it has none by node."""
    table = read_cycles(path)
    if table is None or not any(one.node >= 0 for estimate in table.estimates for one in estimate.operations):
        return None
    graph = read_graph(path, "layout")
    assert isinstance(graph, LayoutGraph)
    found = node_cycles(graph, table)
    first = np.unique(rows.group, return_index=True)[1]
    by_row: NDArray[np.float64] = found.cycles[found.program[rows.ids[first]]]
    return by_row
