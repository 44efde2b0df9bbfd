"""Rows of graph files, for benchmarks that need no workspace, and how true predicted times are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import kendalltau

from xlarank.data.graph import Kind, read_graph
from xlarank.features.assemble import assemble
from xlarank.features.recipe import FeatureSettings
from xlarank.features.rows import GraphRows


def labelled_rows(files: Iterable[Path], kind: Kind) -> list[GraphRows]:
    """All columns of the labelled, rankable graphs."""
    rows = [assemble(read_graph(path, kind), FeatureSettings()) for path in files]
    return [one for one in rows if one.labelled and one.rankable]


def time_errors(predictions: Sequence[NDArray[Any]], times: Sequence[NDArray[Any]]) -> tuple[float, float]:
    """Median relative error of predicted times of each kernel's tiles, and tau over all tiles of all kernels."""
    predicted, actual = np.concatenate(predictions), np.concatenate(times)
    return float(np.median(np.abs(predicted / actual - 1))), float(kendalltau(predicted, actual).statistic)
