"""RankNet's loss on all pairs of a few configurations of a graph, and Newton's step on it for leaves of a tree.

Inside, a relevance is higher for what is faster, as in `xlarank.models.objectives.ranknet_loss`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from xlarank.models.objectives.ties import faster_by_sign

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class PairTerms:
    """Derivatives of the mean over pairs of log(1 + exp(relevance of the slower - relevance of the faster)).

    With p = 1 / (1 + exp(relevance of the faster - that of the slower)) a pair adds -p to the gradient of the
    faster, p to the slower one's, and p (1 - p) to its weight; all is divided by the number of pairs. A tie (see
    `faster_by_sign`) is no pair. The matrix of second
    derivatives is the Laplacian of the weights: their row sums on the diagonal, minus the weights.

    Attributes:
        gradient: ``(configs,)``.
        weight: ``(configs, configs)`` symmetric, 0 on the diagonal.
    """

    gradient: Floats
    weight: Floats

    @classmethod
    def of(cls, relevance: Floats, cost: Floats, tie_tolerance: float) -> PairTerms:
        sign = faster_by_sign(cost[:, None], cost[None, :], tie_tolerance)
        pairs = max(1.0, np.count_nonzero(sign) / 2)
        wrong = expit(sign * (relevance[None, :] - relevance[:, None]))
        gradient = -(sign * wrong).sum(axis=1) / pairs
        return cls(gradient, np.abs(sign) * wrong * (1 - wrong) / pairs)

    def scaled(self, weight: float) -> PairTerms:
        """The derivatives of ``weight`` times the loss."""
        return PairTerms(self.gradient * weight, self.weight * weight)

    @property
    def curvature(self) -> Floats:
        """``(configs,)`` the diagonal of the second derivatives."""
        total: Floats = self.weight.sum(axis=1)
        return total


def newton_step(terms: Sequence[PairTerms], held: Sequence[Floats], ridge: float) -> Floats:
    """``(leaves,)`` values that minimise the second-order loss, the mean over graphs plus ridge / 2 |values|^2.

    Where S, ``held[g]`` ``(configs, leaves)``, says how many instances of each leaf a configuration of graph g
    holds, its relevances change by S v: v solves (mean of S' L S + ridge I) v = - mean of S' gradient, L the
    Laplacian of the pairs' weights. LightGBM's own leaf values take instances of one configuration as if each
    moved it alone.
    """
    leaves = held[0].shape[1]
    slope, curve = np.zeros(leaves), np.zeros((leaves, leaves))
    for term, counts in zip(terms, held, strict=True):
        slope += counts.T @ term.gradient
        curve += counts.T @ (term.curvature[:, None] * counts - term.weight @ counts)
    step = np.linalg.solve(curve / len(terms) + ridge * np.eye(leaves), -slope / len(terms))
    return step.astype(np.float64)
