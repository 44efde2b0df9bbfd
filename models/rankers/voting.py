"""Votes of pairs: a configuration is ranked by how many others it is judged to be faster than."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Rows = NDArray[np.float32]

#: ``(a, columns), (b, columns) -> (stages, a, b)`` the chance that each of the first is faster than each of the
#: second.
Chance = Callable[[Rows, Rows], Floats]

#: Pairs that are asked for in one call.
_BATCH: Final = 1 << 13


def vote_shares(chance: Chance, rows: Rows, voters: Rows | None = None) -> Floats:
    """``(stages, rows)`` the share of votes against each row, 0 to 1, lower is faster.

    The vote of a pair is v(a, b) = (p(a, b) + 1 - p(b, a)) / 2, p the chance that is asked for: whatever p says,
    v(a, b) + v(b, a) = 1. The share is 1 minus the mean of v over all voters; who votes on itself gives 1/2.

    Args:
        rows: ``(rows, columns)``.
        voters: ``(voters, columns)`` what each row is compared with; None: all rows, each p asked for once.
    """
    if voters is None:
        ahead, behind = _among(chance, rows)
    else:
        sides = [
            (chance(batch, voters).sum(axis=2), chance(voters, batch).sum(axis=1))
            for batch in _batches(rows, len(voters))
        ]
        ahead, behind = (np.concatenate([side[k] for side in sides], axis=1) for k in (0, 1))
    shares: Floats = 0.5 - (ahead - behind) / (2 * len(rows if voters is None else voters))
    return shares


def _among(chance: Chance, rows: Rows) -> tuple[Floats, Floats]:
    """``(stages, rows)`` each: the sums over all rows of p(row, other), and of p(other, row)."""
    ahead: list[Floats] = []
    behind: Floats = np.zeros((1, len(rows)))
    for batch in _batches(rows, len(rows)):
        found = chance(batch, rows)  # says of a pair what the first's ahead and the second's behind ask for
        ahead.append(found.sum(axis=2))
        behind = behind + found.sum(axis=1)
    return np.concatenate(ahead, axis=1), behind


def _batches(rows: Rows, opponents: int) -> Iterator[Rows]:
    step = max(1, _BATCH // max(1, opponents))
    for at in range(0, len(rows), step):
        yield rows[at : at + step]
