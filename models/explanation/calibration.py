"""How far a ranking can be trusted, measured on graphs whose family, or kind of kernel, the rankers never saw.

Boosters of several seeds disagree where the data left them free. The unit is that disagreement: two configurations
whose mean scores lie ``t`` standard deviations of the seeds apart. Out of fold it is counted how often pairs of at
least that ``t`` are in the right order, and how far down the true best stands.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np

from xlarank.data.errors import ModelError
from xlarank.data.files import read_text, write_json
from xlarank.models.arrays import Flags, Floats, Integers

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
_BINS: Final = 8
#: Fewer than this share of all pairs are too few to call certain: their luck would pass for knowledge.
_LEAST: Final = 0.05
#: Draws of a bootstrap over graphs.
_DRAWS: Final = 1000


@dataclass(frozen=True, eq=False)
class ScoredGraph:
    """One graph scored by rankers that never saw its family (of programs, or its kind of kernel)."""

    family: str
    scores: Floats  # ``(seeds, rows)`` of each seed, lower is faster
    cost: Floats  # ``(rows,)``


@dataclass(frozen=True)
class Bin:
    """Pairs of similar ``t``."""

    distance: float  # their median ``t``
    pairs: int
    # right: share in the right order, every graph counting the same; low and high are its 95 % bootstrap interval
    # over graphs.
    right: float
    right_low: float
    right_high: float


@dataclass(frozen=True)
class Calibration:
    """How far a ranking can be trusted, by out-of-fold scores."""

    # threshold: pairs of at least this ``t`` are called certain; infinite where no threshold holds its promise.
    threshold: float
    certain: float  # share of pairs that are
    right: float  # share of those in the right order, each graph by a threshold from the other families
    # right_low, right_high: its 95 % bootstrap interval over graphs.
    right_low: float
    right_high: float
    # first: share of the distinct configurations, from the top, that holds the best with probability `AMONG_FIRST`;
    # 1 where there are too few graphs to say so.
    first: float
    first_nearly: float  # the same for one at most `NEARLY` slower than the best
    # graphs, families, seeds: what it rests on.
    graphs: int
    families: int
    seeds: int
    bins: tuple[Bin, ...]  # the reliability table, of rising ``t``
    # by: what ``families`` are, "family" or "kind" (`xlarank.models.validation.fold_plan.FOLDS_OF`).
    by: str = "family"

    @classmethod
    def of(cls, graphs: Sequence[ScoredGraph], seed: int = 0) -> Calibration:
        """Count; raises `ModelError` without two families, or without two seeds to disagree."""
        families = sorted({one.family for one in graphs})
        seeds = min((len(one.scores) for one in graphs), default=0)
        if len(families) < 2 or seeds < 2:
            raise ModelError(
                f"{len(families)} families and {seeds} seeds",
                expected="two or more families of graphs, and of seeds",
                do="train with two seeds or more on more than one family",
            )
        rng = np.random.default_rng(seed)
        pairs = [_pairs(one, rng) for one in graphs]
        of_others = {
            name: _threshold([p for p, one in zip(pairs, graphs, strict=True) if one.family != name])
            for name in families
        }
        called = [_counted(found, of_others[one.family]) for found, one in zip(pairs, graphs, strict=True)]
        threshold = _threshold(pairs)
        right, low, high = _share(called if np.isfinite(threshold) else [], rng)
        return cls(
            threshold=threshold,
            certain=float(np.mean([(t >= threshold).mean() for t, _ in pairs if len(t)])),
            right=right,
            right_low=low,
            right_high=high,
            first=_quantile([_place_of_best(one, 0.0) for one in graphs]),
            first_nearly=_quantile([_place_of_best(one, NEARLY) for one in graphs]),
            graphs=len(graphs),
            families=len(families),
            seeds=len(graphs[0].scores),
            bins=_bins(pairs, rng),
        )

    def first_of(self, distinct: int) -> int:
        """The smallest k so that the best of ``distinct`` configurations is among the first k (`AMONG_FIRST`)."""
        return _first(self.first, distinct)

    def first_nearly_of(self, distinct: int) -> int:
        """The same for one that is at most `NEARLY` slower than the best."""
        return _first(self.first_nearly, distinct)

    def certainly_slower(self, scores: Floats) -> Integers:
        """``(rows,)`` how many other rows each one is certainly faster than, from ``(seeds, rows)`` scores."""
        mean = scores.mean(axis=0)
        if not np.isfinite(self.threshold):
            return np.zeros(len(mean), np.int64)
        least = max(self.threshold * np.sqrt(2.0) * seed_noise(scores), 1e-12)
        slower: Integers = len(mean) - np.searchsorted(np.sort(mean), mean + least)
        return slower

    def save(self, folder: Path, model: str) -> None:
        """Write beside the model's card; ``model`` is its fingerprint."""
        write_json(folder / CALIBRATION, {"model": model, **self.as_json()})

    def as_json(self) -> dict[str, Any]:
        """Plain values; None for what is not finite."""
        return {name: _plain(value) for name, value in asdict(self).items()}

    @classmethod
    def load(cls, folder: Path, model: str) -> Calibration | None:
        """Read what `save` wrote for this model; None where there is none."""
        try:
            value = json.loads(read_text(folder.joinpath(CALIBRATION)))
            if value.pop("model") != model:
                return None
            bins = tuple(Bin(**one) for one in value.pop("bins"))
            numbers: dict[str, Any] = {name: float("inf") if n is None else n for name, n in value.items()}
            return cls(**numbers, bins=bins)
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return None


