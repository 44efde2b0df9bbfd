"""Compare searches of `advise` at equal numbers of compilations, by the TPU compiler's estimate.

    python -m benchmarks.advise [PROGRAM...] [--data FOLDER] [--methods entry,all,random,genetic]
    [--budget 20]
        [--minutes 60] [--seeds 1] [--target tpu-v3] [--cache FOLDER] [--json FILE]

Methods: entry layouts alone, random and genetic search over outputs of operations, and all together
as in `advise`. Configurations that become a known program are not counted. Outcomes are cached by
program, so an interrupted run can be rerun and methods share them; "all" comes first, so that it
knows no kernels of the others. Default programs: those of docs/advise.md, in this folder and below
``--data`` (``hlo/`` and ``tpu_estimate/``). Needs the extra ``collect``.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from xlarank.data.errors import XlarankError
from xlarank.pipelines.programs.advise.advice import open_journal
from xlarank.pipelines.programs.advise.search import LayoutSearch, Space
from xlarank.pipelines.programs.candidates import (
    CandidateLayouts,
    Codes,
    breed,
    random_configurations,
)
from xlarank.pipelines.programs.compiler.chips import chip_named
from xlarank.pipelines.programs.compiler.cycles import read_operations
from xlarank.pipelines.programs.compiler.outcome import Status
from xlarank.pipelines.programs.compiler.session import Compiler
from xlarank.pipelines.programs.sources import load_program

AT = (4, 10, 20)
_ZOO = "benchmarks.programs."
EARLIER = (
    *(
        f"{{data}}/tpu_estimate/modules/{name}.pb"
        for name in ("mlp_train__a", "crossattn__a", "mixer__a", "swin__a", "autoenc_train__a")
    ),
    *(
        f"{{data}}/hlo/{name}.hlo"
        for name in (
            "mha_block_1x12x128x64_bf16",
            "dlrm_keras_jax_f32_test_step",
            "depthwise_conv_3x3_1x256x56x56_bf16",
        )
    ),
    *(
        _ZOO + name
        for name in (
            "attention:decode__a attention:linformer__a attention:linattn_train__d "
            "recommenders:towers__a "
            "recommenders:crossing__a recommenders:session__a recommenders:factormachine__a "
            "recommenders:bilinearfields__a numerical:matrixproducts__a "
            "numerical:operator__a numerical:outermean__a "
            "numerical:kernelmachine__a numerical:filters__a"
        ).split()
    ),
)
FRESH = tuple(
    _ZOO + name
    for name in (
        "torch_style:torchperceptron_train__a torch_style:torchencoder__a "
        "torch_style:torchlenet__a "
        "torch_style:torchtextcnn__a torch_style:torchseparable__a attention:bert__a "
        "vision:alexnet__a "
        "vision:squeezenet__a recommenders:towers_train__d "
        "recommenders:fieldattn_train__d attention:llama_train__d "
        "sequences:textcnn_train__d sequences:temporal_train__d vision:generator__a "
        "vision:inverted__a"
    ).split()
)


class _Nodes(LayoutSearch):
    """Proposals over outputs of operations alone, without screening."""

    genetic = False

    def try_entry_layouts(self) -> None:
        pass

    avoid_copies = try_entry_layouts

    def _compile(self, codes: Codes, *, screen: bool = False) -> None:
        super()._compile(codes, screen=False)

    def proposals(self, count: int) -> Codes:
        rows = self.space.nodes.rows
        rest = [layouts[:1] for layouts in self.space.candidates.rows[len(rows) :]]
        candidates = CandidateLayouts((*rows, *rest))
        if self.genetic:
            parents = self.codes[np.argsort(self._costs(), kind="stable")[:8]]
            return breed(candidates, parents, count, self.rng, known=self.codes)
        known = {code.tobytes() for code in self.codes}
        drawn = random_configurations(candidates, 4 * count, self.rng)
        return drawn[[code.tobytes() not in known for code in drawn]][:count]


class _Genetic(_Nodes):
    genetic = True


class _Entry(LayoutSearch):
    """Entry layouts alone."""

    def avoid_copies(self) -> None:
        pass

    propose = avoid_copies


def compare(
    compiler: Compiler,
    path: str,
    methods: list[str],
    seeds: int,
    budget: int,
    minutes: float,
    cache: Path,
) -> Iterator[dict[str, Any]]:
    """Yield a record per method and seed; entry layouts do not depend on the seed."""
    program = load_program(path, compiler)
    for seed in range(seeds):
        space = Space.of(program, np.random.default_rng(seed), 8)
        with open_journal(cache, program, compiler) as journal:
            for method in [method for method in methods if not seed or method != "entry"]:
                search_class = {"entry": _Entry, "random": _Nodes, "genetic": _Genetic}.get(
                    method, LayoutSearch
                )
                search = search_class(compiler, space, journal, np.random.default_rng(seed))
                begun = time.monotonic()
                search.run(budget, minutes)
                yield _record(program.name, method, seed, search) | {
                    "took": round(time.monotonic() - begun, 1)
                }


def _record(program: str, method: str, seed: int, search: LayoutSearch) -> dict[str, Any]:
    """Return the best speedups at numbers of compilations."""
    outcomes = search.outcomes
    costs = [outcome.cycles if outcome.status is Status.OK else np.inf for outcome in outcomes]
    spent = 0
    best = np.inf
    known = set[str]()
    cycles = {}
    for outcome, cost in zip(outcomes, costs, strict=True):
        if outcome.status is Status.SCREENED:
            continue
        new = outcome.status is not Status.OK or outcome.fingerprint not in known
        known.add(outcome.fingerprint)
        if new and spent in AT:
            cycles[spent] = best
        spent += new
        best = min(best, cost)
    base = outcomes[0].cycles
    before, after = (read_operations(search.text(number)) for number in (0, int(np.argmin(costs))))
    return {
        "program": program,
        "method": method,
        "seed": seed,
        "compilations": spent,
        "looked_at": len(outcomes),
        "seconds": round(sum(outcome.seconds for outcome in outcomes), 1),
        "default_seconds": round(outcomes[0].seconds, 2),
        "copies": [sum(part.total for part in parts if part.relayout) for parts in (before, after)],
        "cycles": base,
        **{f"at_{at}": base / min(cycles.get(at, best), base) for at in AT},
    }


def summary(records: list[dict[str, Any]]) -> str:
    """Return geometric means and shares over programs by method."""
    lines = []
    for method in dict.fromkeys(record["method"] for record in records):
        part = pl.DataFrame([record for record in records if record["method"] == method])
        means = "  ".join(f"{at}: {np.exp(part[f'at_{at}'].log().mean()):.4f}" for at in AT)
        before, after = np.array(part["copies"].to_list()).sum(axis=0)
        lines.append(
            f"{method:8s} {len(part):3d} searches  {means}  above 2 %: "
            f"{(part['at_20'] > 1.02).mean():.2f}  "
            f"copies removed: {1 - after / max(1, before):.2f}  seconds: "
            f"{part['seconds'].sum():.0f}"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("programs", nargs="*")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--methods", default="entry,all,random,genetic")
    parser.add_argument("--minutes", type=float, default=60.0, help="for one search")
    for name, default in {"budget": 20, "seeds": 1, "jobs": 1}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--target", default="tpu-v3")
    parser.add_argument("--cache", type=Path, default=Path.home() / "xlarank-advise")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    records: list[dict[str, Any]] = []
    for path in args.programs or [name.format(data=args.data) for name in (*FRESH, *EARLIER)]:
        try:
            with Compiler(chip_named(args.target), jobs=args.jobs) as compiler:
                limits = args.seeds, args.budget, args.minutes, args.cache
                for record in compare(compiler, path, args.methods.split(","), *limits):
                    records.append(record)
                    print(json.dumps(record), flush=True)
                    if args.json:
                        args.json.write_text(json.dumps(records, indent=1), encoding="utf-8")
        except XlarankError as error:
            print(f"{path}: {error}", flush=True)
    print(summary(records))


if __name__ == "__main__":
    main()
