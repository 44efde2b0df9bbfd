"""Proposal of configurations for a program: random ones, or the best by a model's scores."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from xlarank.data.errors import GraphFileError
from xlarank.data.graph import LayoutGraph, read_graph
from xlarank.data.hlo.reading import read_hlo
from xlarank.data.workspace import Workspace
from xlarank.pipelines.programs.candidates import Codes, evolve, random_configurations
from xlarank.pipelines.programs.sources import SearchSettings, write_configurations
from xlarank.pipelines.ranking.model_choice import model_for_graph, rows_for_model


@dataclass(frozen=True, kw_only=True)
class ProposeSettings(SearchSettings):
    """Settings of `propose`; outputs of fewer than ``min_elements`` elements are left to the
    compiler.
    """

    configs: int = 1000
    min_elements: int = 1024
    population: int = 256
    generations: int = 12


@dataclass(frozen=True)
class Proposal:
    """A written graph file.

    Attributes:
        free: number of configurable nodes that have a choice.
        groups: number of groups of tied free nodes; ``free`` if none are tied.
        choices: minimum and maximum number of candidate rows of a free node, the default included.
        space: log10 of the number of possible configurations.
        guided_by: collection of the model whose scores guided the search.
        default_place: number of configurations that the model ranks ahead of the default.
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
    default_place: int | None
    seconds: float


def propose(
    path: Path,
    out: Path,
    settings: ProposeSettings,
    *,
    workspace: Workspace,
    collection: str | None = None,
) -> Proposal:
    """Write ``out``, a graph file of the program in ``path`` with proposed configurations, none
    measured.

    ``path`` is a layout graph's npz file or an HLO program. `model_for_graph` chooses the model
    that guides ``evolve``. Raises `GraphFileError` or `HloError` for the file, `ModelError` if a
    model is missing.
    """
    start = time.perf_counter()
    graph = read_graph(path) if path.suffix == ".npz" else read_hlo(path)
    if not isinstance(graph, LayoutGraph):
        got = f"{path.name} is a kernel with tile sizes"
        raise GraphFileError(got, expected="a program with layouts")
    rng = np.random.default_rng(settings.seed)
    candidates = settings.candidates(graph, rng, settings.min_elements)
    if not len(candidates.free):
        got = f"{path.name}: none of {len(graph.configurable)} configurable nodes has a choice"
        expected = f"an output of two or more dimensions and {settings.min_elements} elements"
        raise GraphFileError(got, expected=expected, do="pass a smaller `min_elements`")
    model = None
    rank = None
    if settings.search == "random":
        codes = random_configurations(candidates, settings.configs, rng)
    else:
        chosen = model = model_for_graph(workspace, graph, path, collection=collection)

        def score(codes: Codes) -> NDArray[np.float64]:
            rows = rows_for_model(candidates.graph(graph, codes), chosen)
            return chosen.score(rows).mean[rows.group]

        codes = evolve(
            candidates,
            score,
            settings.configs,
            rng,
            population=settings.population,
            generations=settings.generations,
        )
        scores = score(codes)
        rank = int((scores < scores[0]).sum())
    write_configurations(out, graph, candidates.expand(codes), np.zeros(len(codes), np.int64))
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
        guided_by=model.place if model else None,
        default_place=rank,
        seconds=time.perf_counter() - start,
    )
