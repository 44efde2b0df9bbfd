"""Training data (rows of many graphs with group boundaries), fit settings, and target hardware."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any, Final, Self

import numpy as np

from xlarank.data.errors import MAX_ROUNDS, MAX_SEED, MAX_THREADS, ModelError, counted
from xlarank.data.families import program_family
from xlarank.data.graph import Kind
from xlarank.data.hardware import GPUS, TPUGRAPHS
from xlarank.features.layout.padding import FASTEST, OVER_FASTEST, TIMES
from xlarank.features.layout.relayout_quantities import TIME
from xlarank.features.rows import GraphRows, graph_generator
from xlarank.features.tile.bounds import tile_inner
from xlarank.features.tile.tpu_time import tpu_time
from xlarank.models.arrays import Floats, Indices, Integers, Matrix
from xlarank.models.params import Interval


@dataclass(frozen=True)
class Target:
    """Columns that describe a kind of hardware and estimate times on it.

    Attributes:
        columns: columns of tiles that describe this hardware only.
        estimate: columns, by kind of graphs, whose sum is log2 of an estimated time (ns; for tiles,
            cycles).
        times: columns of estimated times; larger is slower.
        starts: kinds of graphs for which the estimate is the initial score by default.
    """

    name: str
    columns: frozenset[str] = frozenset()
    estimate: Mapping[Kind, tuple[str, ...]] = field(default_factory=dict, hash=False)
    times: frozenset[str] = frozenset()
    starts: frozenset[Kind] = frozenset(["layout", "tile"])


#: A core with AVX2.
CPU: Final = Target(
    "cpu",
    frozenset([*tile_inner.columns, "shape__input_registers__log"]),
    {"tile": ("estimate__sum__log",), "layout": (TIME,)},
    frozenset(["estimate__sum__log", TIME]),
)
_PADDED: Final = (
    "traffic__padded_tile__log",
    "traffic__padded_tile__ratio",
    "traffic__padded_vmem__ratio",
)
_TPU_TILES: Final = frozenset(
    ["kernel__physical__flag", "traffic__vmem__ratio", *_PADDED, *tpu_time.columns]
)
_CYCLES: Final = "tpu__cycles__log"
#: A TPU, as the files of the dataset were measured on: a core with 16 MiB of vector memory and
#: tiles of 8 x 128. Layouts follow the work of the matrix unit; trees that begin there rank no
#: better than trees that do not.
DATASET: Final = Target(
    TPUGRAPHS,
    _TPU_TILES,
    {"tile": (_CYCLES,), "layout": (FASTEST, OVER_FASTEST)},
    frozenset([_CYCLES, *TIMES]),
    frozenset(["tile"]),
)
#: A TPU, for layouts that are set in a program: they follow the copies that the compiler inserts.
TPU: Final = Target(
    "tpu", _TPU_TILES, {"tile": (_CYCLES,), "layout": (TIME,)}, frozenset([_CYCLES, TIME])
)
#: Only layouts are measured on GPUs.
GPU: Final = Target("gpu", estimate={"layout": (TIME,)}, times=frozenset([TIME]))
#: Hardware that a source does not name: nothing is estimated, and trees begin at 0.
UNKNOWN: Final = Target("")
TARGETS: Final = {target.name: target for target in (CPU, DATASET, TPU, GPU)}


def target_of(hardware: str) -> Target:
    """Return the columns that describe hardware (`xlarank.data.hardware`); `UNKNOWN` if empty.

    >>> names = ("cpu", "nvidia-h100", "tpugraphs", "tpu-v4", "")
    >>> [target_of(name).name for name in names]
    ['cpu', 'gpu', 'tpugraphs', 'tpu', '']
    """
    if hardware.startswith(GPUS):
        return GPU
    if hardware.startswith("tpu-"):
        return TPU
    return TARGETS.get(hardware, UNKNOWN)


@dataclass(frozen=True)
class FitSettings:
    """Maximum number of rounds, seed and threads; raises `ModelError` for bad values.

    Attributes:
        threads: number of threads; 0 and -1 mean all cores.
    """

    rounds: int
    seed: int = 0
    threads: int = 0

    def __post_init__(self) -> None:
        limits = {"rounds": (0, MAX_ROUNDS), "seed": (0, MAX_SEED), "threads": (-1, MAX_THREADS)}
        for name, (low, high) in limits.items():
            value = Interval(low, high, whole=True)(name, getattr(self, name))
            object.__setattr__(self, name, value)  # an int: numpy's are not valid JSON
        object.__setattr__(self, "threads", max(0, self.threads))


@dataclass(frozen=True, eq=False)
class TrainingData:
    """Query groups of one kind of graphs: the measured rows of rankable graphs.

    Attributes:
        target: hardware to rank for.
        also: graphs of other collections, used for training but not for validation.
        orders: permutation of the rows of each group; None unless `shuffled`.
    """

    parts: Sequence[GraphRows]
    target: Target = UNKNOWN
    also: Sequence[GraphRows] = ()
    orders: Sequence[Indices] | None = None

    @classmethod
    def from_graphs(cls, graphs: Sequence[GraphRows], target: Target = UNKNOWN) -> Self:
        """Take the measured rows of rankable graphs; raises `ModelError` if there are none."""
        usable = [graph.measured() for graph in graphs if not graph.unusable]
        if not usable:
            got = f"none of {counted(len(graphs), 'graph')} can be trained on"
            expected = "a graph with measured runtimes and two configurations that differ"
            raise ModelError(got, expected=expected)
        return cls(usable, target)

    @property
    def groups(self) -> int:
        return len(self.parts)

    @cached_property
    def names(self) -> list[str]:
        return [part.name for part in self.parts]

    @cached_property
    def families(self) -> list[str]:
        return [program_family(name) for name in self.names]

    @property
    def columns(self) -> list[str]:
        return self.parts[0].columns

    @cached_property
    def indptr(self) -> Integers:
        """``(groups + 1,)``; group g is rows ``indptr[g]:indptr[g + 1]``."""
        return np.cumsum([0, *map(len, self.parts)])

    @cached_property
    def cost(self) -> Floats:
        """``(rows,)`` lower is faster; comparable only within a group."""
        costs = [part.row_cost for part in self.parts]
        if self.orders is not None:
            costs = [cost[order] for cost, order in zip(costs, self.orders, strict=True)]
        return np.concatenate(costs)

    def matrix(self, used: Indices | None = None) -> Matrix:
        """Copy ``(rows, columns)`` values of all columns or of those ``used``, ascending."""
        return np.concatenate([self.group_matrix(group, used=used) for group in range(self.groups)])

    def group_matrix(
        self, group: int, rows: slice = slice(None), used: Indices | None = None
    ) -> Matrix:
        """Copy ``rows`` of one group, with columns as in `matrix`."""
        return self.parts[group].matrix(
            rows if self.orders is None else self.orders[group][rows], used
        )

    def shuffled(self, seed: int) -> TrainingData:
        """Shuffle the rows of each group, seeded by ``seed`` and the graph's name."""
        orders = [graph_generator(seed, part.name).permutation(len(part)) for part in self.parts]
        return replace(self, orders=orders)

    def per_group(self, function: Callable[[Floats], Floats]) -> Floats:
        """Apply a function to the costs of each group and join the results."""
        return np.concatenate([function(cost) for cost in self.split(self.cost)])

    def split(self, values: Floats) -> list[Floats]:
        """Split ``(rows,)`` values by group."""
        return np.split(values, self.indptr[1:-1])

    def centred(self, values: Floats) -> Floats:
        """Subtract the mean over each graph from ``(rows,)`` values."""
        sizes = np.diff(self.indptr)
        return values - np.repeat(np.add.reduceat(values, self.indptr[:-1]) / sizes, sizes)

    def training_groups(self, held_out: Sequence[int] = ()) -> TrainingData:
        """Return the groups to train on: all except those ``held_out``.

        Groups of other collections are included unless their program or kernel family is held out.
        """
        families = {self.families[group] for group in held_out}
        kernels = {*chain.from_iterable(self.parts[group].kernel_families for group in held_out)}
        parts = [part for group, part in enumerate(self.parts) if group not in held_out]
        for part in self.also:
            if program_family(part.name) not in families and kernels.isdisjoint(
                part.kernel_families
            ):
                parts.append(part)
        return TrainingData(parts, self.target)


@dataclass(frozen=True, eq=False)
class Dataset:
    """Rows, labels and parameters that trees are grown on, by the names of `lightgbm.Dataset`.

    Attributes:
        data: query groups, shuffled if graphs are split into several groups.
        label: ``(rows,)``.
        params: parameters of the library, including the objective.
        weight: ``(rows,)`` weights, for XGBoost ``(groups,)``; None for 1.
        group: number of rows of each query group of LightGBM; None if its objective has no groups.
        init_score: ``(rows,)`` relevance to which trees are added; None for 0.
    """

    data: TrainingData
    label: Floats
    params: dict[str, Any]
    weight: Floats | None = None
    group: list[int] | None = None
    init_score: Floats | None = None
