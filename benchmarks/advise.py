"""What advise finds at equal numbers of compilations, by the TPU compiler's estimate.

    python -m benchmarks.advise [PROGRAM...] [--data FOLDER] [--methods entry,all,random,genetic] [--budget 20]
        [--minutes 60] [--seeds 1] [--target tpu-v3] [--cache FOLDER] [--json FILE]

Methods: entry layouts alone, random and genetic search over outputs of operations, and all together as `advise`
has it. A configuration that becomes a known program counts for nothing, for each method. Outcomes are kept in the
cache by the program, so that a run goes on where it was and methods share them; "all" comes before random and
genetic search, so that it knows no more kernels than its own. Without programs: those of docs/advise.md, in the
modules of this folder and below ``--data`` (``hlo/`` and ``tpu_estimate/``). Needs the extra ``collect``.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from xlarank.data.errors import XlarankError
from xlarank.data.hlo.candidates import Candidates, Codes, breed, random_configurations
from xlarank.data.hlo.compiler.operations import read_operations
from xlarank.data.hlo.compiler.outcome import Status
from xlarank.data.hlo.compiler.session import Compiler
from xlarank.data.hlo.compiler.targets import target_of
from xlarank.pipelines.advise.advice import open_journal
from xlarank.pipelines.advise.search import LayoutSearch, Space
from xlarank.pipelines.programs.sources import load_program
from xlarank.pipelines.support.progress import Silent

AT = (4, 10, 20)
_ZOO = "benchmarks.programs."
EARLIER = (
    *(f"{{data}}/tpu_estimate/modules/{name}.pb" for name in
      ("mlp_train__a", "crossattn__a", "mixer__a", "swin__a", "autoenc_train__a")),
    *(f"{{data}}/hlo/{name}.hlo" for name in
      ("mha_block_1x12x128x64_bf16", "dlrm_keras_jax_f32_test_step", "depthwise_conv_3x3_1x256x56x56_bf16")),
    *(_ZOO + f"attention:{name}" for name in ("decode__a", "linformer__a", "linattn_train__d")),
    *(_ZOO + f"recommenders:{name}" for name in
      ("towers__a", "crossing__a", "session__a", "factormachine__a", "bilinearfields__a")),
    *(_ZOO + f"numerical:{name}" for name in
      ("matrixproducts__a", "operator__a", "outermean__a", "kernelmachine__a", "filters__a")),
)  # fmt: skip
FRESH = (
    *(_ZOO + f"torch_style:{name}" for name in
      ("torchperceptron_train__a", "torchencoder__a", "torchlenet__a", "torchtextcnn__a", "torchseparable__a")),
    *(_ZOO + name for name in
      ("attention:bert__a", "vision:alexnet__a", "vision:squeezenet__a",
       "recommenders:towers_train__d", "recommenders:fieldattn_train__d", "attention:llama_train__d",
       "sequences:textcnn_train__d", "sequences:temporal_train__d", "vision:generator__a",
       "vision:inverted__a")),
)  # fmt: skip


class _Nodes(LayoutSearch):
    """Proposals over outputs of operations alone, without screening."""

    screening = guided = False

    def __init__(self, *given: Any, genetic: bool) -> None:
        super().__init__(*given)
        self.genetic = genetic

    def proposals(self, count: int) -> Codes:
        rows = self.space.nodes.rows
        rest = [one[:1] for one in self.space.candidates.rows[len(rows) :]]
        candidates = Candidates((*rows, *rest))
        if self.genetic:
            parents = self.codes[np.argsort(self._costs(), kind="stable")[:8]]
            return breed(candidates, parents, count, self.rng, known=self.codes)
        known = {code.tobytes() for code in self.codes}
        drawn = random_configurations(candidates, 4 * count, self.rng)
        return np.array([code for code in drawn if code.tobytes() not in known][:count], np.int32).reshape(
            -1, candidates.nodes
        )


def compare(
    compiler: Compiler, path: str, methods: list[str], seeds: int, budget: int, minutes: float, cache: Path
) -> Iterator[dict[str, Any]]:
    """One record per method and seed; entry layouts are without chance."""
    program = load_program(path, compiler)
    for seed in range(seeds):
        space = Space.of(program, np.random.default_rng(seed), 8)
        with open_journal(cache, program, compiler) as journal:
            for method in methods if not seed else [one for one in methods if one != "entry"]:
                given = (compiler, space, journal, np.random.default_rng(seed), Silent())
                nodes = method in ("random", "genetic")
                search = _Nodes(*given, genetic=method == "genetic") if nodes else LayoutSearch(*given)
                begun = time.monotonic()
                search.run(budget, minutes, entry=not nodes, proposals=method != "entry")
                yield _record(program.name, method, seed, search) | {"took": round(time.monotonic() - begun, 1)}


def _record(program: str, method: str, seed: int, search: LayoutSearch) -> dict[str, Any]:
    """Best speedups at numbers of compilations."""
    outcomes = search.outcomes
    spent, best, known, found = 0, np.inf, set[str](), {}
    for one in outcomes:
        if one.status is Status.SCREENED:
            continue
        new = one.status is not Status.OK or one.fingerprint not in known
        known.add(one.fingerprint)
        if new and spent in AT:
            found[spent] = best
        spent += new
        if one.status is Status.OK:
            best = min(best, one.estimate.cycles)
    base = outcomes[0].estimate.cycles
    costs = [one.estimate.cycles if one.status is Status.OK else np.inf for one in outcomes]
    before, after = (read_operations(search.text(at)) for at in (0, int(np.argmin(costs))))
    return {
        "program": program,
        "method": method,
        "seed": seed,
        "compilations": spent,
        "looked_at": len(outcomes),
        "seconds": round(sum(one.seconds for one in outcomes), 1),
        "default_seconds": round(outcomes[0].seconds, 2),
        "copies": [sum(one.total for one in part if one.relayout) for part in (before, after)],
        "cycles": base,
        **{f"at_{at}": base / min(found.get(at, best), base) for at in AT},
    }


def summary(records: list[dict[str, Any]]) -> str:
    """Geometric means and shares over programs by method."""
    lines = []
    by_method = defaultdict(list)
    for one in records:
        by_method[one["method"]].append(one)
    for method, part in by_method.items():
        means = "  ".join(f"{at}: {np.exp(np.mean([np.log(one[f'at_{at}']) for one in part])):.4f}" for at in AT)
        gains = np.array([one["at_20"] for one in part])
        before, after = np.array([one["copies"] for one in part]).sum(axis=0)
        seconds = np.sum([one["seconds"] for one in part])
        lines.append(
            f"{method:8s} {len(part):3d} searches  {means}  above 2 %: {np.mean(gains > 1.02):.2f}  "
            f"copies removed: {1 - after / max(1, before):.2f}  seconds: {seconds:.0f}"
        )
    return "\n".join(lines)


def main() -> None:
    """Print one line a search, then the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("programs", nargs="*")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--methods", default="entry,all,random,genetic")
    parser.add_argument("--budget", type=int, default=20)
    parser.add_argument("--minutes", type=float, default=60.0, help="for one search")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--target", default="tpu-v3")
    parser.add_argument("--cache", type=Path, default=Path.home() / "xlarank-advise")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    records: list[dict[str, Any]] = []
    for path in asked.programs or [one.format(data=asked.data) for one in (*FRESH, *EARLIER)]:
        try:
            with Compiler(target_of(asked.target), jobs=asked.jobs) as compiler:
                for record in compare(
                    compiler, path, asked.methods.split(","), asked.seeds, asked.budget, asked.minutes, asked.cache
                ):
                    records.append(record)
                    print(json.dumps(record), flush=True)
                    if asked.json:
                        asked.json.write_text(json.dumps(records, indent=1), encoding="utf-8")
        except XlarankError as error:
            print(f"{path}: {error}", flush=True)
    print(summary(records))


if __name__ == "__main__":
    main()
