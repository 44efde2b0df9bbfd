"""A plan of the whole job that fits a budget of time, memory and disk.

`plan_budget` is a pure function of sizes and a budget: it reads no file and no clock. What it knows of costs stands
in `xlarank.pipelines.budgeting.costs`; every second it promises carries `SAFETY`.
"""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from xlarank.data.collection import Collection
from xlarank.data.errors import XlarankError
from xlarank.data.graph import Kind
from xlarank.data.sizes import CollectionSize
from xlarank.pipelines.budgeting.costs import COSTS
from xlarank.pipelines.support.memory import machine_memory

#: Planned seconds are this much longer than measured ones, and memory is planned to this share of the budget.
SAFETY: Final = 1.5
_MEMORY_SHARE: Final = 0.75
#: Of the time, for what the plan does not see: starting, reading, pictures, the last submission.
_TIME_SHARE: Final = 0.9
#: Of a process that has loaded the libraries, bytes.
_PROCESS: Final = 350e6
#: What several processes, or folds, gain together per core.
_EFFICIENCY: Final = 0.75
#: Configurations kept of each graph that is learned from, most first.
_KEPT: Final[Mapping[Kind, tuple[int, ...]]] = {
    "layout": (1000, 700, 500, 350, 250, 150, 100, 64, 32),
    "tile": (100, 70, 50, 35, 25, 20, 15, 12, 10),
}
#: (place in `_KEPT`, boosting rounds), best first. Only the first of them are given up for a study: with still
#: fewer rows or rounds a model would lose more than tuning gains.
_TUNED_RUNGS: Final = tuple((step, 300) for step in range(5))
_RUNGS: Final = (*_TUNED_RUNGS, (4, 200), (5, 200), (5, 100), (6, 100), (6, 50), (7, 50), (8, 50))
#: Trials wanted before rows are given up for them; fewer than `MIN_TRIALS` are not worth a study.
_WANTED_TRIALS: Final = 20
MIN_TRIALS: Final = 3
MAX_TRIALS: Final = 100
#: As in `xlarank.pipelines.tune` and `xlarank.pipelines.train`.
_TUNE_FOLDS: Final = 5
_TRAIN_FOLDS: Final = 10
#: Of each graph; a model of fewer ranks no better than the order of the file.
_LEAST_KEPT: Final = 16
#: Seeds of the first, untuned model.
FIRST_SEEDS: Final = 1


@dataclass(frozen=True)
class Budget:
    """What may be used, counted from the start of the process.

    Attributes:
        hours: of wall clock.
        ram_gb: of memory, in 1e9 bytes; the same for ``disk_gb`` of the workspace.
        cores: of the processor.
    """

    hours: float = 12.0
    ram_gb: float = 30.0
    cores: int = 4
    disk_gb: float = 20.0

    def __post_init__(self) -> None:
        for name, value in (("--budget-hours", self.hours), ("--budget-ram-gb", self.ram_gb)):
            if not (value > 0 and math.isfinite(value)):
                raise XlarankError(f"{name} is {value}", expected="a number above 0")
        if not (self.disk_gb > 0 and math.isfinite(self.disk_gb)):
            raise XlarankError(
                f"there are {self.disk_gb:g} GB of disk for the workspace",
                expected="more than 0",
                do="free some space or pass another --workspace",
            )
        if self.cores < 1:
            raise XlarankError(f"{self.cores} cores", expected="1 or more")

    @property
    def seconds(self) -> float:
        return 3600 * self.hours


def machine_budget(place: Path, *, hours: float = 12.0, ram_gb: float = 0.0, cores: int = 0) -> Budget:
    """A budget where 0 stands for what this machine has.

    That is nine tenths of its memory and every core that this process may use; of disk, nine tenths of what is free
    where ``place`` lies or will be made.
    """
    if ram_gb == 0:
        ram_gb = 0.9e-9 * machine_memory()
    if cores == 0:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    there = next(folder for folder in (place.absolute(), *place.absolute().parents) if folder.exists())
    return Budget(hours, ram_gb, cores, 0.9e-9 * shutil.disk_usage(there).free)


@dataclass(frozen=True)
class CollectionPlan:
    """What is done with one collection, and what it is expected to take.

    Attributes:
        max_configs: kept of each graph that is learned from.
        rows: learned from, valid included.
        rounds: most boosting rounds.
        trials: of the study, 0 for no tuning; ``tune_seconds`` is when it stops.
        seeds: boosters of the final model.
        trained: whether there is time for a model at all, else the test graphs keep the default order.
        refined: whether there is time for a final model after the first.
        build_seconds, first_seconds, trial_seconds, final_seconds, rank_seconds: expected, `SAFETY` included;
            ``rank_seconds`` for the test graphs, once.
        memory_gb: peak of a training, all at once; ``disk_gb`` of the stored rows.
    """

    collection: Collection
    max_configs: int
    rows: int
    rounds: int
    trials: int
    tune_seconds: float
    seeds: int
    trained: bool
    refined: bool
    build_seconds: float
    first_seconds: float
    trial_seconds: float
    final_seconds: float
    rank_seconds: float
    memory_gb: float
    disk_gb: float

    @property
    def first_pass(self) -> float:
        """Seconds to a first ranking of the test graphs."""
        return self.build_seconds + self.first_seconds + self.rank_seconds if self.trained else 0.0

    @property
    def second_pass(self) -> float:
        """Seconds to the final ranking, the study apart."""
        return self.final_seconds + self.rank_seconds if self.refined else 0.0


