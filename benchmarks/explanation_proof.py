"""Is what an explanation names what really changed? Against the compiler's cycles of every operation.

    python -m benchmarks.explanation_proof compile FOLDER OUT [--each 3] [--minutes 30]
    python -m benchmarks.explanation_proof judge FOLDER OUT [--model lambdarank]

FOLDER holds ``modules/NAME.pb`` and ``npz/layout/tpu-estimate/random/{train,valid}/NAME.npz``. `compile` needs the
extra ``collect``: it compiles each program with the compiler's default and with some random configurations, and
adds one line of JSON a configuration to OUT: cycles by node of the graph (every instruction is given its number as
its name first, so a compiled operation says which node it stands for). `judge` explains the same configurations by
rankers that never saw the program's family, and counts.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

#: Edges between a named node and the operation whose cost changed, at most: an unfused producer, a copy between.
_NEAR: Final = 2
_TOP: Final = 3
_RANDOM: Final = 200


def files(folder: Path) -> Iterator[Path]:
    """Graphs that have a module, the smallest modules first."""
    found = [path for split in ("train", "valid") for path in _random(folder, split).glob("*.npz")]
    with_module = [path for path in found if _module(folder, path).exists()]
    return iter(sorted(with_module, key=lambda path: _module(folder, path).stat().st_size))


def _random(folder: Path, split: str) -> Path:
    return folder / "npz" / "layout" / "tpu-estimate" / "random" / split


def _module(folder: Path, graph: Path) -> Path:
    return folder / "modules" / f"{graph.stem}.pb"


def compile_all(folder: Path, out: Path, each: int, minutes: float) -> None:
    """Compile until the time is over; what is in OUT already is not compiled again."""
    from xlarank.data.graph import LayoutGraph, read_graph
    from xlarank.data.hlo.compiler.constrain import constrain, instructions, layouts_of
    from xlarank.data.hlo.compiler.session import Compiler
    from xlarank.data.hlo.compiler.targets import target_of
    from xlarank.data.hlo.messages import HloModuleProto

    begun = time.monotonic()
    done = {(line["graph"], line["config"]) for line in read_lines(out)}
    with Compiler(target_of("tpu-v3"), limit=300.0) as compiler:
        for path in files(folder):
            graph = read_graph(path)
            assert isinstance(graph, LayoutGraph)
            rng = np.random.default_rng(int.from_bytes(path.stem.encode()[:4], "little"))
            slower = np.flatnonzero(graph.runtime != graph.runtime[0])
            chosen = [0, *rng.choice(slower, min(each, len(slower)), replace=False).tolist()]
            for config in chosen:
                if (path.stem, config) in done:
                    continue
                if time.monotonic() - begun > 60 * minutes:
                    return
                module = HloModuleProto.FromString(_module(folder, path).read_bytes())
                for number, (_, instruction) in enumerate(instructions(module)):
                    instruction.metadata.op_name = f"n{number}"
                rows = graph.table.rows[graph.table.codes[config]]
                constrained = constrain(module, layouts_of(module, graph.configurable, rows))
                (_, outcome), *_ = compiler.compile([constrained])
                cycles: Counter[str] = Counter()
                for operation in outcome.estimate.operations if not outcome.message else ():
                    cycles[operation.source] += operation.cycles
                line = {
                    "graph": path.stem, "config": config, "label": int(graph.runtime[config]),
                    "cycles": dict(cycles), "message": outcome.message,
                }  # fmt: skip
                with out.open("a", encoding="utf-8") as stream:
                    stream.write(json.dumps(line) + "\n")
                print(path.stem, config, sum(cycles.values()), f"{time.monotonic() - begun:.0f} s", flush=True)


def read_lines(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()] if out.exists() else []


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("compile", "judge"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--each", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--model", default="lambdarank")
    asked = parser.parse_args()
    if asked.what == "compile":
        compile_all(asked.folder, asked.out, asked.each, asked.minutes)
