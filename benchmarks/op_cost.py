"""Do cycles per operation teach more than their sum? Trees on the cycles of nodes, summed over a program.

    python -m benchmarks.op_cost FOLDER [--data-root D] [--rounds N] [--with-wide] [--out FILE]

``FOLDER`` holds what `collect` wrote for the TPU, cycles per operation included. Its programs teach, the estimated
layouts of the sample (train split) judge: every graph by rankers that saw no program of its family.

- ``op-cost``: LightGBM regression of log cycles of a node (`xlarank.data.hlo.compiler.attribution`) from its
  instance and the pairs that it is in; a configuration's score is the sum over its nodes.
- ``op-cost, of default``: the same of the logarithm of cycles over those of the node in the compiler's own choice;
  in the sum a node of the judged program has the weight of its bytes or operations.
- ``sum-pooled``: the same instances of the same programs, taught by the sum alone (its ranking loss).
- ``ranknet``: wide rows of the same programs.

With ``--with-wide`` also ranknet of the sample itself, families held out, and the mean of its ranks with op-cost's.
Every difference is paired, with a 95 % interval over graphs. First it prints how much could be attributed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import lightgbm as lgb
import numpy as np
from numpy.typing import NDArray

from benchmarks.operation_nodes import located
from benchmarks.pretrain import config_columns, estimated
from xlarank.data.family import program_family
from xlarank.data.graph import LayoutGraph, read_graph
from xlarank.data.hlo.compiler.attribution import NodeCycles, node_cycles
from xlarank.data.hlo.compiler.cycle_table import read_cycles
from xlarank.data.root import SAMPLE
from xlarank.features.assemble import assemble
from xlarank.features.instances.instances import Instances
from xlarank.features.recipe import FeatureSettings
from xlarank.features.rows import GraphRows
from xlarank.models.fit_settings import FitSettings
from xlarank.models.objectives.labels import mean_rank
from xlarank.models.ranking_data import RankingData
from xlarank.models.registry import ranker_class
from xlarank.models.validation.folds import family_folds
from xlarank.models.validation.metrics import judge
from xlarank.models.validation.paired import Scores, difference

Floats = NDArray[np.float64]

_SHOWN = ("tau", "slowdown@1", "slowdown@5")
_PAIR = ("pair__unlike__flag", "pair__minor_unlike__flag", "pair__given__count", "pair__turned__flag")
_PAIR_BYTES = "pair__bytes__log2"
_TREES = {
    "objective": "regression", "learning_rate": 0.05, "num_leaves": 15, "min_data_in_leaf": 10, "lambda_l2": 1.0,
    "feature_fraction": 0.5, "num_threads": 1, "verbose": -1, "deterministic": True, "seed": 0,
}  # fmt: skip
_FOLDS = 5


@dataclass(frozen=True, eq=False)
class Taught:
    """A program that teaches: its rows and the cycles of its nodes."""

    rows: GraphRows
    cycles: NodeCycles

    @property
    def family(self) -> str:
        return program_family(self.rows.name)


def node_rows(instances: Instances) -> tuple[NDArray[np.float32], NDArray[np.intp]]:
    """``(configs * nodes, columns)`` of the nodes that have more than one row, and which nodes these are.

    The columns of a node's instance, then for each side sums over the pairs that it is in.
    """
    (nodes,) = np.nonzero(np.diff(instances.first, append=len(instances.rows)) > 1)
    own = [n for n, name in enumerate(instances.columns) if not name.startswith(("pair__", "candidates__"))]
    row = instances.first + instances.codes
    held = instances.row_instance[row[:, nodes]]
    values = instances.values[held.reshape(-1)][:, own]
    values[held.reshape(-1) < 0] = np.nan
    flags = [instances.columns.index(name) for name in _PAIR]
    size = instances.columns.index(_PAIR_BYTES)
    sides = np.zeros((instances.configs, len(instances.node), 2, len(flags) + 1), np.float32)
    left, left_slot, right, right_slot, _ = instances.pairs.T
    combination = instances.request[row[:, left], left_slot] * instances.pair_width
    combination += instances.request[row[:, right], right_slot] + instances.pair_first
    met = instances.pair_instance[combination]
    for pair, (one, other) in enumerate(zip(left, right, strict=True)):
        found = instances.values[met[:, pair]]
        moved = found[:, flags[0]] * np.exp2(found[:, size])
        told = np.where(met[:, pair, None] >= 0, np.column_stack([found[:, flags], moved]), 0)
        sides[:, one, 0] += told
        sides[:, other, 1] += told
    around = sides[:, nodes].reshape(len(values), -1)
    return np.column_stack([values, around]).astype(np.float32), nodes


def by_row(teacher: Taught) -> Floats:
    """``(distinct configurations, nodes)`` cycles."""
    first = np.unique(teacher.rows.group, return_index=True)[1]
    return teacher.cycles.cycles[teacher.cycles.program[teacher.rows.ids[first]]]


def own_choice(rows: GraphRows) -> int | None:
    """The distinct configuration that sets nothing."""
    column = rows.columns.index("change__nodes_set__share") - len(rows.graph_values)
    found = np.flatnonzero(rows.config_values[:, column] == 0)
    return int(found[0]) if len(found) else None


def learn(teachers: Sequence[Taught], rounds: int, *, of_default: bool) -> Callable[[GraphRows], Floats]:
    """Fit node by node; gives ``(distinct configurations,)`` scores of a graph."""
    values, target, weight = [], [], []
    for teacher in teachers:
        assert teacher.rows.instances is not None
        found, nodes = node_rows(teacher.rows.instances.value)
        cycles = by_row(teacher)[:, nodes]
        logs = np.log1p(cycles)
        share = np.ones_like(logs)
        if of_default:
            default = own_choice(teacher.rows)
            if default is None:
                continue
            logs = np.log((cycles + _floor(cycles)) / (cycles[default] + _floor(cycles)))
            share = np.tile((cycles[default] + _floor(cycles)) / cycles[default].mean(), (len(cycles), 1))
        values.append(found)
        target.append(logs.reshape(-1))
        weight.append(share.reshape(-1) / len(logs))
    data = lgb.Dataset(np.concatenate(values), np.concatenate(target), weight=np.concatenate(weight))
    booster = lgb.train(_TREES, data, rounds)

    def score(rows: GraphRows) -> Floats:
        assert rows.instances is not None
        instances = rows.instances.value
        found, nodes = node_rows(instances)
        told = np.asarray(booster.predict(found)).reshape(-1, len(nodes))
        if of_default:  # cycles of the judged program are not known: its bytes and operations stand for them
            told = np.exp(told) * work(instances, nodes)
        else:
            told = np.expm1(told)
        total: Floats = told.sum(axis=1)
        return total

    return score


def _floor(cycles: Floats) -> Floats:
    """So that a node whose cycles another one took does not count as infinitely faster."""
    return np.maximum(0.1 * cycles.mean(axis=0), 1.0)


def work(instances: Instances, nodes: NDArray[np.intp]) -> Floats:
    """``(nodes,)`` a node's least cycles: its bytes at 900 GB/s or its operations at 50 Tflop/s, at 940 MHz."""
    size, flops = (instances.columns.index(f"node__{what}__log2") for what in ("bytes", "flops"))
    held = instances.row_instance[instances.first[nodes]]
    found = instances.values[held].astype(np.float64)
    return np.maximum(np.exp2(found[:, size]) / 957, np.exp2(found[:, flops]) / 53_000)


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
    fitted = ranker_class(name)(kind="layout").fit(data, FitSettings(rounds, 0, 1))

    def score(rows: GraphRows) -> Floats:
        own = config_columns(rows) if len(rows.graph_values) else rows
        return np.asarray(fitted.predict(own.matrix(), own.columns, own.instances))

    return score


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="+")
    parser.add_argument("--data-root", type=Path, default=SAMPLE)
    parser.add_argument("--rounds", type=int, default=150)
    parser.add_argument("--with-wide", action="store_true")
    parser.add_argument("--out", type=Path, help="also write the tables to this file")
    asked = parser.parse_args()
    text: list[str] = []

    def say(line: str) -> None:
        text.append(line)
        print(line, flush=True)
        if asked.out:
            asked.out.write_text("\n".join(text) + "\n", encoding="utf-8")

    say("| program | nodes | configurable | programs compiled | own cycles | by neighbours | none | nodes from |")
    say("|---|---|---|---|---|---|---|---|")
    teachers: list[Taught] = []
    for folder in asked.folder:
        for one, line in teachers_in(folder):
            say(line)
            if one.rows.name not in {other.rows.name for other in teachers}:
                teachers.append(one)
    for collection, graphs in estimated(asked.data_root).items():
        say(f"\n## {collection}: {len(graphs)} graphs, judged by {len(teachers)} programs of other families\n")
        for line in compared(teachers, graphs, asked.rounds, asked.with_wide):
            say(line)


def compared(
    teachers: Sequence[Taught], graphs: Sequence[GraphRows], rounds: int, with_wide: bool
) -> Iterator[str]:
    """The table of one collection."""
    makers: dict[str, Callable[[Sequence[Taught]], Callable[[GraphRows], Floats]]] = {
        "op-cost": lambda some: learn(some, rounds, of_default=False),
        "op-cost, of default": lambda some: learn(some, rounds, of_default=True),
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