@dataclass(frozen=True)
class Plan:
    """The whole job.

    Attributes:
        jobs: processes that build features at the same time.
        notes: what the budget was too small for.
    """

    budget: Budget
    jobs: int
    collections: tuple[CollectionPlan, ...]
    notes: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        return sum(part.first_pass + part.second_pass + part.tune_seconds for part in self.collections)

    @property
    def disk_gb(self) -> float:
        return sum(part.disk_gb for part in self.collections if part.trained)


def plan_budget(
    sizes: Sequence[CollectionSize], budget: Budget, *, seeds: int = 3, jobs: int = 0, trials: int = MAX_TRIALS
) -> Plan:
    """Fit the job to the budget.

    First the time for one small model of each collection is set aside, the cheapest first: a collection that no
    longer fits keeps the default order. What is left is shared evenly: each collection takes as many rows and
    rounds as its share (and memory) holds, with 20 trials, else with 3, else without tuning; what it does not use
    goes to the others. ``trials`` 0 leaves tuning out; ``jobs`` 0 chooses by cores and memory.
    """
    jobs = _jobs(sizes, budget, jobs)
    time, disk = budget.seconds * _TIME_SHARE, budget.disk_gb
    least = [_collection(size, budget, *_RUNGS[-1], seeds, jobs) for size in sizes]
    parts = {part.collection: replace(part, trained=False, refined=False) for part in least}
    fitting: list[tuple[CollectionSize, CollectionPlan]] = []
    for size, part in sorted(zip(sizes, least, strict=True), key=lambda pair: pair[1].first_pass):
        if part.trained and part.first_pass <= time and part.disk_gb <= disk:
            time, disk = time - part.first_pass, disk - part.disk_gb
            fitting.append((size, part))
    for number, (size, small) in enumerate(fitting):
        share, room = small.first_pass + time / (len(fitting) - number), small.disk_gb + disk
        part, used = _best(size, budget, small, share, room, seeds, jobs, trials)
        parts[part.collection] = part
        time, disk = time - (used - small.first_pass), disk - (part.disk_gb - small.disk_gb)
    return _tuned(budget, jobs, sizes, [parts[size.collection] for size in sizes], trials)


def _best(
    size: CollectionSize,
    budget: Budget,
    small: CollectionPlan,
    share: float,
    room: float,
    seeds: int,
    jobs: int,
    trials: int,
) -> tuple[CollectionPlan, float]:
    """The highest rung that fits into a share of time and a room of disk, and the seconds it uses."""
    for wanted, rungs in ((_WANTED_TRIALS, _TUNED_RUNGS), (MIN_TRIALS, _TUNED_RUNGS), (0, _RUNGS)):
        for rung in rungs:
            part = _collection(size, budget, *rung, seeds, jobs)
            used = part.first_pass + part.second_pass + min(wanted, trials) * part.trial_seconds
            if used <= share and part.disk_gb <= room:
                return part, used
    return replace(small, refined=False), small.first_pass


def share_tuning(
    parts: Sequence[CollectionPlan],
    left: float,
    *,
    most: int = MAX_TRIALS,
    pace: Mapping[Collection, float] | None = None,
) -> dict[Collection, tuple[int, float]]:
    """Trials and seconds of each study that is still to come, out of ``left`` seconds for all that is left.

    ``pace`` says how the seconds of a collection so far compare with the planned ones. What the final models
    need is set aside first. A study that cannot finish `MIN_TRIALS` gets (0, 0), and others its time.
    """
    pace = pace or {}
    cost = {part.collection: part.trial_seconds * pace.get(part.collection, 1.0) for part in parts}
    free = left - sum(part.second_pass * pace.get(part.collection, 1.0) for part in parts)
    found = {part.collection: (0, 0.0) for part in parts}
    waiting = sorted((p.collection for p in parts if p.refined and cost[p.collection] > 0), key=cost.__getitem__)
    while waiting:
        collection = waiting.pop(0)
        window = free / (1 + len(waiting))
        count = min(most, int(window / cost[collection]))
        if count >= MIN_TRIALS:
            found[collection] = count, count * cost[collection]
            free -= count * cost[collection]
    return found