def _first(share: float, distinct: int) -> int:
    return min(distinct, max(1, int(np.ceil(share * distinct - 1e-9))))


def seed_noise(scores: Floats) -> float:
    """Standard deviation of a configuration's score over the seeds, the root of its mean square over rows.

    Scores of each seed are centred first: they have no zero.
    """
    centred = scores - scores.mean(axis=1, keepdims=True)
    return float(np.sqrt(np.mean(np.var(centred, axis=0, ddof=1))))


def _pairs(one: ScoredGraph, rng: np.random.Generator) -> tuple[Floats, Flags]:
    """``t`` of pairs that differ in cost, and whether the mean scores order them rightly."""
    rows = len(one.cost)
    left, right = np.triu_indices(rows, 1)
    if len(left) > _PAIRS:
        chosen = rng.choice(len(left), _PAIRS, replace=False)
        left, right = left[chosen], right[chosen]
    apart = one.cost[left] != one.cost[right]
    left, right = left[apart], right[apart]
    mean = one.scores.mean(axis=0)
    gap = mean[left] - mean[right]
    noise = np.sqrt(2.0) * seed_noise(one.scores)
    t = np.abs(gap) / max(noise, 1e-12)
    return t, (np.sign(gap) == np.sign(one.cost[left] - one.cost[right]))


def _threshold(pairs: Sequence[tuple[Floats, Flags]]) -> float:
    """The lowest ``t`` above which `CERTAIN` of the pairs are right, every graph counting the same."""
    used = [(t, correct) for t, correct in pairs if len(t)]
    if not used:
        return float("inf")
    t = np.concatenate([t for t, _ in used])
    weight = np.concatenate([np.full(len(t), 1 / len(t)) for t, _ in used])
    correct = np.concatenate([correct for _, correct in used])
    order = np.argsort(-t, kind="stable")
    total, good = np.cumsum(weight[order]), np.cumsum((weight * correct)[order])
    enough = (good >= CERTAIN * total) & (total >= _LEAST * total[-1])
    return float(t[order][np.flatnonzero(enough)[-1]]) if enough.any() else float("inf")


def _place_of_best(one: ScoredGraph, slowdown: float) -> float:
    """Share of the rows, from the top, needed to reach a row at most ``slowdown`` slower than the best."""
    order = np.argsort(one.scores.mean(axis=0), kind="stable")
    good = one.cost[order] <= one.cost.min() * (1 + slowdown)
    return float(np.flatnonzero(good)[0] + 1) / len(order)


def _quantile(places: Sequence[float]) -> float:
    """The conformal quantile: the next graph's place is at most this with probability `AMONG_FIRST`."""
    needed = int(np.ceil((len(places) + 1) * AMONG_FIRST))
    return float(np.sort(places)[needed - 1]) if needed <= len(places) else 1.0


def _counted(pairs: tuple[Floats, Flags], low: float, high: float = float("inf")) -> tuple[float, float]:
    """Shares of a graph's pairs: with ``t`` from ``low`` to below ``high``, and those of them that are right."""
    t, correct = pairs
    mine = (t >= low) & (t < high)
    size = max(1, len(t))
    return float(mine.sum()) / size, float((mine & correct).sum()) / size


def _share(counted: Sequence[tuple[float, float]], rng: np.random.Generator) -> tuple[float, float, float]:
    """Right of all counted pairs, and its 95 % bootstrap interval over graphs."""
    table = np.array(counted, np.float64).reshape(-1, 2)
    if table[:, 0].sum() == 0:
        return float("nan"), float("nan"), float("nan")
    drawn = table[rng.integers(0, len(table), (_DRAWS, len(table)))].sum(axis=1)
    drawn = drawn[drawn[:, 0] > 0]
    low, high = np.quantile(drawn[:, 1] / drawn[:, 0], (0.025, 0.975))
    return float(table[:, 1].sum() / table[:, 0].sum()), float(low), float(high)


def _bins(pairs: Sequence[tuple[Floats, Flags]], rng: np.random.Generator) -> tuple[Bin, ...]:
    """Pairs in bins of ``t`` that hold equally many."""
    every = np.concatenate([t for t, _ in pairs])
    if len(every) == 0:
        return ()
    edges = [*np.unique(np.quantile(every, np.linspace(0, 1, _BINS + 1)[:-1])), float("inf")]
    found = []
    for low, high in pairwise(edges):
        mine = every[(every >= low) & (every < high)]
        share = _share([_counted(one, low, high) for one in pairs], rng)
        found.append(Bin(float(np.median(mine)), len(mine), *share))
    return tuple(found)


def _plain(value: object) -> object:
    return None if isinstance(value, float) and not np.isfinite(value) else value
