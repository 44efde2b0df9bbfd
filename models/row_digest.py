"""What tells one set of rows from another."""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from xlarank.models.disk_values import DiskValues
from xlarank.models.ranking_data import RankingData


def values_digest(values: NDArray[np.float32]) -> str:
    """SHA-256 of the values of a graph's configuration columns."""
    if isinstance(values, DiskValues):
        return values.digest
    return hashlib.sha256(np.ascontiguousarray(values).data).hexdigest()


def row_digest(data: RankingData) -> str:
    """SHA-256 of the names, columns and values of all rows; labels do not count."""
    digest = hashlib.sha256("\0".join(data.columns).encode())
    for part in data.parts:
        digest.update(f"\1{part.name}\0{len(part)}\0{values_digest(part.config_values)}\0".encode())
        digest.update(part.graph_values.tobytes())
    return digest.hexdigest()
