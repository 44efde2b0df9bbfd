"""Compile a random sample of labelled configurations again: how many labels come out exactly equal?

    python -m benchmarks.labels_reproduced FOLDER [--each 4] [--seed 0] [--programs a,b]

FOLDER holds ``modules/NAME.pb`` and ``npz/layout/tpu-estimate/<search>/<split>/NAME.npz``; needs the extra
``collect``.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import numpy as np

from xlarank.data.collection import discover
from xlarank.data.graph import LayoutGraph, read_graph
from xlarank.data.hlo.compiler.constrain import constrain, layouts_of
from xlarank.data.hlo.compiler.session import Compiler
from xlarank.data.hlo.compiler.targets import target_of
from xlarank.data.hlo.messages import HloModuleProto


def labelled(folder: Path) -> Iterator[tuple[str, LayoutGraph, bytes]]:
    """Search, graph and module of every labelled file, the smallest modules first."""
    files = [file for file in discover(folder / "npz") if file.split != "test"]
    modules = {file: folder / "modules" / f"{file.name}.pb" for file in files}
    for file in sorted(files, key=lambda file: modules[file].stat().st_size):
        graph = read_graph(file.path)
        assert isinstance(graph, LayoutGraph)
        yield file.collection.parts[-1], graph, modules[file].read_bytes()


def reproduce(compiler: Compiler, graph: LayoutGraph, module: bytes, configs: np.ndarray) -> list[tuple[int, int]]:
    """(configuration, label now) of each, -1 where it did not compile."""
    parsed = HloModuleProto.FromString(module)
    constrained = (
        constrain(parsed, layouts_of(parsed, graph.configurable, graph.table.rows[graph.table.codes[config]]))
        for config in configs
    )
    return [
        (int(configs[at]), compiler.target.nanoseconds(outcome.estimate.cycles) if not outcome.message else -1)
        for at, outcome in compiler.compile(constrained)
    ]


def main() -> None:
    """Print one line a program and the sum."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--each", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--programs", default="")
    asked = parser.parse_args()
    rng = np.random.default_rng(asked.seed)
    equal = total = 0
    with Compiler(target_of("tpu-v3")) as compiler:
        print(compiler.versions, flush=True)
        for search, graph, module in labelled(asked.folder):
            if asked.programs and graph.name not in asked.programs.split(","):
                continue
            begun = monotonic()
            configs = rng.choice(graph.configs, min(asked.each, graph.configs), replace=False)
            found = reproduce(compiler, graph, module, configs)
            same = sum(label == graph.runtime[config] for config, label in found)
            equal, total = equal + same, total + len(found)
            wrong = [(config, label, int(graph.runtime[config])) for config, label in found]
            wrong = [entry for entry in wrong if entry[1] != entry[2]]
            print(
                f"{graph.name:22s} {search:8s} {same}/{len(found)}  sum {equal}/{total}  "
                f"{monotonic() - begun:.0f} s  {wrong or ''}",
                flush=True,
            )


if __name__ == "__main__":
    main()
