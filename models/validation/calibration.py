"""Certainty of rankings, calibrated on program or kernel families unseen by the rankers.

The distance ``t`` of two configurations is the difference of their mean scores in standard
deviations over seeds.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from xlarank.data.errors import counted
from xlarank.data.files import from_json, read_text, write_json
from xlarank.models.arrays import Flags, Floats, Integers
from xlarank.models.card import FOLDS_OF

#: Name of the file, beside the model's card.
CALIBRATION: Final = "calibration.json"
#: Target accuracy of certain pairs.
CERTAIN: Final = 0.95
#: Target probability that the best is among the first k.
AMONG_FIRST: Final = 0.9
#: Minimum number of graphs for `AMONG_FIRST`.
FEWEST: Final = 9
#: Slowdown up to which a configuration counts as nearly the best.
NEARLY: Final = 0.01
#: Maximum number of pairs sampled from a graph.
_PAIRS: Final = 20_000


@dataclass(frozen=True, eq=False)
class ScoredGraph:
    """Out-of-fold scores of a graph, ``(seeds, rows)``, lower is faster, and costs, ``(rows,)``."""

    family: str
    scores: Floats
    cost: Floats


@dataclass(frozen=True)
class Calibration:
    """Certainty of rankings, estimated from out-of-fold scores.

    Attributes:
        threshold: minimum ``t`` of certain pairs; infinite if no threshold reaches `CERTAIN`.
        right: share of concordant pairs among certain ones, by thresholds from other families.
        right_low, right_high: 95 % bootstrap interval over graphs.
        first, first_nearly: top share of the distinct configurations that contains the best, or one
            at most `NEARLY` slower, with probability `AMONG_FIRST`; NaN for fewer than `FEWEST`
            graphs.
        by: unit of ``families``, a key of `FOLDS_OF`.
    """

    threshold: float
    certain: float
    right: float
    right_low: float
    right_high: float
    first: float
    first_nearly: float
    graphs: int
    families: int
    seeds: int
    by: str = "family"

    @classmethod
    def of(cls, graphs: Sequence[ScoredGraph], by: str = "family") -> Calibration:
        """Calibrate on graphs of at least two families, scored with at least two seeds."""
        rng = np.random.default_rng(0)
        families = np.array([graph.family for graph in graphs])
        pairs = [_pairs(graph, rng) for graph in graphs]
        threshold = _threshold(pairs)
        # Shares of a graph's pairs: certain; certain and correct.
        pair_shares = np.zeros((len(graphs), 2))
        for family in np.unique(families):
            other_threshold = _threshold(
                [pairs[graph] for graph in np.flatnonzero(families != family)]
            )
            for graph in np.flatnonzero(families == family):
                t, correct = pairs[graph]
                is_certain = t >= other_threshold
                pair_shares[graph] = np.array([is_certain.sum(), correct[is_certain].sum()]) / max(
                    1, len(t)
                )
        certain = float(np.mean([(t >= threshold).mean() for t, _ in pairs if len(t)]))
        right = _certain_accuracy(pair_shares * np.isfinite(threshold), rng)
        counts = len(graphs), len(np.unique(families)), len(graphs[0].scores)
        return cls(
            threshold, certain, *right, _first(graphs, 0.0), _first(graphs, NEARLY), *counts, by
        )

    def as_json(self) -> dict[str, Any]:
        """Return JSON values; None for infinite or NaN."""
        values = asdict(self).items()
        return {
            name: None if isinstance(x, float) and not np.isfinite(x) else x for name, x in values
        }

    def save(self, folder: Path, model: str) -> None:
        """Write the calibration beside the card of the model with the fingerprint ``model``."""
        write_json(folder / CALIBRATION, {"model": model, **self.as_json()})

    @classmethod
    def load(cls, folder: Path, model: str) -> Calibration | None:
        """Return the calibration saved for this model; None if it is missing or invalid."""
        try:
            value = json.loads(read_text(folder / CALIBRATION))
            if value.pop("model") != model:
                return None
            value.pop("bins", None)  # written by earlier versions
            null_fields = [
                n for n in ("threshold", "right", "right_low", "right_high") if value[n] is None
            ]
            if value["graphs"] < FEWEST:  # earlier versions wrote 1
                null_fields += ["first", "first_nearly"]
            calibration = from_json(cls, value | dict.fromkeys(null_fields, 0.0))
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return None
        threshold, *shares, graphs, families, seeds, by = astuple(calibration)
        shares_valid = all(0 <= share <= 1 for share in shares)
        if by not in FOLDS_OF or not (
            shares_valid and threshold >= 0 and min(graphs, families, seeds) >= 1
        ):
            return None
        missing: dict[str, Any] = {
            name: np.inf if name == "threshold" else np.nan for name in null_fields
        }
        return replace(calibration, **missing)


class Trust:
    """Certainty of the ranking of a graph.

    Attributes:
        certain: share of certain pairs among those of distinct configurations.
        first, first_nearly: number of top distinct configurations that contain the best, or one at
            most `NEARLY` slower, with probability `AMONG_FIRST`; None if unknown.
        ahead_of: ``(configs,)`` number of distinct configurations certainly slower than each.
    """

    def __init__(self, calibration: Calibration, per_seed: Floats, group: Integers) -> None:
        """Compute from scores, ``(seeds, distinct)``, and ``(configs,)`` indices of the distinct
        configurations.
        """
        mean = per_seed.mean(axis=0)
        distinct = per_seed.shape[1]
        slower = np.zeros(distinct, np.int64)
        if np.isfinite(calibration.threshold):
            margin = calibration.threshold * disagreement(per_seed)
            slower = distinct - np.searchsorted(np.sort(mean), mean + margin)
        self.calibration = calibration
        self.ahead_of = slower[group]
        self.certain = float(slower.sum()) / max(1, distinct * (distinct - 1) // 2)
        self.first, self.first_nearly = (
            min(distinct, max(1, int(np.ceil(share * distinct - 1e-9))))
            if np.isfinite(share)
            else None
            for share in (calibration.first, calibration.first_nearly)
        )

    def lines(self) -> list[str]:
        calibration = self.calibration
        graphs = counted(self.calibration.graphs, "graph")
        right = calibration.right
        low = calibration.right_low
        high = calibration.right_high
        certain = f"no pair is certain: out of fold none reached {CERTAIN:.0%} ({graphs})"
        if np.isfinite(calibration.threshold):
            certain = f"{self.certain:.0%} of the pairs are certain"
            if np.isfinite(right):
                certain += f"; of such pairs {right:.1%} were in the right order on unseen "
                certain += f"{FOLDS_OF[calibration.by]} ({low:.1%} to {high:.1%}, {graphs})"
        if self.first is None:
            return [certain]
        first = f"the best is among the first {self.first} with {AMONG_FIRST:.0%} probability"
        return [
            certain,
            f"{first}, one at most {NEARLY:.0%} slower among the first {self.first_nearly}",
        ]

    def as_json(self) -> dict[str, Any]:
        values = self.calibration.as_json()
        interval = [values["right_low"], values["right_high"]]
        return {
            "certain_share": self.certain,
            "certain_right": values["right"],
            "certain_right_interval": None if values["right"] is None else interval,
            "best_among_first": self.first,
            "nearly_best_among_first": self.first_nearly,
            "probability": AMONG_FIRST,
            "calibrated_on": {name: values[name] for name in ("graphs", "families", "seeds")},
        }


def disagreement(scores: Floats) -> float:
    """Return the typical (RMS) standard deviation over seeds of differences of scores, ``(seeds,
    rows)``.
    """
    centred = scores - scores.mean(axis=1, keepdims=True)
    return max(float(np.sqrt(2.0) * np.sqrt(np.mean(np.var(centred, axis=0, ddof=1)))), 1e-12)


def _pairs(graph: ScoredGraph, rng: np.random.Generator) -> tuple[Floats, Flags]:
    """Return ``t`` of the pairs with different costs, and whether the mean scores order them
    correctly.
    """
    left, right = np.triu_indices(len(graph.cost), 1)
    if len(left) > _PAIRS:
        chosen = rng.choice(len(left), _PAIRS, replace=False)
        left = left[chosen]
        right = right[chosen]
    cost_gap = graph.cost[left] - graph.cost[right]
    mean = graph.scores.mean(axis=0)
    gap = (mean[left] - mean[right])[cost_gap != 0]
    return np.abs(gap) / disagreement(graph.scores), np.sign(gap) == np.sign(
        cost_gap[cost_gap != 0]
    )


def _threshold(pairs: Sequence[tuple[Floats, Flags]]) -> float:
    """Return the lowest ``t`` above which `CERTAIN` of the pairs are concordant; infinite if there
    is none.

    At least 5 % of the pairs lie above this ``t``. Graphs have equal weight.
    """
    if not any(len(t) for t, _ in pairs):
        return float("inf")
    t, correct = (np.concatenate(values) for values in zip(*pairs, strict=True))
    weight = np.concatenate([np.full(len(t), 1 / max(1, len(t))) for t, _ in pairs])
    order = np.argsort(-t, kind="stable")
    total = np.cumsum(weight[order])
    concordant = np.cumsum((weight * correct)[order])
    enough = np.flatnonzero((concordant >= CERTAIN * total) & (total >= 0.05 * total[-1]))
    return float(t[order][enough[-1]]) if len(enough) else float("inf")


def _first(graphs: Sequence[ScoredGraph], slowdown: float) -> float:
    """Return the top share of the rows that contains one at most ``slowdown`` slower than the best.

    A conformal quantile: with probability `AMONG_FIRST`, the share needed for the next graph is no
    larger. NaN for fewer than `FEWEST` graphs.
    """
    if len(graphs) < FEWEST:
        return float("nan")
    ranked = [graph.cost[np.argsort(graph.scores.mean(axis=0), kind="stable")] for graph in graphs]
    shares = [
        float(np.argmax(cost <= cost.min() * (1 + slowdown)) + 1) / len(cost) for cost in ranked
    ]
    needed = int(np.ceil((len(shares) + 1) * AMONG_FIRST))
    return sorted(shares)[needed - 1]


def _certain_accuracy(pair_shares: Floats, rng: np.random.Generator) -> tuple[float, float, float]:
    """Return the share of correct pairs among certain ones and its 95 % interval; NaN without
    certain pairs.
    """
    if not pair_shares[:, 0].any():
        return float("nan"), float("nan"), float("nan")
    drawn = pair_shares[rng.integers(0, len(pair_shares), (1000, len(pair_shares)))].sum(axis=1)
    drawn = drawn[drawn[:, 0] > 0]
    low, high = np.quantile(drawn[:, 1] / drawn[:, 0], (0.025, 0.975))
    return float(pair_shares[:, 1].sum() / pair_shares[:, 0].sum()), float(low), float(high)
