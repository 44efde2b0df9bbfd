"""Which costs count as equal: measurement noise cannot tell them apart."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from xlarank.data.errors import ModelError

Floats = NDArray[np.float64]


def faster_by_sign(cost: Floats, other: Floats, tolerance: float) -> Floats:
    """1 where ``cost`` is faster than ``other``, -1 where it is slower, 0 for a tie; shapes broadcast.

    A pair whose costs differ by at most the tolerance, a share of the smaller one, is a tie. Nothing chains: each
    pair is asked by itself. For losses on pairs; labels need `merge_ties`.

    >>> faster_by_sign(np.array([100.0, 100.0, 100.0]), np.array([101.0, 120.0, 90.0]), 0.01).tolist()
    [0.0, 1.0, -1.0]
    """
    ahead = other - cost
    tied = np.abs(ahead) <= tolerance * np.minimum(other, cost)
    return np.where(tied, 0.0, np.sign(ahead))


def merge_ties(cost: Floats, tolerance: float) -> Floats:
    """Costs of one group, ``(rows,)``, with those that measurement noise cannot tell apart made equal.

    Each cost is rounded down to smallest * (1 + tolerance)^k, k = 0, 1, 2, ... Two costs that become equal
    differ by at most the tolerance, however many lie between them: linking neighbours instead would chain a
    densely measured graph into one. The price is that two near costs at either side of a step stay different,
    by one label. 0 returns the costs as they are. Raises `ModelError` for a tolerance that is no share.

    >>> merge_ties(np.array([100.0, 109.0, 111.0, 130.0]), 0.1).round().tolist()
    [100.0, 100.0, 110.0, 121.0]
    """
    if not 0 <= tolerance < np.inf:
        raise ModelError(f"tie_tolerance is {tolerance}", expected="a share of the cost, such as 0.01; 0 for none")
    if tolerance == 0:
        return cost
    steps = np.floor(np.log(cost / cost.min()) / np.log1p(tolerance))
    merged: Floats = cost.min() * np.exp(steps * np.log1p(tolerance))
    return merged
