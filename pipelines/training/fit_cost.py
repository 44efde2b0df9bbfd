"""Expected seconds of training, extrapolated from short fits that are timed."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final, TypeAlias

import numpy as np

from xlarank.data.collection import Collection
from xlarank.data.families import program_family
from xlarank.data.graph import Kind
from xlarank.data.workspace import Workspace
from xlarank.features.rows import GraphRows
from xlarank.features.store import each_graph, read_manifests
from xlarank.models.model import Model
from xlarank.models.training_data import FitSettings, TrainingData, target_of
from xlarank.models.validation.folds import FACTOR, MOST_FOLDS, Fold, validate_fold
from xlarank.pipelines.training.budget import required_memory, training_sizes
from xlarank.pipelines.training.settings import TrainSettings

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


def training_seconds(
    workspace: Workspace, collection: Collection, settings: TrainSettings, models: Sequence[Model]
) -> float:
    """Return the expected seconds to cross-validate ``models`` and to fit one; 0 without rows.

    Raises `CollectionError` if the rows do not fit into memory.
    """
    manifests = read_manifests(workspace, collection, settings.splits)
    first = manifests.get(settings.splits[0])
    if first is None:
        return 0.0
    sizes = training_sizes(collection, [*manifests.values()], settings.max_rows)
    if not sizes:
        return 0.0
    fit = FitSettings(settings.rounds, settings.seed, settings.threads)
    required_memory(collection, sizes, fit)
    few: list[GraphRows] = []
    for graph in each_graph(workspace, collection, settings.splits[0], first):
        if graph.labelled and graph.rankable:
            measured = graph.measured()
            few.append(measured.take(np.arange(min(len(measured), sizes[graph.name]))))
        if sum(map(len, few)) >= _PROBE_ROWS:
            break
    if not few:
        return 0.0
    data = TrainingData.from_graphs(few, target_of(collection))
    cores = settings.threads or os.cpu_count() or 1
    rows = sum(sizes.values())
    folds = min(MOST_FOLDS, len({program_family(name) for name in sizes}))
    fitted = rows * (folds - 1) / folds * math.ceil(folds / cores) if folds > 1 else 0
    seconds_of = [time_fits(data, model, fit) for model in models]
    validation = sum(seconds(fitted, settings.rounds) for seconds in seconds_of)
    last = max(seconds(rows, settings.rounds) for seconds in seconds_of) * settings.seeds / cores
    return validation + last
