"""Certainty of rankings, calibrated on program or kernel families unseen by the rankers.

The distance ``t`` of two configurations is the difference of their mean scores in standard
deviations over seeds.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass
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


@dataclass(frozen=True)
class Calibration:
    """Certainty of rankings, estimated from out-of-fold scores; None stands for unknown values.

    Attributes:
        threshold: minimum ``t`` of certain pairs; None if no threshold reaches `CERTAIN`.
        right: share of concordant pairs among certain ones, by thresholds from other families.
        right_low, right_high: 95 % bootstrap interval over graphs.
        first, first_nearly: top share of the distinct configurations that contains the best, or one
            at most `NEARLY` slower, with probability `AMONG_FIRST`; None for fewer than `FEWEST`
            graphs.
        by: unit of ``families``, a key of `FOLDS_OF`.
    """

    threshold: float | None
    certain: float
    right: float | None
    right_low: float | None
    right_high: float | None
    first: float | None
    first_nearly: float | None
    graphs: int
    families: int
    seeds: int
    by: str = "family"

    @classmethod
    def of(
        cls,
        families: Sequence[str],
        scores: Sequence[Floats],
        costs: Sequence[Floats],
        by: str = "family",
    ) -> Calibration:
        """Calibrate on graphs of at least two families.

        Each has out-of-fold scores, ``(seeds, rows)`` of at least two seeds, lower is faster, and
        costs, ``(rows,)``.
        """
        rng = np.random.default_rng(0)
        pairs = [_pairs(*graph, rng) for graph in zip(scores, costs, strict=True)]
        threshold = _threshold(pairs)
        thresholds = {}
        for family in set(families):
            others = [graph for graph, of in zip(pairs, families, strict=True) if of != family]
            thresholds[family] = _threshold(others)
        # Shares of a graph's pairs: certain; certain and correct.
        shares = []
        for family, (t, correct) in zip(families, pairs, strict=True):
            is_certain = t >= thresholds[family]
            counts = np.array([is_certain.sum(), correct[is_certain].sum()])
            shares.append(counts / max(1, len(t)))
        right = low = high = None
        if np.isfinite(threshold):
            right, low, high = _certain_accuracy(np.array(shares), rng)
        return cls(
            threshold if np.isfinite(threshold) else None,
            float(np.mean([(t >= threshold).mean() for t, _ in pairs if len(t)])),
            right,
            low,
            high,
            _first(scores, costs, 0.0),
            _first(scores, costs, NEARLY),
            len(pairs),
            len(set(families)),
            len(scores[0]),
            by,
        )

    def save(self, folder: Path, model: str) -> None:
        """Write the calibration beside the card of the model with the fingerprint ``model``."""
        write_json(folder / CALIBRATION, {"model": model, **asdict(self)})

    @classmethod
    def load(cls, folder: Path, model: str) -> Calibration | None:
        """Return the calibration saved for this model; None if it is missing or invalid."""
        try:
            value = json.loads(read_text(folder / CALIBRATION))
            if value.pop("model") != model:
                return None
            calibration = from_json(cls, value)
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return None
        threshold, *shares, graphs, families, seeds, by = astuple(calibration)
        in_range = all(share is None or 0 <= share <= 1 for share in shares)
        positive = min(graphs, families, seeds) >= 1 and (threshold is None or threshold > 0)
        return calibration if in_range and positive and by in FOLDS_OF else None


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
        if calibration.threshold is not None:
            margin = calibration.threshold * disagreement(per_seed)
            slower = distinct - np.searchsorted(np.sort(mean), mean + margin)
        self.calibration = calibration
        self.ahead_of = slower[group]
        self.certain = float(slower.sum()) / max(1, distinct * (distinct - 1) // 2)

        def number(share: float | None) -> int | None:
            return None if share is None else max(1, math.ceil(share * distinct - 1e-9))

        self.first = number(calibration.first)
        self.first_nearly = number(calibration.first_nearly)

    def lines(self) -> list[str]:
        calibration = self.calibration
        graphs = counted(calibration.graphs, "graph")
        certain = f"no pair is certain: out of fold none reached {CERTAIN:.0%} ({graphs})"
        if calibration.threshold is not None:
            certain = f"{self.certain:.0%} of the pairs are certain"
            if calibration.right is not None:
                certain += f"; of such pairs {calibration.right:.1%} were in the right order on "
                certain += f"unseen {FOLDS_OF[calibration.by]} "
                certain += (
                    f"({calibration.right_low:.1%} to {calibration.right_high:.1%}, {graphs})"
                )
        if self.first is None:
            return [certain]
        first = f"the best is among the first {self.first} with {AMONG_FIRST:.0%} probability"
        return [
            certain,
            f"{first}, one at most {NEARLY:.0%} slower among the first {self.first_nearly}",
        ]

    def as_json(self) -> dict[str, Any]:
        values = asdict(self.calibration)
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


def _pairs(scores: Floats, cost: Floats, rng: np.random.Generator) -> tuple[Floats, Flags]:
    """Return ``t`` of the pairs with different costs, and whether the mean scores order them
    correctly.
    """
    left, right = np.triu_indices(len(cost), 1)
    if len(left) > _PAIRS:
        chosen = rng.choice(len(left), _PAIRS, replace=False)
        left = left[chosen]
        right = right[chosen]
    cost_gap = cost[left] - cost[right]
    mean = scores.mean(axis=0)
    gap = (mean[left] - mean[right])[cost_gap != 0]
    correct = np.sign(gap) == np.sign(cost_gap[cost_gap != 0])
    return np.abs(gap) / disagreement(scores), correct


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
    is_enough = (concordant >= CERTAIN * total) & (total >= 0.05 * total[-1])
    enough = np.flatnonzero(is_enough & (t[order] > 0))  # ties are never certain
    return float(t[order][enough[-1]]) if len(enough) else float("inf")


def _first(scores: Sequence[Floats], costs: Sequence[Floats], slowdown: float) -> float | None:
    """Return the top share of the rows that contains one at most ``slowdown`` slower than the best.

    A conformal quantile: with probability `AMONG_FIRST`, the share needed for the next graph is no
    larger. None for fewer than `FEWEST` graphs.
    """
    if len(costs) < FEWEST:
        return None
    shares = []
    for score, cost in zip(scores, costs, strict=True):
        ranked = cost[np.argsort(score.mean(axis=0), kind="stable")]
        place = np.argmax(ranked <= cost.min() * (1 + slowdown)) + 1
        shares.append(float(place) / len(cost))
    needed = math.ceil((len(shares) + 1) * AMONG_FIRST)
    return sorted(shares)[needed - 1]


def _certain_accuracy(
    shares: Floats, rng: np.random.Generator
) -> tuple[float | None, float | None, float | None]:
    """Return the share of correct pairs among certain ones and its 95 % interval; None without
    certain pairs.
    """
    if not shares[:, 0].any():
        return None, None, None
    drawn = shares[rng.integers(0, len(shares), (1000, len(shares)))].sum(axis=1)
    drawn = drawn[drawn[:, 0] > 0]
    low, high = np.quantile(drawn[:, 1] / drawn[:, 0], (0.025, 0.975))
    return float(shares[:, 1].sum() / shares[:, 0].sum()), float(low), float(high)
