"""What the difference between two shares of votes is made of."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from xlarank.features.attribution import Walk, walk_steps
from xlarank.models.rankers.pair_vote import PairVote

Floats = NDArray[np.float64]


def vote_columns(ranker: PairVote, rows: NDArray[np.float32], now: int, then: int) -> dict[str, float]:
    """Contributions of columns to the share of votes against row ``now`` minus that against ``then``.

    The two meet the same voters, and a voter's chance differs between them by the difference of the two margins
    times the slope of the logistic function between them. Margins are sums of exact contributions of columns, a
    column's own and that of its difference, so these, times the slopes and averaged over voters, add up exactly.

    Args:
        rows: ``(rows, columns)`` all distinct configurations of the graph, as the trees choose from them.
    """
    names = ranker._tree_columns()
    two, voters = rows[[now, then]], ranker.voters(rows)
    ahead = _change(ranker.margin_parts(two, voters))
    behind = _change(ranker.margin_parts(voters, two).swapaxes(0, 1))
    change = -(ahead - behind) / (2 * len(voters))
    columns: dict[str, float] = {}
    for index in np.flatnonzero(change):
        columns[names[index]] = float(change[index])
    return columns


def _change(parts: Floats) -> Floats:
    """``(columns,)`` what columns add to the sum over voters of the chances of the first minus the second's.

    Args:
        parts: ``(2, voters, columns + 1)`` of the margins.
    """
    margin = parts.sum(axis=2)
    first, second = expit(margin)
    apart = margin[0] - margin[1]
    near = np.abs(apart) < 1e-9
    slope = np.where(near, first * (1 - first), (first - second) / np.where(near, 1.0, apart))
    found: Floats = slope @ (parts[0] - parts[1])[:, :-1]
    return found


def vote_steps(ranker: PairVote, rows: NDArray[np.float32], walk: Walk) -> dict[int, float]:
    """What each node brings on the way from one configuration to another, before the voters of their graph."""
    steps = walk_steps(ranker.shares(walk.matrix, ranker.voters(rows))[0])
    return {int(node): float(step) for node, step in zip(walk.nodes, steps, strict=True)}
