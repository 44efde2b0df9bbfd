"""Expected seconds of training, extrapolated from short fits that are timed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final, TypeAlias

from xlarank.data.graph import Kind
from xlarank.models.model import Model
from xlarank.models.training_data import FitSettings, TrainingData
from xlarank.models.validation.folds import FACTOR, Fold, validate_fold

#: Rows of the fits that are timed, and their rounds; the first is not counted.
_PROBE_ROWS: Final = 4_000
_PROBE_ROUNDS: Final = (1, 2, 32)
#: Usual number of columns that vary within a graph.
_WIDTHS: Final[dict[Kind, int]] = {"layout": 350, "tile": 130}
#: Expected seconds of a fit and its evaluation on one thread, by rows and rounds.
FitSeconds: TypeAlias = Callable[[float, float], float]


def time_fits(
    data: TrainingData, model: Model, settings: FitSettings, fallback: bool = False
) -> FitSeconds:
    """Time short fits on the first graphs, one of which is also scored; extrapolate linearly."""
    groups = 0
    while groups < data.groups and data.indptr[groups] < _PROBE_ROWS:
        groups += 1
    few = data.take(range(groups))
    seconds = []
    for rounds in _PROBE_ROUNDS:
        began = time.perf_counter()
        short = replace(settings, rounds=rounds, threads=1)
        validate_fold(few, Fold([0], []), model, short, fallback)
        seconds.append((time.perf_counter() - began) / len(few.cost))
    _, first, second = seconds
    _, low, high = _PROBE_ROUNDS
    by_round = max(0.0, second - first) / (high - low)
    constant = max(0.0, first - low * by_round)
    return lambda rows, rounds: rows * (constant + by_round * rounds)


def study_seconds(
    fit_seconds: FitSeconds, rows: float, last_rows: float, rungs: Sequence[int]
) -> Callable[[int, int], float]:
    """Return the expected seconds as a function of the numbers of done trials and of all.

    A trial fits ``rows``; the final comparison with the defaults fits ``last_rows``. The first
    trial has all rounds; of the others a `FACTOR`-th continues on each rung.
    """
    steps = enumerate(pairwise([0, *rungs]))
    rounds = sum((high - low) / FACTOR**rung for rung, (low, high) in steps)

    def seconds(done: int, trials: int) -> float:
        if done >= trials:
            return 0.0
        first = 0.0 if done else fit_seconds(rows, rungs[-1])
        others = (trials - max(done, 1)) * fit_seconds(rows, rounds)
        return first + others + fit_seconds(last_rows, rungs[-1])

    return seconds
