"""Propose configurations for a program: random ones, or those that a ranker likes best."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from xlarank.data.errors import GraphFileError, XlarankError
from xlarank.data.graph import LayoutGraph, read_graph
from xlarank.data.hlo.candidates import (
    Candidates,
    Codes,
    Slots,
    candidate_rows,
    evolve,
    random_configurations,
)
from xlarank.data.hlo.reading import read_hlo
from xlarank.data.workspace import Workspace
from xlarank.data.writing import write_graph
from xlarank.models.trained import TrainedModel
from xlarank.pipelines.ranking.model_choice import model_for_graph, rows_for_model

Search = Literal["random", "evolve"]


@dataclass(frozen=True)
class Proposal:
    """What was written.

    Attributes:
        graph, out: the program and the file with its configurations.
        search: how they were found.
        configs: how many there are; the first is the compiler's default.
        configurable, free: nodes that can be configured, and those of them that have a choice.
        choices: (fewest, most) rows that a free node may take, the default among them.
        space: logarithm to base 10 of how many configurations the candidate rows allow.
        guided_by: collection of the model whose scores guided the search, or None.
        default_place: how many of them the model likes better than the default, or None.
        seconds: for the search.
    """

    graph: str
    out: str
    search: str
    configs: int
    configurable: int
    free: int
    choices: tuple[int, int]
    space: float
    guided_by: str | None
    default_place: int | None
    seconds: float

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def propose(
    path: Path,
    out: Path,
    *,
    search: Search = "random",
    configs: int = 1000,
    workspace: Workspace | None = None,
    collection: str | None = None,
    model: TrainedModel | None = None,
    slots: Slots = "output",
    per_node: int = 8,
    named: int | None = None,
    min_elements: int = 1024,
    population: int = 256,
    generations: int = 12,
    seed: int = 0,
) -> Proposal:
    """Write ``out``, an npz file of the program in ``path`` with up to ``configs`` configurations, none measured.

    ``path`` is a layout graph's npz file or an HLO program. ``slots``, ``per_node``, ``named`` and ``min_elements``
    choose the candidate rows (`xlarank.data.hlo.candidates.candidate_rows`). ``random`` draws them; ``evolve``
    searches around the compiler's choice by the scores of ``model``, or of the model that ``workspace`` holds for
    this file or for ``collection``. The same seed gives the same configurations.

    Raises `GraphFileError` or `HloError` for the file, `ModelError` where a model is missing.
    """
    if search not in get_args(Search):
        raise XlarankError(f"the search is {search!r}", expected=" or ".join(get_args(Search)))
    if configs < 1:
        raise XlarankError(f"{configs} configurations were asked for", expected="at least 1")
    start = time.perf_counter()
    graph = read_graph(path) if path.suffix == ".npz" else read_hlo(path)
    if not isinstance(graph, LayoutGraph):
        raise GraphFileError(f"{path.name} is a kernel with tile sizes", expected="a program with layouts")
    rng = np.random.default_rng(seed)
    candidates = candidate_rows(graph, rng, slots=slots, per_node=per_node, named=named, min_elements=min_elements)
    if not len(candidates.free):
        raise GraphFileError(
            f"{path.name}: none of {candidates.nodes} configurable nodes has a choice",
            expected=f"an output of two or more dimensions and {min_elements} elements",
            do="pass a smaller --min-elements",
        )
    place = None
    if search == "random":
        codes = random_configurations(candidates, configs, rng)
    else:
        workspace = workspace or Workspace(Path("work"))
        model = model or model_for_graph(workspace, graph, path, collection=collection)
        score = _Scores(graph, candidates, model)
        codes = evolve(candidates, score, configs, rng, population=population, generations=generations)
        liked = score(codes)
        place = int((liked < liked[0]).sum())
    _write(out, graph, candidates.expand(codes))
    several = candidates.choices[candidates.free]
    return Proposal(
        graph=graph.name,
        out=str(out),
        search=search,
        configs=len(codes),
        configurable=candidates.nodes,
        free=len(candidates.free),
        choices=(int(several.min()), int(several.max())),
        space=float(np.log10(candidates.choices).sum()),
        guided_by=model.card.collection if model is not None and search == "evolve" else None,
        default_place=place,
        seconds=time.perf_counter() - start,
    )


@dataclass(frozen=True, eq=False)
class _Scores:
    """A model's scores of configurations of one program, given as codes."""

    graph: LayoutGraph
    candidates: Candidates
    model: TrainedModel

    def __call__(self, codes: Codes) -> NDArray[np.float64]:
        rows = rows_for_model(self.candidates.graph(self.graph, codes), self.model)
        return self.model.score(rows).mean[rows.group]


def _write(out: Path, graph: LayoutGraph, rows: NDArray[np.int8]) -> None:
    write_graph(
        out,
        node_feat=graph.node_feat,
        node_opcode=graph.opcode.astype(np.uint8),
        edge_index=graph.edges,
        node_splits=graph.splits[None],
        node_config_ids=graph.configurable,
        node_config_feat=rows.astype(np.float32),
        config_runtime=np.zeros(len(rows), np.int64),
    )
