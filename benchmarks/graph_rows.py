"""Rows of graph files, for benchmarks that need no workspace."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from xlarank.data.graph import Kind, read_graph
from xlarank.features.assemble import assemble
from xlarank.features.recipe import FeatureSettings
from xlarank.features.rows import GraphRows


def labelled_rows(files: Iterable[Path], kind: Kind) -> list[GraphRows]:
    """All columns of the labelled, rankable graphs."""
    rows = [assemble(read_graph(path, kind), FeatureSettings()) for path in files]
    return [one for one in rows if one.labelled and one.rankable]
