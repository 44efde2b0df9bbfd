"""Is what an explanation names what really changed? Against the compiler's cycles of every operation.

    python -m benchmarks.explanation_proof compile FOLDER OUT [--each 3] [--minutes 30]
    python -m benchmarks.explanation_proof judge FOLDER OUT [--learn ROOT] [--model lambdarank] [--asked ASKED]
    python -m benchmarks.explanation_proof compile-asked FOLDER OUT --asked ASKED

FOLDER holds ``modules/NAME.pb`` and ``npz/layout/tpu-estimate/random/{train,valid}/NAME.npz``. `compile` needs the
extra ``collect``: it compiles each program with the compiler's default and with some random configurations, and
adds one line of JSON a configuration to OUT: cycles by node of the graph (every instruction is given its number as
its name first, so a compiled operation says which node it stands for). `judge` explains the same configurations by
rankers that never saw the program's family, and counts; `compile-asked` then compiles the configurations without
the layouts of what was named, which `judge` counts when run again.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

#: Edges between a named node and the operation whose cost changed, at most: an unfused producer, a copy between.
_NEAR: Final = 2
_TOP: Final = 3
_RANDOM: Final = 200
_MANY: Final = 6


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
    done = {(line["graph"], line["config"]) for line in read_lines(out) if "without" not in line}
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


def compile_asked(folder: Path, asked: Path, out: Path, minutes: float) -> None:
    """Compile configurations some of whose nodes take the default's layouts, as `judge` asked for them."""
    from xlarank.data.graph import LayoutGraph, read_graph
    from xlarank.data.hlo.compiler.constrain import constrain, layouts_of
    from xlarank.data.hlo.compiler.session import Compiler
    from xlarank.data.hlo.compiler.targets import target_of
    from xlarank.data.hlo.messages import HloModuleProto

    begun = time.monotonic()
    done = {_key(line) for line in read_lines(out) if "without" in line}
    paths = {path.stem: path for path in files(folder)}
    with Compiler(target_of("tpu-v3"), limit=300.0) as compiler:
        for ask in read_lines(asked):
            if _key(ask) in done:
                continue
            if time.monotonic() - begun > 60 * minutes:
                return
            path = paths[ask["graph"]]
            graph = read_graph(path)
            assert isinstance(graph, LayoutGraph)
            module = HloModuleProto.FromString(_module(folder, path).read_bytes())
            rows = graph.table.rows[graph.table.codes[ask["config"]]].copy()
            rows[np.isin(graph.configurable, ask["without"])] = -1
            constrained = constrain(module, layouts_of(module, graph.configurable, rows))
            (_, outcome), *_ = compiler.compile([constrained])
            label = compiler.target.nanoseconds(outcome.estimate.cycles) if not outcome.message else 0
            with out.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps({**ask, "label": label, "cycles": {}}) + "\n")
            print(ask["graph"], ask["config"], label, f"{time.monotonic() - begun:.0f} s", flush=True)


def _key(line: dict[str, Any]) -> tuple[str, int, tuple[int, ...]]:
    return line["graph"], line["config"], tuple(line["without"])


def read_lines(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()] if out.exists() else []


@dataclass(frozen=True)
class Case:
    """One configuration against the default, explained by a ranker that never saw its family.

    Attributes:
        named, node: whether the first segment, and the first node, are among the operations of the largest
            changes; ``_near`` within `_NEAR` edges of them. ``random``: the same for as many nodes drawn from
            those that differ.
        cost: share of all changed cycles within `_NEAR` edges of the segment.
        gone: share of the predicted difference that goes with the segment's layouts.
        truly: share of the compiler's own difference that goes; not a number until it was compiled.
        asked: segment, and nodes drawn, that are to be compiled without.
    """

    graph: str
    differing: int
    named: float
    named_near: float
    node: float
    random: float
    random_near: float
    random_node: float
    cost: float
    random_cost: float
    gone: float
    random_gone: float
    truly: float
    random_truly: float
    asked: tuple[dict[str, Any], dict[str, Any]]


