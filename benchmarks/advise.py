"""At equal numbers of compilations: advise, random search and genetic search, by the TPU compiler's estimate.

    python -m benchmarks.advise PROGRAM... [--budget 24] [--seeds 3] [--target tpu-v3] [--patience 10] [--no-ranker]
        [--json FILE]

All draw from the same candidate rows and begin with the compiler's own choice. A configuration that several of
them ask for is compiled once and counts for each. Needs the extra ``collect``.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xlarank.data.hlo.candidates import Candidates, Codes, Score, breed, candidate_rows, random_configurations
from xlarank.data.hlo.compiler.outcome import Outcome, Status
from xlarank.data.hlo.compiler.session import Compiler
from xlarank.data.hlo.compiler.targets import target_of
from xlarank.data.workspace import Workspace
from xlarank.models.pretrained import pretrained_model
from xlarank.pipelines.advise import BATCH, first_proposals, layout_model, next_batch
from xlarank.pipelines.programs.sources import Program, compiled, configuration_key, load_program, model_score

Costs = NDArray[np.float64]
Cost = Callable[[Codes], Costs]


class Compiled:
    """Time over the compiler's own choice for every configuration asked for; nothing is compiled twice."""

    def __init__(self, compiler: Compiler, program: Program, candidates: Candidates, patience: float) -> None:
        self.compiler, self.program, self.candidates = compiler, program, candidates
        self.patience = patience
        self.known: dict[str, Outcome] = {}
        self.default = self._outcomes(np.zeros((1, candidates.nodes), np.int32))[0]

    def __call__(self, codes: Codes) -> Costs:
        found = self._outcomes(codes)
        base = self.default.estimate.cycles
        return np.array([one.estimate.cycles / base if one.status is Status.OK else np.inf for one in found])

    def _outcomes(self, codes: Codes) -> list[Outcome]:
        limit = max(30.0, self.patience * self.default.seconds) if self.known else None
        for at, outcome in compiled(
            self.compiler, self.program, self.candidates, codes, known=self.known, limit=limit
        ):
            self.known[configuration_key(self.candidates, codes[at])] = outcome
        return [self.known[configuration_key(self.candidates, code)] for code in codes]


def random_search(candidates: Candidates, budget: int, rng: np.random.Generator, cost: Cost) -> Costs:
    return cost(random_configurations(candidates, budget, rng))


def genetic_search(candidates: Candidates, budget: int, rng: np.random.Generator, cost: Cost) -> Costs:
    codes: Codes = np.zeros((1, candidates.nodes), np.int32)
    costs = cost(codes)
    while len(codes) < budget:
        parents = codes[np.argsort(costs, kind="stable")[:8]]
        fresh = breed(candidates, parents, min(BATCH, budget - len(codes)), rng, known=codes)
        if not len(fresh):
            break
        codes, costs = np.concatenate([codes, fresh]), np.concatenate([costs, cost(fresh)])
    return costs


def advised_search(
    candidates: Candidates, score: Score | None, budget: int, rng: np.random.Generator, cost: Cost
) -> Costs:
    proposals = first_proposals(candidates, score, budget, rng)
    codes: Codes = np.zeros((1, candidates.nodes), np.int32)
    costs = cost(codes)
    while len(codes) < budget:
        fresh = next_batch(candidates, proposals, codes, costs, min(BATCH, budget - len(codes)), rng)
        if not len(fresh):
            break
        codes, costs = np.concatenate([codes, fresh]), np.concatenate([costs, cost(fresh)])
    return costs


def compare(
    compiler: Compiler,
    path: str,
    budget: int,
    seeds: int,
    workspace: Workspace | None,
    *,
    ranker: bool,
    patience: float = 10.0,
) -> Iterator[dict[str, Any]]:
    """One record per search and seed."""
    program = load_program(path, compiler)
    candidates = candidate_rows(program.graph, np.random.default_rng(0))
    model = layout_model(workspace, None) or pretrained_model()
    score = model_score(program.graph, candidates, model) if ranker else None
    cost = Compiled(compiler, program, candidates, patience)
    for seed in range(seeds):
        searches: dict[str, Callable[[np.random.Generator], Costs]] = {
            "advise": lambda rng: advised_search(candidates, None, budget, rng, cost),
            "random": lambda rng: random_search(candidates, budget, rng, cost),
            "genetic": lambda rng: genetic_search(candidates, budget, rng, cost),
        }
        if score is not None:
            searches["advise, ranker"] = lambda rng: advised_search(candidates, score, budget, rng, cost)
        for name, search in searches.items():
            begun = monotonic()
            costs = search(np.random.default_rng(seed))
            yield {
                "program": program.name,
                "nodes": candidates.nodes,
                "search": name,
                "seed": seed,
                "compiles": len(costs),
                "speedup": float(1 / costs.min()),
                "found_after": int(np.argmin(costs)),
                "median_cost": float(np.median(costs)),
                "given_up": int(np.isinf(costs).sum()),
                "seconds": monotonic() - begun,
            }


def main() -> None:
    """Print one line a search and seed, then the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs", nargs="+")
    parser.add_argument("--budget", type=int, default=24)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--target", default="tpu-v3")
    parser.add_argument(
        "--patience",
        type=float,
        default=10.0,
        help="times the default's compile time (at least 30 s) before giving up",
    )
    parser.add_argument("--workspace", type=Path)
    parser.add_argument("--no-ranker", action="store_true", help="for programs that the ranker has learned from")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    workspace = Workspace(asked.workspace) if asked.workspace else None
    records: list[dict[str, Any]] = []
    with Compiler(target_of(asked.target), jobs=asked.jobs) as compiler:
        for path in asked.programs:
            for record in compare(
                compiler, path, asked.budget, asked.seeds, workspace,
                ranker=not asked.no_ranker, patience=asked.patience,
            ):  # fmt: skip
                records.append(record)
                print(record, flush=True)
                if asked.json:
                    asked.json.write_text(json.dumps(records, indent=1))
    for program in dict.fromkeys(record["program"] for record in records):
        for search in dict.fromkeys(record["search"] for record in records):
            found = [one["speedup"] for one in records if (one["program"], one["search"]) == (program, search)]
            print(f"{program:24s} {search:16s} " + "  ".join(f"{value:.3f}" for value in found))


if __name__ == "__main__":
    main()
