"""Do cycles per operation teach more than their sum? Trees on the cycles of nodes, summed over a program.

    python -m benchmarks.op_cost FOLDER... [--data-root D] [--rounds N] [--with-wide] [--draws N] [--out FILE]

``FOLDER`` holds what `collect` wrote for the TPU, cycles per operation included. Its programs teach, the estimated
layouts of the sample (train split) judge: every graph by rankers that saw no program of its family.

- ``op-cost``: the ranker of that name, taught by the cycles of nodes (`xlarank.data.hlo.compiler.attribution`).
- ``op-cost, own cycles``: where a node answers for its own cycles alone, not for those next to it.
- ``op-cost, sums only``: the same without them: each program's sum, dealt to its nodes.
- ``sum-pooled``: the same instances of the same programs, taught by the sum alone (its ranking loss).
- ``ranknet``: wide rows of the same programs.

With ``--with-wide`` also ranknet of the sample itself, families held out, and the mean of its ranks with op-cost's.
With ``--draws`` also taught by half of the programs, drawn anew as often: how much depends on which programs teach.
Every difference is paired, with a 95 % interval over graphs. First it prints how much could be attributed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.operation_nodes import located
from benchmarks.pretrain import config_columns, estimated
from benchmarks.transcript import Transcript
from xlarank.data.family import program_family
from xlarank.data.graph import LayoutGraph, read_graph
from xlarank.data.hlo.compiler.attribution import NodeCycles, node_cycles
from xlarank.data.hlo.compiler.cycle_table import read_cycles
from xlarank.data.root import SAMPLE
from xlarank.features.assemble import assemble
from xlarank.features.recipe import FeatureSettings
from xlarank.features.rows import GraphRows
from xlarank.models.base import Ranker
from xlarank.models.fit_settings import FitSettings
from xlarank.models.objectives.labels import mean_rank
from xlarank.models.ranking_data import LazyCycles, RankingData
from xlarank.models.registry import ranker_class
from xlarank.models.validation.folds import family_folds
from xlarank.models.validation.metrics import judge
from xlarank.models.validation.paired import Scores, difference

Floats = NDArray[np.float64]

_SHOWN = ("tau", "slowdown@1", "slowdown@5")
_FOLDS = 5


@dataclass(frozen=True, eq=False)
class Taught:
    """A program that teaches: its rows and the cycles of its nodes."""

    rows: GraphRows
    cycles: NodeCycles

    @property
    def family(self) -> str:
        return program_family(self.rows.name)


def op_cost(
    teachers: Sequence[Taught], rounds: int, params: dict[str, Any] | None = None
) -> Callable[[GraphRows], Floats]:
    """The ranker, taught by the cycles of nodes."""
    data = RankingData.from_graphs([config_columns(one.rows) for one in teachers])
    cycles = [LazyCycles(partial(by_row, one)) for one in teachers]
    fitted = ranker_class("op-cost")(params, kind="layout").fit(
        replace(data, cycles=cycles), FitSettings(rounds, 0, 1)
    )
    return partial(_score, fitted)


def by_row(teacher: Taught) -> Floats:
    """``(distinct configurations, nodes)`` cycles."""
    first = np.unique(teacher.rows.group, return_index=True)[1]
    return teacher.cycles.cycles[teacher.cycles.program[teacher.rows.ids[first]]]


def _score(fitted: Ranker[Any], rows: GraphRows) -> Floats:
    own = config_columns(rows) if len(rows.graph_values) else rows
    return np.asarray(fitted.predict(own.matrix(), own.columns, own.instances))


def teachers_in(folder: Path) -> Iterator[tuple[Taught, str]]:
    """What teaches, with a line on what could be attributed."""
    for path in sorted(folder.rglob("*.npz")):
        graph, table = read_graph(path), read_cycles(path)
        if table is None or not isinstance(graph, LayoutGraph):
            continue
        known, guessed = located(path, graph, table)
        cycles = node_cycles(graph, known)
        rows = assemble(graph, FeatureSettings())
        if not rows.rankable:
            continue
        total = cycles.cycles.sum(axis=1) + cycles.unattributed
        own, lost = (float((part / total).mean()) for part in (cycles.own, cycles.unattributed))
        line = f"| {graph.name} | {graph.nodes} | {len(graph.configurable)} | {len(total)} | {own:.2f} | "
        line += f"{1 - own - lost:.2f} | {lost:.2f} | {guessed} |"
        yield Taught(rows, cycles), line


def judged(score: Floats, rows: GraphRows) -> dict[str, float]:
    """Metrics of a graph by scores of its distinct configurations."""
    return judge("layout", score[rows.group], rows.cost, rows.group)


def by_name(name: str, teachers: Sequence[GraphRows], rounds: int) -> Callable[[GraphRows], Floats]:
    """A ranker of the registry, learned from the rows of some programs."""
    data = RankingData.from_graphs([config_columns(rows) for rows in teachers])
    return partial(_score, ranker_class(name)(kind="layout").fit(data, FitSettings(rounds, 0, 1)))


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="+")
    parser.add_argument("--data-root", type=Path, default=SAMPLE)
    parser.add_argument("--rounds", type=int, default=150)
    parser.add_argument("--with-wide", action="store_true")
    parser.add_argument("--draws", type=int, default=0)
    parser.add_argument("--out", type=Path, help="also write the tables to this file")
    asked = parser.parse_args()
    say = Transcript(asked.out)

    say("| program | nodes | configurable | programs compiled | own cycles | by neighbours | none | nodes from |")
    say("|---|---|---|---|---|---|---|---|")
    teachers: list[Taught] = []
    for folder in asked.folder:
        for one, line in teachers_in(folder):
            say(line)
            if one.rows.name not in {other.rows.name for other in teachers}:
                teachers.append(one)
    sets = {f"all {len(teachers)} programs": teachers}
    for draw in range(asked.draws):
        half = np.random.default_rng(draw).permutation(len(teachers))[: len(teachers) // 2]
        sets[f"draw {draw} of {len(half)} programs"] = [teachers[number] for number in half]
    for collection, graphs in estimated(asked.data_root).items():
        for name, some in sets.items():
            say(f"\n## {collection}: {len(graphs)} graphs, judged by {name} of other families\n")
            for line in compared(some, graphs, asked.rounds, asked.with_wide):
                say(line)


def compared(
    teachers: Sequence[Taught], graphs: Sequence[GraphRows], rounds: int, with_wide: bool
) -> Iterator[str]:
    """The table of one collection."""
    makers: dict[str, Callable[[Sequence[Taught]], Callable[[GraphRows], Floats]]] = {
        "op-cost": lambda some: op_cost(some, rounds),
        "op-cost, own cycles": lambda some: op_cost(some, rounds, {"reach": 0}),
        "op-cost, sums only": lambda some: by_name("op-cost", [one.rows for one in some], rounds),
        "sum-pooled": lambda some: by_name("sum-pooled", [one.rows for one in some], rounds),
        "ranknet": lambda some: by_name("ranknet", [one.rows for one in some], rounds),
    }
    found: dict[str, dict[str, dict[str, float]]] = {name: {} for name in makers}
    ranks: dict[str, Floats] = {}
    groups: dict[str, list[GraphRows]] = {}
    for rows in graphs:
        family = program_family(rows.name)
        groups.setdefault(family if family in {one.family for one in teachers} else "", []).append(rows)
    for family, some in groups.items():
        others = [one for one in teachers if one.family != family]
        for name, maker in makers.items():
            score = maker(others)
            for rows in some:
                value = score(rows)
                found[name][rows.name] = judged(value, rows)
                if name == "op-cost":
                    ranks[rows.name] = mean_rank(value)
    table: dict[str, Scores] = {"number of layouts set": {rows.name: without(rows) for rows in graphs}, **found}
    if with_wide:
        wide = out_of_fold(graphs, rounds)
        table["ranknet of the sample"] = {r.name: judged(wide[r.name], r) for r in graphs}
        table["ranks of both"] = {r.name: judged(mean_rank(wide[r.name]) + ranks[r.name], r) for r in graphs}
        table["ranks, a quarter op-cost"] = {
            r.name: judged(3 * mean_rank(wide[r.name]) + ranks[r.name], r) for r in graphs
        }
    first = "ranknet of the sample" if with_wide else "sum-pooled"
    yield "| taught by | " + " | ".join(_SHOWN) + f" | tau less {first} | slowdown@1 less | slowdown@5 less |"
    yield "|---" * 7 + "|"
    for name, of in table.items():
        cells = [f"{np.mean([values[metric] for values in of.values()]):.3f}" for metric in _SHOWN]
        cells += ["-" if name == first else str(difference(of, table[first], metric)) for metric in _SHOWN]
        yield f"| {name} | " + " | ".join(cells) + " |"


def without(rows: GraphRows) -> dict[str, float]:
    """Metrics of the number of layouts set."""
    column = rows.columns.index("change__nodes_set__share") - len(rows.graph_values)
    return judged(rows.config_values[:, column].astype(np.float64), rows)


def out_of_fold(graphs: Sequence[GraphRows], rounds: int) -> dict[str, Floats]:
    """Scores of ranknet of the same graphs, families held out."""
    found: dict[str, Floats] = {}
    for held in family_folds([program_family(rows.name) for rows in graphs], _FOLDS):
        score = by_name("ranknet", [rows for n, rows in enumerate(graphs) if n not in set(held)], rounds)
        found |= {graphs[n].name: score(graphs[n]) for n in held}
    return found


if __name__ == "__main__":
    main()
