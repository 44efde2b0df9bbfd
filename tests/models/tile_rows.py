"""Rows of kernels made by hand: output bounds of one dimension, and what the columns of a tile need beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tests.models.rows import graph_rows
from xlarank.data.schema import MAX_RANK, TILE_SLOTS
from xlarank.features.rows import GraphRows

#: As stored: log2(1 + bound), 0 for a whole dimension.
BOUNDS = [f"bounds__{slot}_{i}__log" for slot in TILE_SLOTS for i in range(MAX_RANK)]
_OUTPUT = BOUNDS.index("bounds__output_0__log")


def kernel(
    name: str,
    logs: Sequence[float],
    costs: Sequence[float],
    *,
    kinds: Sequence[str] = ("dot",),
    copies: object = None,
) -> GraphRows:
    """A kernel whose row ``i`` has log2(1 + output bound 0) of ``logs[i]`` and costs ``costs[i]``."""
    features = np.zeros((len(logs), len(BOUNDS)))
    features[:, _OUTPUT] = logs
    rows = graph_rows(name, costs, features=features, columns=["size", *BOUNDS], copies=copies)  # type: ignore[arg-type]
    return replace(rows, kinds=tuple(kinds))
