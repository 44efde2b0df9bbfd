"""Propose configurations for a program: random ones, or the best by a model's scores."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from xlarank.data.errors import GraphFileError, XlarankError
from xlarank.data.graph import LayoutGraph, read_graph
from xlarank.data.hlo.candidates import (
    Candidates,
    Slots,
    Tie,
    candidate_rows,
    evolve,
    random_configurations,
    tied_candidates,
)
from xlarank.data.hlo.reading import read_hlo
from xlarank.data.workspace import Workspace
from xlarank.models.trained import TrainedModel
from xlarank.pipelines.programs.sources import model_score, write_configurations
from xlarank.pipelines.ranking.model_choice import model_for_graph

Search = Literal["random", "evolve"]


@dataclass(frozen=True)
class ProposeSettings:
    """How to search.

    Attributes:
        search: ``random``, or ``evolve`` for a genetic search around the compiler's choice by a model's scores.
        tie: ``rule``: nodes take their layouts together, as in Google's files; ``none``: each by itself.
        slots, min_elements: of `xlarank.data.hlo.candidates.tied_candidates` or `candidate_rows`.
        per_node, named: of `candidate_rows`, for nodes that are not tied.
    """

    search: Search = "random"
    configs: int = 1000
    tie: Tie = "rule"
    slots: Slots = "output"
    per_node: int = 8
    named: int | None = None
    min_elements: int = 1024
    population: int = 256
    generations: int = 12
    seed: int = 0


@dataclass(frozen=True)
class Proposal:
    """What was written.

    Attributes:
        configurable, free: nodes that can be configured, and those of them that have a choice.
        groups: number of groups that the free nodes make; as many as they are where nothing is tied.
        choices: (fewest, most) rows that a free node may take, the default among them.
        space: logarithm to base 10 of how many configurations the candidate rows allow.
        guided_by: collection of the model whose scores guided the search, or None.
        default_place: how many of them the model ranks ahead of the default, or None.
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
    workspace: Workspace | None = None,
    collection: str | None = None,
    model: TrainedModel | None = None,
) -> Proposal:
    """Write ``out``, a graph file of the program in ``path`` with proposed configurations, none measured.

    ``path`` is a layout graph's npz file or an HLO program. The model that guides ``evolve`` is ``model``, or that
    of ``workspace`` for this file or for ``collection``.

    Raises `GraphFileError` or `HloError` for the file, `ModelError` where a model is missing.
    """
    search, configs = settings.search, settings.configs
    if search not in get_args(Search):
        raise XlarankError(f"the search is {search!r}", expected=" or ".join(get_args(Search)))
    if settings.tie not in get_args(Tie):
        raise XlarankError(f"tie is {settings.tie!r}", expected=" or ".join(get_args(Tie)))
    if configs < 1:
        raise XlarankError(f"{configs} configurations were asked for", expected="at least 1")
    start = time.perf_counter()
    graph = read_graph(path) if path.suffix == ".npz" else read_hlo(path)
    if not isinstance(graph, LayoutGraph):
        raise GraphFileError(f"{path.name} is a kernel with tile sizes", expected="a program with layouts")
    rng = np.random.default_rng(settings.seed)
    candidates = _candidates(graph, settings, rng)
    if not len(candidates.free):
        raise GraphFileError(
            f"{path.name}: none of {candidates.nodes} configurable nodes has a choice",
            expected=f"an output of two or more dimensions and {settings.min_elements} elements",
            do="pass a smaller --min-elements",
        )
    place = None
    if search == "random":
        codes = random_configurations(candidates, configs, rng)
    else:
        workspace = workspace or Workspace(Path("work"))
        model = model or model_for_graph(workspace, graph, path, collection=collection)
        score = model_score(graph, candidates, model)
        codes = evolve(
            candidates, score, configs, rng, population=settings.population, generations=settings.generations
        )
        scores = score(codes)
        place = int((scores < scores[0]).sum())
    write_configurations(out, graph, candidates.expand(codes), np.zeros(len(codes), np.int64))
    several = candidates.choices[candidates.free]
    return Proposal(
        graph=graph.name,
        out=str(out),
        search=search,
        configs=len(codes),
        configurable=candidates.nodes,
        free=len(candidates.free_nodes),
        groups=len(candidates.free),
        choices=(int(several.min()), int(several.max())),
        space=float(np.log10(candidates.choices).sum()),
        guided_by=model.card.collection if model is not None and search == "evolve" else None,
        default_place=place,
        seconds=time.perf_counter() - start,
    )


def _candidates(graph: LayoutGraph, settings: ProposeSettings, rng: np.random.Generator) -> Candidates:
    if settings.tie == "rule":
        return tied_candidates(graph, slots=settings.slots, min_elements=settings.min_elements)
    return candidate_rows(
        graph, rng, slots=settings.slots, per_node=settings.per_node, named=settings.named,
        min_elements=settings.min_elements,
    )  # fmt: skip