def judge_all(folder: Path, learn: Path, out: Path, model: str, ask: Path | None) -> None:
    """Print how often what is named is what changed, with 95 % intervals over graphs."""
    from xlarank.data.family import program_family
    from xlarank.data.graph import read_graph
    from xlarank.features.assemble import assemble
    from xlarank.models.fit_settings import FitSettings
    from xlarank.models.ranking_data import RankingData
    from xlarank.models.registry import ranker_class

    without = {_key(line): line["label"] for line in read_lines(out) if "without" in line and line["label"]}
    lines = [line for line in read_lines(out) if line["cycles"]]
    cycles = {(line["graph"], line["config"]): line["cycles"] for line in lines}
    learned = [
        assemble(read_graph(path)) for split in ("train", "valid") for path in _random(learn, split).glob("*.npz")
    ]
    learned = [rows for rows in learned if rows.labelled and rows.rankable]
    graphs = {path.stem: path for path in files(folder)}
    cases: list[Case] = []
    for name in sorted({line["graph"] for line in lines}):
        others = [rows for rows in learned if program_family(rows.name) != program_family(name)]
        data = RankingData.from_graphs(others)
        rankers = [
            ranker_class(model)({}, kind="layout").fit(data, FitSettings(rounds=150, seed=seed, threads=1))
            for seed in range(2)
        ]
        graph = read_graph(graphs[name])
        configs = [config for found, config in cycles if found == name and config]
        if (name, 0) not in cycles:
            continue
        judged = [
            _case(graph, rankers, config, cycles[name, 0], cycles[name, config], without) for config in configs
        ]
        cases += [case for case in judged if case is not None]
        print(name, len(others), "graphs learned from;", len(cases), "cases", flush=True)
    print(f"{model}: {len(cases)} configurations of {len({case.graph for case in cases})} programs")
    if ask is not None:
        ask.write_text("".join(json.dumps(one) + "\n" for case in cases for one in case.asked), encoding="utf-8")
    for title, chosen in (
        ("all", cases),
        (f"where {_MANY} or more nodes differ", [case for case in cases if case.differing >= _MANY]),
    ):
        print(f"{title}: {len(chosen)} configurations of {len({case.graph for case in chosen})} programs")
        for field in ("named", "named_near", "node", "cost", "gone", "truly"):
            random = field.replace("named", "random") if field.startswith("named") else f"random_{field}"
            both = [
                (case.graph, getattr(case, field), getattr(case, random))
                for case in chosen
                if np.isfinite(getattr(case, field)) and np.isfinite(getattr(case, random))
            ]
            ours, theirs, ahead = (
                _interval([(graph, pick(x, y)) for graph, x, y in both])
                for pick in (lambda x, y: x, lambda x, y: y, lambda x, y: x - y)
            )
            print(f"  {field:11s} {ours}   random {theirs}   difference {ahead}   ({len(both)})")


def _case(
    graph: Any,
    rankers: list[Any],
    config: int,
    then: dict[str, int],
    now: dict[str, int],
    without: dict[tuple[str, int, tuple[int, ...]], int],
) -> Case | None:
    from xlarank.features.assemble import assemble
    from xlarank.features.attribution import walk_between
    from xlarank.features.recipe import FeatureSettings
    from xlarank.models.explanation.parts import Parts, Rows, difference_parts
    from xlarank.pipelines.ranking.segments import segments_of
    from xlarank.pipelines.reporting.explanations import node_parts

    changed = {int(k[1:]): now.get(k, 0) - then.get(k, 0) for k in {*now, *then} if k[1:].isdigit()}
    changed = {node: value for node, value in changed.items() if value}
    rows = assemble(graph)
    walk = walk_between(graph, rows, FeatureSettings(), config, 0)
    each = [
        difference_parts(ranker, Rows.of(rows, walk), int(rows.group[config]), int(rows.group[0]))
        for ranker in rankers
    ]
    parts = Parts.total(part.scaled(1 / len(each)) for part in each)
    nodes = node_parts(graph, parts, config, 0)
    values = {part.node: part.value for part in nodes}
    segments = [one for one in segments_of(graph, values) if one.value > 0]  # what makes it the slower
    slowest = max(values, key=lambda node: values[node], default=-1)
    if not changed or not segments or parts.difference <= 0 or graph.runtime[config] <= graph.runtime[0]:
        return None  # nothing changed, or the ranker does not see that the configuration is slower
    top = set(sorted(changed, key=lambda node: -abs(changed[node]))[:_TOP])
    near = _neighbourhoods(graph)
    rng = np.random.default_rng(config)
    segment = set(segments[0].nodes)
    differing = sorted(values)
    drawn = [set(rng.choice(differing, len(segment), replace=False).tolist()) for _ in range(_RANDOM)]
    total = sum(abs(value) for value in changed.values())

    def cost(chosen: set[int]) -> float:
        return sum(abs(changed[node]) for node in changed if near[node] & chosen) / total

    def near_top(chosen: set[int]) -> bool:
        return any(near[node] & chosen for node in top)

    few = drawn[:5]
    slower = int(graph.runtime[config]) - int(graph.runtime[0])
    asked = [{"graph": graph.name, "config": config, "without": sorted(one)} for one in (segment, drawn[0])]
    labels = [without.get(_key(one)) for one in asked]
    truly = [float("nan") if x is None else (int(graph.runtime[config]) - x) / slower for x in labels]
    return Case(
        graph=graph.name,
        differing=len(differing),
        named=float(bool(segment & top)),
        named_near=float(near_top(segment)),
        node=float(slowest in top),
        random=float(np.mean([bool(one & top) for one in drawn])),
        random_near=float(np.mean([near_top(one) for one in drawn])),
        random_node=float(np.mean([node in top for node in differing])),
        cost=cost(segment),
        random_cost=float(np.mean([cost(one) for one in drawn])),
        gone=_gone(graph, rankers, config, segment),
        random_gone=float(np.mean([_gone(graph, rankers, config, one) for one in few])),
        truly=truly[0],
        random_truly=truly[1],
        asked=(asked[0], asked[1]),
    )


