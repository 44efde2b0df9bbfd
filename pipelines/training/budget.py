"""Estimates of time and memory, and limits of training rows."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from xlarank.data.collection import Collection
from xlarank.data.errors import CollectionError, counted, duration
from xlarank.data.families import program_family
from xlarank.data.graph import Kind
from xlarank.data.workspace import Workspace
from xlarank.features.store import Manifest, read_manifests
from xlarank.models.training_data import FitSettings
from xlarank.models.validation.folds import MOST_FOLDS

if TYPE_CHECKING:
    from xlarank.pipelines.support.building import PartJob


class _Costs(NamedTuple):
    """Measured costs on a core, per file, part, node, row or choice (configurable node, row).

    A fit takes ``row_bytes`` per row, plus ``fold_bytes`` per row and fold fitted in parallel;
    building takes the other ``*_seconds``, ``*_bytes`` of memory and
    ``*_disk`` bytes of disk. Plans keep at most ``max_configs`` configurations of a training graph.
    The defaults are those of layouts.
    """

    config_bytes: float = 3_500
    choice_bytes: float = 4.8
    file_seconds: float = 0.15
    node_seconds: float = 2e-5
    config_seconds: float = 5e-5
    choice_seconds: float = 7e-7
    part_disk: float = 4e5
    row_disk: float = 350
    choice_disk: float = 0.2
    row_bytes: float = 7_200
    fold_bytes: float = 16_400
    max_configs: int = 1000


_COSTS: Final[dict[Kind, _Costs]] = {
    "layout": _Costs(),
    "tile": _Costs(
        config_bytes=1_500,
        choice_bytes=0.0,
        file_seconds=0.01,
        node_seconds=0.0,
        config_seconds=2e-5,
        choice_seconds=0.0,
        part_disk=1.8e5,
        row_disk=100,
        choice_disk=0.0,
        row_bytes=2_900,
        fold_bytes=9_900,
        max_configs=100,
    ),
}
#: Fits for a first model, and for all models of a collection with ten trials.
_FIRST_FITS = 11
_ALL_FITS = 60
#: Factor on measured seconds, for parallel overhead and the building of features.
_SAFETY: Final = 2.0
#: Planned share of the memory, and bytes of a process with the libraries loaded.
_MEMORY_SHARE = 0.75
_PROCESS = 350e6
#: Files with a container's memory limit in bytes; without a limit, they hold "max" or a huge
#: number.
_LIMITS: Final = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
#: Minimum number of configurations per graph; with fewer, a model ranks no better than the default
#: order.
MIN_CONFIGS: Final = 16
#: Maximum training rows of a collection, by default; more configurations of a graph hardly raise
#: the score (docs/explanation/tuning.md).
MAX_ROWS: Final[dict[Kind, int]] = {"layout": 100_000, "tile": 500_000}


def machine_memory() -> float:
    """Return the bytes of memory of the machine, or of the container that this process runs in."""
    sizes = [float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))]
    for path in _LIMITS:
        with suppress(OSError, ValueError):
            sizes.append(float(Path(path).read_text(encoding="ascii")))
    return min(sizes)


def forecast_building(jobs: Sequence[PartJob], processes: int) -> str:
    """Describe the rows of graph files, with approximate memory, disk and time."""
    rows = 0
    seconds = 0.0
    disk = 0.0
    largest = 0.0
    for job in jobs:
        cost = _COSTS[job.collection.kind]
        configs, nodes, configurable = np.array(job.sizes).T
        choices = configs * configurable
        kept_configs = np.minimum(configs, job.recipe.max_configs or configs)
        rows += int(kept_configs.sum())
        seconds += float((cost.file_seconds + nodes * cost.node_seconds).sum())
        seconds += float((configs * cost.config_seconds + choices * cost.choice_seconds).sum())
        memory = configs * cost.config_bytes + choices * cost.choice_bytes
        largest = max(largest, float(memory.max()))
        row_disk = cost.row_disk + configurable * cost.choice_disk
        disk += cost.part_disk + float((kept_configs * row_disk).sum())
    graphs = sum(len(job.sizes) for job in jobs)
    costs = f"{1e-9 * processes * (largest + _PROCESS):.1f} GB of memory"
    costs += f", {max(1e-6 * disk, 1):,.0f} MB of disk and {duration(seconds / processes)}"
    return f"{counted(graphs, 'graph')}, at most {counted(rows, 'row')}: about {costs}"


def even_limit(sizes: Sequence[int], total: int) -> int:
    """Return the largest number of rows per graph with which graphs of these ``sizes`` have at most
    ``total`` rows.

    >>> even_limit([10, 50, 90], 150), even_limit([10, 50, 90], 70), even_limit([10, 50, 90], 25)
    (90, 30, 8)
    """
    left = total
    for number, size in enumerate(sorted(sizes)):
        share = left // (len(sizes) - number)
        if share < size:
            return share
        left -= size
    return max(sizes)


def training_sizes(
    collection: Collection, manifests: Sequence[Manifest], max_rows: int | None
) -> dict[str, int]:
    """Return the number of training rows of each labelled graph.

    The graphs of all splits have at most as many rows as those of the first, and `even_limit` for
    ``max_rows`` in total (0: all, None: the default of the kind), but `MIN_CONFIGS` or more.
    """
    graphs: dict[str, int] = {}
    for manifest in manifests:
        for name, graph in manifest.graphs.items():
            if graph.labelled:
                graphs[name] = min(graph.rows, manifests[0].recipe.max_configs or graph.rows)
    total = MAX_ROWS[collection.kind] if max_rows is None else max_rows
    if not total or sum(graphs.values()) <= total:
        return graphs
    limit = max(MIN_CONFIGS, even_limit([*graphs.values()], total))
    return {name: min(rows, limit) for name, rows in graphs.items()}


def forecast(
    workspace: Workspace,
    collection: Collection,
    splits: Sequence[str],
    fit: FitSettings,
    max_rows: int | None = None,
) -> str:
    """Describe the rows and the memory of training; raises as `required_memory`."""
    manifests = [*read_manifests(workspace, collection, splits).values()]
    sizes = training_sizes(collection, manifests, max_rows)
    if not sizes:
        return f"{collection}: no labelled rows"
    size = required_memory(collection, sizes, fit)
    built = sum(graph.rows for manifest in manifests for graph in manifest.graphs.values())
    rows = counted(sum(sizes.values()), "row")
    sampled = f" of {built:,}" if sum(sizes.values()) < built else ""
    return f"{collection}: {rows}{sampled}, about {1e-9 * size:.1f} GB of memory"


def required_memory(
    collection: Collection, sizes: Mapping[str, int], fit: FitSettings | None
) -> float:
    """Return the bytes to train on ``{graph: rows}``, or to read them if ``fit`` is None.

    Raises `CollectionError`, which names a smaller setting, if the memory is too small.
    """
    cost = _COSTS[collection.kind]
    memory = machine_memory()
    rows = sum(sizes.values())
    families = len({program_family(name) for name in sizes})
    folds = 0
    if fit and fit.cluster is None:
        folds = min(fit.threads or os.cpu_count() or 1, families, MOST_FOLDS)
    row_bytes = cost.row_bytes + folds * cost.fold_bytes
    size = rows * row_bytes + _PROCESS
    if size > memory:
        affordable = max(MIN_CONFIGS, int((memory - _PROCESS) / row_bytes / len(sizes)))
        rows_of = f"the {counted(rows, 'row')} of {collection}"
        got = f"training on {rows_of} takes about {1e-9 * size:.3g} GB"
        expected = f"no more than the {1e-9 * memory:.3g} GB of memory"
        smaller = f"run build-features with `max_configs={affordable}`"
        do = f"{smaller}, train with a smaller `max_rows`, or with fewer `threads`"
        raise CollectionError(got, expected=expected, do=do)
    return size
