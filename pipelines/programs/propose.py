"""Configurations for a program, random or best by a model's scores, with estimates of the first."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from xlarank.data.collection import Collection
from xlarank.data.errors import GraphFileError
from xlarank.data.graph import LayoutGraph, read_graph
from xlarank.data.hlo.reading import module_of, read_hlo, read_program
from xlarank.data.workspace import Workspace
from xlarank.models.model import Model
from xlarank.pipelines.programs.candidates import (
    CandidateLayouts,
    Codes,
    evolve,
    random_configurations,
)
from xlarank.pipelines.programs.compiler.chips import DEFAULT_CHIP, chip_named
from xlarank.pipelines.programs.compiler.constrain import constrain, layouts_of
from xlarank.pipelines.programs.compiler.outcome import Status
from xlarank.pipelines.programs.compiler.session import Compiler
from xlarank.pipelines.programs.sources import SearchSettings, write_configurations
from xlarank.pipelines.ranking.model_choice import choose_for_graph, rows_for_model
from xlarank.pipelines.support.progress import Progress, steps_of

#: Number of configurations that survive a generation, unless more are requested.
_POPULATION = 256


@dataclass(frozen=True)
class Proposal:
    """A written graph file.

    Attributes:
        free: number of configurable nodes that have a choice.
        groups: number of groups of tied free nodes; ``free`` if none are tied.
        choices: minimum and maximum number of candidate rows of a free node, the default included.
        space: log10 of the number of possible configurations.
        guided_by: title of the model whose scores guided the search.
        learned_from: labels of the graphs that the model learned from.
        default_place: number of configurations that the model ranks ahead of the default.
        estimates: estimated cycles by number, if checked; None if it does not compile.
    """

    graph: str
    out: str
    search: str
    configs: int
    configurable: int
    free: int
    groups: int
    choices: tuple[int, int]
    space: float
    guided_by: str | None
    learned_from: str | None
    default_place: int | None
    estimates: dict[int, int | None]
    seconds: float

    @property
    def is_check_passed(self) -> bool:
        """Whether a checked configuration has a lower estimate than the compiler's default."""
        compiled = [cycles for cycles in self.estimates.values() if cycles is not None]
        return bool(compiled) and min(compiled) != self.estimates[0]


def propose(
    path: Path,
    out: Path,
    settings: SearchSettings,
    *,
    workspace: Workspace,
    collection: str | None = None,
    min_elements: int = 1024,
    check: int = 0,
    progress: Progress | None = None,
) -> Proposal:
    """Write ``out``, a graph file of a program with proposed configurations, none measured.

    ``path`` is a layout graph's npz file or an HLO program. `model_for_graph` chooses the model
    that guides ``evolve``. Outputs of fewer than ``min_elements`` elements are left to the
    compiler. After the default, ``check`` configurations are compiled for
    `DEFAULT_CHIP`. Raises `GraphFileError` or `HloError` for the file, `ModelError` if a
    model is missing, `CompilerError` if ``check`` is set and the compiler is missing.
    """
    start = time.perf_counter()
    graph = _read_graph(path, is_compiled=check > 0)
    rng = np.random.default_rng(settings.seed)
    candidates = settings.candidates(graph, rng, min_elements)
    if not len(candidates.free):
        got = f"{path.name}: none of {len(graph.configurable)} configurable nodes has a choice"
        expected = f"an output of two or more dimensions and {min_elements} elements"
        raise GraphFileError(got, expected=expected, do="pass a smaller `min_elements`")
    model = None
    default_place = None
    if settings.search == "random":
        codes = random_configurations(candidates, settings.configs, rng)
    else:
        model = choose_for_graph(workspace, graph, path, collection=collection)[0].model
        codes, default_place = _evolved(graph, candidates, model, settings, rng)
    rows = candidates.expand(codes)
    write_configurations(out, graph, rows, np.zeros(len(codes), np.int64))
    checked = rows[: check + 1]
    estimates = _estimates(path, graph, checked, progress) if check else {}
    row_counts = candidates.choices[candidates.free]
    return Proposal(
        graph.name,
        str(out),
        settings.search,
        len(codes),
        configurable=len(graph.configurable),
        free=int(np.isin(candidates.group, candidates.free).sum()),
        groups=len(candidates.free),
        choices=(int(row_counts.min()), int(row_counts.max())),
        space=float(np.log10(candidates.choices).sum()),
        guided_by=model.title if model else None,
        learned_from=_labels_of(model) if model else None,
        default_place=default_place,
        estimates=estimates,
        seconds=time.perf_counter() - start,
    )


def _read_graph(path: Path, *, is_compiled: bool) -> LayoutGraph:
    """Read a graph or program; only programs can be compiled."""
    if path.suffix != ".npz":
        return read_hlo(path)
    if is_compiled:
        got = f"{path.name} holds a graph, and `check` compiles a program"
        raise GraphFileError(got, expected="an HLO program", do="pass the file it was made from")
    graph = read_graph(path)
    if not isinstance(graph, LayoutGraph):
        got = f"{path.name} is a kernel with tile sizes"
        raise GraphFileError(got, expected="a program with layouts")
    return graph


def _evolved(
    graph: LayoutGraph,
    candidates: CandidateLayouts,
    model: Model,
    settings: SearchSettings,
    rng: np.random.Generator,
) -> tuple[Codes, int]:
    """Return the best configurations by a model, and how many it ranks ahead of the default."""

    def score(codes: Codes) -> NDArray[np.float64]:
        rows = rows_for_model(candidates.graph(graph, codes), model)
        return model.score(rows)[rows.group]

    codes = evolve(
        candidates,
        score,
        settings.configs,
        rng,
        population=_POPULATION,
        generations=settings.generations,
    )
    scores = score(codes)
    return codes, int((scores < scores[0]).sum())


def _labels_of(model: Model) -> str:
    """Return the origin of the labels that a model learned from."""
    if not model.shipped:
        collection = Collection.parse(model.require_card().collection)
        return f"graphs of {collection}, {collection.label_source}"
    if model.is_time_model:
        return "TpuGraphs' programs, measured on TPU v3"
    return "no measurements" if model.members else "no labels"


def _estimates(
    path: Path, graph: LayoutGraph, rows: NDArray[np.int8], progress: Progress | None
) -> dict[int, int | None]:
    """Return the compiler's estimated cycles of configurations ``rows (configs, nodes, 18)``."""
    module = module_of(read_program(path))
    orders = [layouts_of(module, graph.configurable, row) for row in rows]
    estimates: dict[int, int | None] = dict.fromkeys(range(len(rows)))
    title = f"compiling {graph.name} for {DEFAULT_CHIP}"
    with (
        Compiler(chip_named(DEFAULT_CHIP)) as compiler,
        steps_of(progress, title, len(rows)) as step,
    ):
        modules = (constrain(module, layouts) for layouts in orders)
        for at, outcome in compiler.compile(modules):
            step("")
            if outcome.status is Status.OK:
                estimates[at] = outcome.cycles
    return estimates