def _tuned(
    budget: Budget, jobs: int, sizes: Sequence[CollectionSize], parts: list[CollectionPlan], trials: int
) -> Plan:
    """The plan, the time that is left given to studies, and in words what there is no time for."""
    left = budget.seconds * _TIME_SHARE - sum(part.first_pass for part in parts)
    shares = share_tuning(parts, left, most=trials)
    parts = [replace(p, trials=shares[p.collection][0], tune_seconds=shares[p.collection][1]) for p in parts]
    alone = {size.collection for size in sizes if size.families < 2}
    empty = {size.collection for size in sizes if not size.rows("train") or not size.rows("test")}
    notes = [f"{collection} has nothing to learn from or nothing to rank" for collection in sorted(empty)]
    for what, names in (
        ("any model (the default order stays)", [p for p in parts if not p.trained]),
        ("a final model (the first one stays)", [p for p in parts if p.trained and not p.refined]),
        ("tuning", [p for p in parts if trials and p.refined and not p.trials and p.collection not in alone]),
    ):
        small = [str(part.collection) for part in names if part.collection not in empty]
        if small:
            notes.append(f"the budget is too small for {what}: {', '.join(small)}")
    return Plan(budget, jobs, tuple(parts), tuple(notes))


def _jobs(sizes: Sequence[CollectionSize], budget: Budget, asked: int) -> int:
    """Processes for building: no more than cores, nor than fit into memory with the largest graphs at once."""
    largest = max((_build_bytes(size) for size in sizes), default=_PROCESS)
    fit = int(1e9 * budget.ram_gb * _MEMORY_SHARE / largest)
    return max(1, min(asked or budget.cores, fit))


def _build_bytes(size: CollectionSize) -> float:
    """Of a process at the largest graph."""
    cost = COSTS[size.collection.kind]
    each = [t[:, 0] * (cost.choice_bytes * t[:, 2] + cost.row_bytes) for t in size.table.values()]
    return _PROCESS + max((float(values.max(initial=0.0)) for values in each), default=0.0)


def build_seconds(size: CollectionSize) -> float:
    """Seconds on one core to build all rows of a collection, as measured (without `SAFETY`)."""
    cost, graphs = COSTS[size.collection.kind], np.concatenate([*size.table.values()])
    configs, nodes, configurable = graphs.T
    work = configs * (cost.config_seconds + cost.choice_seconds * configurable)
    return float((cost.graph_seconds + cost.node_seconds * nodes + work).sum())


def _collection(
    size: CollectionSize, budget: Budget, step: int, rounds: int, seeds: int, jobs: int
) -> CollectionPlan:
    """Costs of one collection at one rung, rows cut to what fits into memory."""
    kind = size.collection.kind
    cost, cores = COSTS[kind], budget.cores
    kept = _KEPT[kind][step]
    memory = 1e9 * budget.ram_gb * _MEMORY_SHARE - _PROCESS
    at_once = min(cores, _TRAIN_FOLDS, max(1, size.families))
    row_bytes = cost.set_bytes + at_once * cost.fit_bytes
    while kept > _LEAST_KEPT and (size.rows("train", kept) + size.rows("valid", kept)) * row_bytes > memory:
        kept = max(_LEAST_KEPT, int(kept * 0.9))
    train = size.rows("train", kept)
    rows = train + size.rows("valid", kept)

    def fit(count: float) -> float:
        return count * (cost.bin_seconds + rounds * (cost.round_seconds + cost.predict_seconds))

    def folds(count: float, most: int) -> float:
        number = min(most, size.families)
        if number < 2:
            return 0.0
        at_a_time = min(cores, number)
        waves = math.ceil(number / at_a_time)
        slower = 1.0 if at_a_time == 1 else 1 / _EFFICIENCY
        return waves * slower * fit(count * (number - 1) / number)

    threads = max(1.0, cores * _EFFICIENCY)
    processes = 1.0 if jobs == 1 else jobs * _EFFICIENCY
    judged = size.rows("valid") * rounds * FIRST_SEEDS * cost.predict_seconds / threads
    trained = train > 0 and size.rows("test") > 0 and rows * row_bytes <= memory
    return CollectionPlan(
        collection=size.collection,
        max_configs=kept,
        rows=rows,
        rounds=rounds,
        trials=0,
        tune_seconds=0.0,
        seeds=seeds,
        trained=trained,
        refined=trained,
        build_seconds=SAFETY * build_seconds(size) / processes,
        first_seconds=SAFETY * (folds(train, _TRAIN_FOLDS) + FIRST_SEEDS * fit(train) / threads + judged),
        trial_seconds=SAFETY * folds(train, _TUNE_FOLDS),
        final_seconds=SAFETY * (folds(rows, _TRAIN_FOLDS) + seeds * fit(rows) / threads),
        rank_seconds=SAFETY * (size.rows("test") * rounds * seeds * cost.predict_seconds / threads),
        memory_gb=(rows * row_bytes + _PROCESS) / 1e9,
        disk_gb=sum(
            (cost.disk_bytes * size.rows(split, kept if split == "train" else 0))
            + cost.disk_graph * len(size.graphs[split])
            for split in size.graphs
        )
        / 1e9,
    )
