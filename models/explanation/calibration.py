"""How far a ranking can be trusted, measured on graphs whose family, or kind of kernel, the rankers never saw.

Boosters of several seeds disagree where the data left them free. The distance ``t`` of two configurations is the
difference of their mean scores in standard deviations of that disagreement.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from xlarank.data.errors import counted
from xlarank.data.files import read_text, write_json
from xlarank.data.typed_json import from_json
from xlarank.models.arrays import Flags, Floats, Integers
from xlarank.models.validation.curves import FOLDS_OF

#: File beside the model's card.
CALIBRATION: Final = "calibration.json"
#: Share of pairs called certain that shall be in the right order.
CERTAIN: Final = 0.95
#: Probability that the best stands among the first k.
AMONG_FIRST: Final = 0.9
#: A configuration counts as good as the best up to this share of slowdown.
NEARLY: Final = 0.01
#: Pairs of a graph that are looked at; more would say the same.
_PAIRS: Final = 20_000
#: Fewer than this share of all pairs are too few to call certain: their luck would pass for knowledge.
_LEAST: Final = 0.05
#: Fields that are shares, and those that may be infinite, which JSON has as null.
_SHARES: Final = ("certain", "right", "right_low", "right_high", "first", "first_nearly")
_MAY_BE_ENDLESS: Final = ("threshold", "right", "right_low", "right_high")
#: Draws of a bootstrap over graphs.
_DRAWS: Final = 1000


@dataclass(frozen=True, eq=False)
class ScoredGraph:
    """One graph scored by rankers that never saw its family (of programs, or its kind of kernel)."""

    family: str
    scores: Floats  # ``(seeds, rows)`` of each seed, lower is faster
    cost: Floats  # ``(rows,)``


@dataclass(frozen=True)
class Calibration:
    """How far a ranking can be trusted, by out-of-fold scores."""

    threshold: float  # pairs of at least this ``t`` are called certain; infinite where none are `CERTAIN`
    certain: float  # share of pairs that are
    right: float  # share of those in the right order, each graph by a threshold from the other families
    right_low: float  # 95 % bootstrap interval over graphs
    right_high: float
    # first: share of the distinct configurations, from the top, that holds the best with probability `AMONG_FIRST`;
    # 1 where there are too few graphs to say so.
    first: float
    first_nearly: float  # the same for one at most `NEARLY` slower than the best
    graphs: int
    families: int
    seeds: int
    by: str = "family"  # what ``families`` are, a key of `FOLDS_OF`

    @classmethod
    def of(cls, graphs: Sequence[ScoredGraph], by: str = "family") -> Calibration:
        """Calibrate on graphs of two families or more, scored by two seeds or more."""
        rng = np.random.default_rng(0)
        families = np.array([one.family for one in graphs])
        pairs = [_pairs(one, rng) for one in graphs]
        threshold = _threshold(pairs)
        called = np.zeros((len(graphs), 2))  # shares of a graph's pairs: called certain, and right, too
        for family in np.unique(families):
            least = _threshold([pairs[graph] for graph in np.flatnonzero(families != family)])
            for graph in np.flatnonzero(families == family):
                t, correct = pairs[graph]
                called[graph] = np.array([(t >= least).sum(), correct[t >= least].sum()]) / max(1, len(t))
        return cls(
            threshold,
            float(np.mean([(t >= threshold).mean() for t, _ in pairs if len(t)])),
            *_right_of(called * np.isfinite(threshold), rng),
            _first(graphs, 0.0),
            _first(graphs, NEARLY),
            graphs=len(graphs),
            families=len(np.unique(families)),
            seeds=len(graphs[0].scores),
            by=by,
        )

    def as_json(self) -> dict[str, Any]:
        """Plain values; None for what is not finite."""
        plain = asdict(self).items()
        return {k: None if isinstance(v, float) and not np.isfinite(v) else v for k, v in plain}

    def save(self, folder: Path, model: str) -> None:
        """Write beside the model's card; ``model`` is its fingerprint."""
        write_json(folder / CALIBRATION, {"model": model, **self.as_json()})

    @classmethod
    def load(cls, folder: Path, model: str) -> Calibration | None:
        """Read what `save` wrote for this model; None where there is none, or another than `of` makes."""
        try:
            value = json.loads(read_text(folder / CALIBRATION))
            if value.pop("model") != model:
                return None
            value.pop("bins", None)  # of files written by earlier versions
            endless = [name for name in _MAY_BE_ENDLESS if value[name] is None]
            calibration = from_json(cls, value | dict.fromkeys(endless, 0.0))
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return None
        plain = asdict(calibration)
        possible = (
            calibration.by in FOLDS_OF
            and calibration.threshold >= 0
            and all(0 <= plain[name] <= 1 for name in _SHARES)
            and min(calibration.graphs, calibration.families, calibration.seeds) >= 1
        )
        infinite: dict[str, Any] = dict.fromkeys(endless, float("inf"))
        return replace(calibration, **infinite) if possible else None


