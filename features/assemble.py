"""One graph to one float32 matrix."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from data.graph import Graph, Kind, LayoutGraph, TileGraph
from features.block import Block, Scope, Tier, registered
from features.layout import LayoutContext
from features.tensors import TPU, Tiling
from features.tile import TileContext


@dataclass(frozen=True)
class FeatureSettings:
    """What decides which columns there are and what they hold.

    Attributes:
        tier: ``fast`` or ``full`` (see `features.block.Tier`).
        candidates: with the transductive columns that look at the graph's candidate set.
        tiling: the hardware's tile.
    """

    tier: Tier = Tier.FULL
    candidates: bool = True
    tiling: Tiling = field(default=TPU)

    def blocks(self, kind: Kind) -> list[Block]:
        return registered(kind, self.tier, candidates=self.candidates)

    def graph_columns(self, kind: Kind) -> list[str]:
        """Names of the columns that are constant within a graph."""
        return [name for b in self.blocks(kind) if b.scope is Scope.GRAPH for name in b.columns]

    def config_columns(self, kind: Kind) -> list[str]:
        """Names of the columns that differ between configurations."""
        return [name for b in self.blocks(kind) if b.scope is Scope.CONFIG for name in b.columns]

    def code_hash(self, kind: Kind) -> str:
        """Changes whenever the same file could give other numbers: code, settings or columns."""
        names = ",".join(self.graph_columns(kind) + self.config_columns(kind))
        text = f"{_source_hash()}|{kind}|{self.tiling}|{names}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, eq=False)
class GraphFeatures:
    """Columns of one graph.

    Attributes:
        graph_columns: name -> value, constant within the graph.
        config_columns: names of the columns of ``rows``.
        rows: ``(distinct configurations, columns)`` float32.
    """

    graph_columns: dict[str, float]
    config_columns: list[str]
    rows: NDArray[np.float32]

    def matrix(self) -> NDArray[np.float32]:
        """``(distinct configurations, graph columns + configuration columns)`` float32."""
        constant = np.array(list(self.graph_columns.values()), np.float32)
        return np.concatenate([np.broadcast_to(constant, (len(self.rows), len(constant))), self.rows], axis=1)


def assemble(graph: Graph, settings: FeatureSettings | None = None) -> GraphFeatures:
    """Compute every column of the settings for each *distinct* configuration of a graph."""
    settings = settings or FeatureSettings()
    if isinstance(graph, LayoutGraph):
        kind: Kind = "layout"
        context: LayoutContext | TileContext = LayoutContext(graph, settings.tiling)
    elif isinstance(graph, TileGraph):
        kind, context = "tile", TileContext(graph, settings.tiling)
    else:
        raise TypeError(f"no features for {type(graph).__name__}")
    names = settings.config_columns(kind)
    constants: dict[str, float] = {}
    rows = np.empty((graph.duplicates.distinct, len(names)), np.float32)
    at = 0
    for block in settings.blocks(kind):
        values = block.compute(context)
        if block.scope is Scope.GRAPH:
            constants |= {name: float(np.float32(value)) for name, value in zip(block.columns, values, strict=True)}
            continue
        if values.shape != (len(rows), len(block.columns)):
            raise AssertionError(f"{type(block).__name__} gave {values.shape}")
        context.columns |= dict(zip(block.columns, values.T, strict=True))
        rows[:, at : at + len(block.columns)] = values
        at += len(block.columns)
    return GraphFeatures(constants, names, rows)


@cache
def _source_hash() -> str:
    """Hash of the source that turns a file into numbers."""
    rooms = Path(__file__).parent, Path(__file__).parent.parent / "data"
    digest = hashlib.sha256()
    for path in sorted(path for room in rooms for path in room.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes().replace(b"\r\n", b"\n"))
    return digest.hexdigest()
