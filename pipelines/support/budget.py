"""The budget of `run-all`: how many rows of each collection fit into the time and the memory for it."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from xlarank.data.collection import Collection, CollectionSize
from xlarank.data.errors import CollectionError, XlarankError, counted
from xlarank.data.files import read_text
from xlarank.data.graph import Kind
from xlarank.data.ranges import require_ranges
from xlarank.data.workspace import Workspace
from xlarank.features.store import read_manifest
from xlarank.models.training_data import FitSettings
from xlarank.models.validation.curves import MOST_FOLDS
from xlarank.pipelines.support.processes import machine_memory

if TYPE_CHECKING:
    from xlarank.pipelines.support.building import PartJob


class _Cost(NamedTuple):
    """Seconds and bytes of one kind of graphs on one core, as measured; a choice is a node of a configuration."""

    most: int  # configurations of a graph that are trained on
    config_bytes: float  # a configuration while its file is built
    choice_bytes: float
    file_seconds: float  # a graph file to be built, and each node, configuration and choice of it
    node_seconds: float
    config_seconds: float
    choice_seconds: float
    part_disk: float  # bytes of a stored file, and of each row and choice in it
    row_disk: float
    choice_disk: float
    fit_seconds: float  # a row, for a fit of 300 rounds
    row_bytes: float
    fold_bytes: float  # a row, for each fold that is fitted at the same time


_COSTS: Final[dict[Kind, _Cost]] = {
    "layout": _Cost(1000, 3_500, 4.8, 0.15, 2e-5, 5e-5, 7e-7, 4e5, 350, 0.2, 1.5e-3, 7_200, 16_400),
    "tile": _Cost(100, 1_500, 0.0, 0.01, 0.0, 2e-5, 0.0, 1.8e5, 100, 0.0, 0.25e-3, 2_900, 9_900),
}
#: Fits for a first model, and for all that is done with a collection with some ten trials.
_FIRST_FITS, _ALL_FITS = 11, 60
#: Fits of a trial, most of which rungs end early.
TRIAL_FITS: Final = (_ALL_FITS - _FIRST_FITS) / 10
#: Seconds of the clock for a second of one core, with what cores lose side by side and for files to be built.
_SAFETY: Final = 2.0
#: Memory is planned to this share; a process with the libraries loaded takes so many bytes.
_MEMORY_SHARE, _PROCESS = 0.75, 350e6
#: Configurations of a graph; a model of fewer ranks no better than the order of the file.
_LEAST: Final = 16


@dataclass(frozen=True)
class RunSettings:
    """Settings of `run_all`.

    Attributes:
        ram_gb: memory in 1e9 bytes; 0 for nine tenths of the machine's.
        cores: of the processor; 0 for all that this process may use.
        jobs: processes that build features; 0 chooses by cores and memory.
        models: a workspace whose trained models rank the test graphs; then nothing is tuned or trained.
    """

    hours: float = 12.0
    ram_gb: float = 0.0
    cores: int = 0
    seeds: int = 3
    trials: int = 100
    jobs: int = 0
    models: Path | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        require_ranges(seeds=self.seeds, seed=self.seed, jobs=self.jobs, trials=max(self.trials, 1))
        known = hasattr(os, "sched_getaffinity")
        cores = len(os.sched_getaffinity(0)) if known else os.cpu_count() or 1
        object.__setattr__(self, "ram_gb", self.ram_gb or 0.9e-9 * machine_memory())
        object.__setattr__(self, "cores", self.cores or cores)
        for name, value in (("--budget-hours", self.hours), ("--budget-ram-gb", self.ram_gb)):
            if not (value > 0 and math.isfinite(value)):
                raise XlarankError(f"{name} is {value}", expected="a number above 0")


@dataclass(frozen=True)
class CollectionPlan:
    """What a model of one collection is trained on.

    Attributes:
        max_configs: kept of each training graph; ``most_configs`` would still fit into memory.
        rows: training rows, valid included; 0 without training graphs, test graphs or enough memory.
        first_seconds: expected for a first model.
    """

    collection: Collection
    max_configs: int
    most_configs: int
    rows: int
    first_seconds: float
    memory_gb: float
    jobs: int


def plan_collection(size: CollectionSize, settings: RunSettings, collections: int) -> CollectionPlan:
    """Cut the rows of one of so many collections to what fits into an equal share of the time and the memory."""
    cost = _COSTS[size.collection.kind]
    usable = 1e9 * settings.ram_gb * _MEMORY_SHARE - _PROCESS
    configs, _, configurable = np.concatenate([*size.table.values()]).T
    largest = _PROCESS + (configs * (cost.config_bytes + cost.choice_bytes * configurable)).max(initial=0.0)
    jobs = max(1, min(settings.jobs or settings.cores, int(usable / largest)))
    row_bytes = cost.row_bytes + min(settings.cores, max(1, size.families)) * cost.fold_bytes
    row_seconds = _SAFETY * cost.fit_seconds / settings.cores
    graphs = max(1, len(size.graphs.get("train", ())) + len(size.graphs.get("valid", ())))
    most = int(usable / row_bytes / graphs)
    in_time = int(3600 * settings.hours / collections / (_ALL_FITS * row_seconds * graphs))
    kept = max(_LEAST, min(cost.most, most, in_time))
    rows = size.rows("train", kept) + size.rows("valid", kept)
    useful = most >= _LEAST and size.rows("train") and size.rows("test")
    seconds, memory = _FIRST_FITS * row_seconds * rows, 1e-9 * (rows * row_bytes + _PROCESS)
    return CollectionPlan(size.collection, kept, most, rows if useful else 0, seconds, memory, jobs)


def forecast_building(jobs: Sequence[PartJob], processes: int) -> str:
    """Describe the rows of graph files, with approximate memory, disk and time; empty without any."""
    rows, seconds, disk, largest = 0, 0.0, 0.0, 0.0
    for job in jobs:
        cost = _COSTS[job.place[0].kind]
        disk += cost.part_disk
        for size in job.sizes:
            choices = size.configs * size.configurable
            seconds += cost.file_seconds + size.nodes * cost.node_seconds
            seconds += size.configs * cost.config_seconds + choices * cost.choice_seconds
            largest = max(largest, size.configs * cost.config_bytes + choices * cost.choice_bytes)
            kept = min(size.configs, job.recipe.max_configs or size.configs)
            rows += kept
            disk += kept * (cost.row_disk + size.configurable * cost.choice_disk)
    graphs = sum(len(job.sizes) for job in jobs)
    memory = f"{1e-9 * processes * (largest + _PROCESS):.1f} GB of memory"
    about = f"{memory}, {max(1e-6 * disk, 1):,.0f} MB of disk and {_duration(seconds / processes)}"
    return f"{counted(graphs, 'graph')}, at most {counted(rows, 'row')}: about {about}" if graphs else ""


def _duration(seconds: float) -> str:
    return f"{max(seconds, 1):.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def forecast(
    workspace: Workspace, collection: Collection, splits: Sequence[str], fit: FitSettings, fits: float = 0
) -> str:
    """Describe how many rows of a collection are trained on, with approximate memory and time.

    ``fits`` is the number of fits of LightGBM; 0 omits the time. Raises `CollectionError`, with the setting
    that would fit, if the rows need more memory than there is.
    """
    stored = (read_manifest(workspace, collection, split) for split in splits)
    manifests = [manifest for manifest in stored if manifest is not None]
    entries = [graph for manifest in manifests for graph in manifest.graphs.values() if graph.labelled]
    if not entries:
        return f"{collection}: no labelled rows"
    cost, cores, memory = _COSTS[collection.kind], fit.threads or os.cpu_count() or 1, machine_memory()
    most = manifests[0].recipe.max_configs
    rows = sum(min(graph.rows, most or graph.rows) for graph in entries)
    row_bytes = cost.row_bytes + min(cores, MOST_FOLDS) * cost.fold_bytes
    size = rows * row_bytes + _PROCESS
    if size > memory:
        kept = int((memory - _PROCESS) / row_bytes / len(entries))
        raise CollectionError(
            f"training on the {rows:,} rows of {collection} takes about {1e-9 * size:.3g} GB",
            expected=f"no more than the {1e-9 * memory:.3g} GB of memory",
            do=f"run build-features with --max-configs {max(kept, _LEAST)}, or train with fewer --threads",
        )
    seconds = _SAFETY * cost.fit_seconds * rows * fits * fit.rounds / 300 / cores
    time = f", about {_duration(seconds)}" if fits else ""
    return f"{collection}: {rows:,} rows, about {1e-9 * size:.1f} GB of memory{time}"


def first_scores(workspace: Workspace, collection: Collection) -> Path:
    """Where the scores of a collection's first model lie, by whose seconds its study is planned."""
    return workspace.reports() / f"first-{'-'.join(collection.parts)}.json"


def read_first_scores(workspace: Workspace, collection: Collection) -> dict[str, Any]:
    """Scores on valid of a model trained on train alone; empty where there are none.

    ``seconds`` is what its training took; ``report`` is `metrics.summarise` of all graphs.
    """
    try:
        found = dict(json.loads(read_text(first_scores(workspace, collection))))
        if "report" in found:
            score = found["report"]["score"]
            float(score["mean"]) + float(score["std"]) + len(score["graphs"])
        return found
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return {}