class Trust:
    """How certain the ranking of one graph is.

    Attributes:
        certain: share of the pairs of distinct configurations that are called certain.
        first, first_nearly: so many of the best distinct configurations hold the best one, or one at most `NEARLY`
            slower, with probability `AMONG_FIRST`.
        ahead_of: ``(configs,)`` how many distinct configurations each one is certainly faster than.
    """

    def __init__(self, calibration: Calibration, per_seed: Floats, group: Integers) -> None:
        """From the scores of each seed ``(seeds, distinct)``, and which distinct one each configuration is."""
        mean, distinct = per_seed.mean(axis=0), per_seed.shape[1]
        slower = np.zeros(distinct, np.int64)
        if np.isfinite(calibration.threshold):
            least = calibration.threshold * disagreement(per_seed)
            slower = distinct - np.searchsorted(np.sort(mean), mean + least)
        self.calibration, self.ahead_of = calibration, slower[group]
        self.certain = float(slower.sum()) / max(1, distinct * (distinct - 1) // 2)
        self.first, self.first_nearly = (
            min(distinct, max(1, int(np.ceil(share * distinct - 1e-9))))
            for share in (calibration.first, calibration.first_nearly)
        )

    def lines(self) -> list[str]:
        """The same in words."""
        found, graphs = self.calibration, counted(self.calibration.graphs, "graph")
        certain = f"no pair is certain: out of fold none reached {CERTAIN:.0%} ({graphs})"
        if np.isfinite(found.threshold):
            certain = (
                f"{self.certain:.0%} of the pairs are certain; of such pairs {found.right:.1%} were in the right "
                f"order on unseen {FOLDS_OF[found.by]} ({found.right_low:.1%} to {found.right_high:.1%}, {graphs})"
            )
        first = f"the best is among the first {self.first} with {AMONG_FIRST:.0%} probability"
        return [certain, f"{first}, one at most {NEARLY:.0%} slower among the first {self.first_nearly}"]

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        found = self.calibration.as_json()
        interval = [found["right_low"], found["right_high"]]
        return {
            "certain_share": self.certain,
            "certain_right": found["right"],
            "certain_right_interval": None if found["right"] is None else interval,
            "best_among_first": self.first,
            "nearly_best_among_first": self.first_nearly,
            "probability": AMONG_FIRST,
            "calibrated_on": {name: found[name] for name in ("graphs", "families", "seeds")},
        }


def disagreement(scores: Floats) -> float:
    """Standard deviation over seeds of the difference of two configurations' scores, from ``(seeds, rows)``.

    The root of the mean square over rows. Scores of each seed are centred first: they have no zero.
    """
    centred = scores - scores.mean(axis=1, keepdims=True)
    return max(float(np.sqrt(2.0) * np.sqrt(np.mean(np.var(centred, axis=0, ddof=1)))), 1e-12)


def _pairs(one: ScoredGraph, rng: np.random.Generator) -> tuple[Floats, Flags]:
    """``t`` of pairs that differ in cost, and whether the mean scores order them rightly."""
    left, right = np.triu_indices(len(one.cost), 1)
    if len(left) > _PAIRS:
        chosen = rng.choice(len(left), _PAIRS, replace=False)
        left, right = left[chosen], right[chosen]
    dearer, mean = one.cost[left] - one.cost[right], one.scores.mean(axis=0)
    gap = (mean[left] - mean[right])[dearer != 0]
    return np.abs(gap) / disagreement(one.scores), np.sign(gap) == np.sign(dearer[dearer != 0])


def _threshold(pairs: Sequence[tuple[Floats, Flags]]) -> float:
    """The lowest ``t`` above which `CERTAIN` of the pairs are right, every graph counting the same."""
    if not any(len(t) for t, _ in pairs):
        return float("inf")
    t, correct = (np.concatenate(of) for of in zip(*pairs, strict=True))
    weight = np.concatenate([np.full(len(t), 1 / max(1, len(t))) for t, _ in pairs])
    order = np.argsort(-t, kind="stable")
    total, good = np.cumsum(weight[order]), np.cumsum((weight * correct)[order])
    enough = np.flatnonzero((good >= CERTAIN * total) & (total >= _LEAST * total[-1]))
    return float(t[order][enough[-1]]) if len(enough) else float("inf")


def _first(graphs: Sequence[ScoredGraph], slowdown: float) -> float:
    """Share of the rows, from the top, that reaches a row at most ``slowdown`` slower than the best.

    The conformal quantile: that of the next graph is at most this with probability `AMONG_FIRST`.
    """
    places = []
    for one in graphs:
        cost = one.cost[np.argsort(one.scores.mean(axis=0), kind="stable")]
        places.append(float(np.argmax(cost <= cost.min() * (1 + slowdown)) + 1) / len(cost))
    needed = int(np.ceil((len(places) + 1) * AMONG_FIRST))
    return sorted(places)[needed - 1] if needed <= len(places) else 1.0


def _right_of(called: Floats, rng: np.random.Generator) -> tuple[float, float, float]:
    """Right ones of all ``(graphs, 2)`` certain pairs, with a 95 % bootstrap interval over graphs; NaN of none."""
    if not called[:, 0].any():
        return float("nan"), float("nan"), float("nan")
    drawn = called[rng.integers(0, len(called), (_DRAWS, len(called)))].sum(axis=1)
    drawn = drawn[drawn[:, 0] > 0]
    low, high = np.quantile(drawn[:, 1] / drawn[:, 0], (0.025, 0.975))
    return float(called[:, 1].sum() / called[:, 0].sum()), float(low), float(high)
