"""What tells one set of rows from another."""

from __future__ import annotations

import hashlib

import numpy as np

from xlarank.features.rows import GraphRows
from xlarank.models.ranking_data import RankingData


def values_digest(part: GraphRows) -> str:
    """SHA-256 of all values of a graph's rows."""
    known = getattr(part.config_values, "digest", None)
    if isinstance(known, str):  # rows that stay on disk know theirs
        return known
    digest = hashlib.sha256(part.graph_values.tobytes())
    digest.update(np.ascontiguousarray(part.config_values).data)
    return digest.hexdigest()


def row_digest(data: RankingData) -> str:
    """SHA-256 of the names, columns and values of all rows; labels do not count."""
    digest = hashlib.sha256("\0".join(data.columns).encode())
    for part in data.parts:
        digest.update(f"\1{part.name}\0{len(part)}\0{values_digest(part)}".encode())
    return digest.hexdigest()
