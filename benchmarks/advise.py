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
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from xlarank.data.errors import XlarankError
from xlarank.data.hlo.compiler.operations import read_operations
from xlarank.data.hlo.compiler.outcome import Status
from xlarank.data.hlo.compiler.session import Compiler
from xlarank.data.hlo.compiler.targets import target_of
from xlarank.pipelines.advise.advice import open_journal
from xlarank.pipelines.advise.search import LayoutSearch
from xlarank.pipelines.advise.space import Space
from xlarank.pipelines.programs.candidates import Candidates, Codes, breed, random_configurations
from xlarank.pipelines.programs.sources import load_program
from xlarank.pipelines.support.progress import Silent

AT = (4, 10, 20)
_ZOO = "benchmarks.programs."
EARLIER = (
    *(f"{{data}}/tpu_estimate/modules/{name}.pb" for name in
      ("mlp_train__a", "crossattn__a", "mixer__a", "swin__a", "autoenc_train__a")),
    *(f"{{data}}/hlo/{name}.hlo" for name in
      ("mha_block_1x12x128x64_bf16", "dlrm_keras_jax_f32_test_step", "depthwise_conv_3x3_1x256x56x56_bf16")),
    *(_ZOO + name for name in (
        "attention:decode__a attention:linformer__a attention:linattn_train__d recommenders:towers__a "
        "recommenders:crossing__a recommenders:session__a recommenders:factormachine__a "
        "recommenders:bilinearfields__a numerical:matrixproducts__a numerical:operator__a numerical:outermean__a "
        "numerical:kernelmachine__a numerical:filters__a").split()),
)  # fmt: skip
FRESH = tuple(_ZOO + name for name in (
    "torch_style:torchperceptron_train__a torch_style:torchencoder__a torch_style:torchlenet__a "
    "torch_style:torchtextcnn__a torch_style:torchseparable__a attention:bert__a vision:alexnet__a "
    "vision:squeezenet__a recommenders:towers_train__d recommenders:fieldattn_train__d attention:llama_train__d "
    "sequences:textcnn_train__d sequences:temporal_train__d vision:generator__a vision:inverted__a"
).split())  # fmt: skip


class _Nodes(LayoutSearch):
    """Proposals over outputs of operations alone, without screening."""

    screening = guided = genetic = False

    def proposals(self, count: int) -> Codes:
        rows = self.space.nodes.rows
        rest = [one[:1] for one in self.space.candidates.rows[len(rows) :]]
        candidates = Candidates((*rows, *rest))
        if self.genetic:
            parents = self.codes[np.argsort(self._costs(), kind="stable")[:8]]
            return breed(candidates, parents, count, self.rng, known=self.codes)
        known = {code.tobytes() for code in self.codes}
        drawn = random_configurations(candidates, 4 * count, self.rng)
        return drawn[[code.tobytes() not in known for code in drawn]][:count]


class _Genetic(_Nodes):
    genetic = True


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
                search = {"random": _Nodes, "genetic": _Genetic}.get(method, LayoutSearch)(*given)
                begun = time.monotonic()
                search.run(budget, minutes, entry=method in ("entry", "all"), proposals=method != "entry")
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
        "program": program, "method": method, "seed": seed, "compilations": spent, "looked_at": len(outcomes),
        "seconds": round(sum(one.seconds for one in outcomes), 1),
        "default_seconds": round(outcomes[0].seconds, 2),
        "copies": [sum(one.total for one in part if one.relayout) for part in (before, after)],
        "cycles": base, **{f"at_{at}": base / min(found.get(at, best), base) for at in AT},
    }  # fmt: skip


def summary(records: list[dict[str, Any]]) -> str:
    """Geometric means and shares over programs by method."""
    lines = []
    for method in dict.fromkeys(one["method"] for one in records):
        part = [one for one in records if one["method"] == method]
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
                methods, given = asked.methods.split(","), (asked.seeds, asked.budget, asked.minutes, asked.cache)
                for record in compare(compiler, path, methods, *given):
                    records.append(record)
                    print(json.dumps(record), flush=True)
                    if asked.json:
                        asked.json.write_text(json.dumps(records, indent=1), encoding="utf-8")
        except XlarankError as error:
            print(f"{path}: {error}", flush=True)
    print(summary(records))


if __name__ == "__main__":
    main()
