"""RankNet's pairwise loss on sampled pairs, for all graphs at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from xlarank.models.objectives.ties import faster_by_sign

Floats = NDArray[np.float64]

#: Least hessian of a row of weight 1. Where every sampled pair is a tie or long decided there is no curvature
#: left, and a Newton step would divide by nothing.
HESSIAN_FLOOR: Final = 1e-3


@dataclass(frozen=True, eq=False)
class RankNetLoss:
    """Mean over sampled pairs of log(1 + exp(relevance of the slower - relevance of the faster)).

    RankNet: Burges et al. 2005, *Learning to Rank using Gradient Descent*, with certain targets. Every pair of
    a graph counts the same, which is what Kendall's tau counts. A tie teaches nothing.

    Attributes:
        cost: ``(rows,)`` lower is faster.
        indptr: ``(graphs + 1,)`` row boundaries.
        weight: ``(rows,)`` constant within a graph.
        pairs: partners drawn for each row and round; a row meets as many again as a partner of others.
        tie_tolerance: costs that differ by at most this share of the smaller one are a tie.
    """

    cost: Floats
    indptr: NDArray[np.int64]
    weight: Floats
    pairs: int
    tie_tolerance: float

    def partners(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """``(rows,)`` another row of the same graph for each, drawn evenly; itself in a graph of one row."""
        sizes = np.diff(self.indptr)
        start, others = np.repeat(self.indptr[:-1], sizes), np.repeat(sizes - 1, sizes)
        drawn: NDArray[np.int64] = (rng.random(len(self.cost)) * others).astype(np.int64)
        drawn += start
        drawn += (drawn >= np.arange(len(drawn))) & (others > 0)  # jump over the row itself
        return drawn

    def gradients(self, relevance: Floats, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Gradient and hessian, ``(rows,)`` each, of freshly drawn pairs at the relevances, higher is faster.

        A pair adds -p to the gradient of the faster row, p to the slower one's and p (1 - p) to both hessians,
        p = 1 / (1 + exp(relevance of the faster - that of the slower)). Sums are divided by ``pairs`` and
        weighted; the hessian (its diagonal) has a floor.
        """
        gradient, hessian = np.zeros(len(self.cost)), np.zeros(len(self.cost))
        for _ in range(self.pairs):
            other = self.partners(rng)
            sign = faster_by_sign(self.cost, self.cost[other], self.tie_tolerance)
            wrong = expit(sign * (relevance[other] - relevance))
            pull, curve = -sign * wrong, np.abs(sign) * wrong * (1 - wrong)
            gradient += pull - np.bincount(other, pull, len(other))
            hessian += curve + np.bincount(other, curve, len(other))
        floor = HESSIAN_FLOOR * self.weight
        return gradient * self.weight / self.pairs, np.maximum(hessian * self.weight / self.pairs, floor)