def _neighbourhoods(graph: Any) -> dict[int, set[int]]:
    """Nodes within `_NEAR` edges of each, itself among them."""
    around: dict[int, set[int]] = {node: {node} for node in range(graph.nodes)}
    for node, operand in graph.edges.tolist():
        around[node].add(operand)
        around[operand].add(node)
    reached = around
    for _ in range(_NEAR - 1):
        reached = {node: set().union(*(around[other] for other in others)) for node, others in reached.items()}
    return reached


def _gone(graph: Any, rankers: list[Any], config: int, chosen: set[int]) -> float:
    """Share of the predicted difference to the default that goes when the chosen nodes take the default's layouts.

    The configuration in between is added to the candidates, so that columns which look at them have a value for it.
    """
    from xlarank.data.config_table import ConfigTable
    from xlarank.data.duplicates import group_codes
    from xlarank.features.assemble import assemble

    table = graph.table
    between = table.codes[config].copy()
    for place, node in enumerate(graph.configurable.tolist()):
        if node in chosen:
            between[place] = table.codes[0][place]
    codes = np.concatenate([table.codes, between[None]])
    wider = replace(
        graph,
        table=ConfigTable(codes, table.rows, table.node, table.start),
        duplicates=group_codes(codes),
        runtime=np.append(graph.runtime, graph.runtime[config]),
    )
    rows = assemble(wider)
    score = np.mean([ranker.predict(rows.matrix(), rows.columns, rows.instances) for ranker in rankers], axis=0)
    default, whole, rest = (float(score[rows.group[c]]) for c in (0, config, len(codes) - 1))
    return float(np.clip((whole - rest) / (whole - default), -1, 2)) if whole > default else 0.0


def _interval(values: list[tuple[str, float]]) -> str:
    """The mean over cases, with a 95 % bootstrap interval over programs."""
    by_graph: dict[str, list[float]] = {}
    for graph, value in values:
        by_graph.setdefault(graph, []).append(value)
    if not by_graph:
        return "-"
    groups = [np.array(found) for found in by_graph.values()]
    rng = np.random.default_rng(0)
    drawn = [
        np.concatenate([groups[i] for i in rng.integers(0, len(groups), len(groups))]).mean() for _ in range(2000)
    ]
    low, high = np.quantile(drawn, (0.025, 0.975))
    return f"{np.concatenate(groups).mean():.2f} ({low:.2f} to {high:.2f})"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("compile", "judge", "compile-asked"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--learn", type=Path, help="a tree to learn from; by default FOLDER")
    parser.add_argument("--asked", type=Path, help="what judge wants compiled")
    parser.add_argument("--each", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--model", default="lambdarank")
    asked = parser.parse_args()
    if asked.what == "compile":
        compile_all(asked.folder, asked.out, asked.each, asked.minutes)
    elif asked.what == "compile-asked":
        compile_asked(asked.folder, asked.asked, asked.out, asked.minutes)
    else:
        judge_all(asked.folder, asked.learn or asked.folder, asked.out, asked.model, asked.asked)
