"""All columns of one graph, for notebooks."""

from __future__ import annotations

from pathlib import Path

from xlarank.data.errors import XlarankError
from xlarank.data.graph import Graph, read_graph
from xlarank.features.assemble import assemble
from xlarank.features.block import Tier
from xlarank.features.recipe import FeatureSettings
from xlarank.features.rows import GraphRows


def compute_features(graph: Graph | str | Path, *, tier: str = "full", candidates: bool = True) -> GraphRows:
    """Compute the columns of a graph or of an npz file, a row for each *distinct* configuration.

    ``tier`` "fast" leaves out the dearer columns, ``candidates`` False those that look at all configurations of the
    graph. Raises `GraphFileError` for the file and `XlarankError` for another tier.

    >>> import xlarank
    >>> from xlarank.data.root import SAMPLE
    >>> table = xlarank.compute_features(SAMPLE / "npz" / "tile" / "cpu" / "valid" / "bmm_tb__a.npz").to_polars()
    >>> table["kernel__is_dot__flag"].head(2).to_list()
    [1.0, 1.0]
    """
    if tier not in (known := [each.value for each in Tier]):
        raise XlarankError(f"tier is {tier!r}", expected=" or ".join(known))
    read = graph if isinstance(graph, Graph) else read_graph(Path(graph))
    return assemble(read, FeatureSettings(Tier(tier), candidates))
