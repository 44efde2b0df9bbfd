"""How many estimated programs teach how much: a learning curve of the ranker that comes with xlarank.

    python -m benchmarks.estimate_transfer [--data-root D] [--valid] [--real ROOT] [--programs N]... [--seeds N]

Learns from 10, 25, 50, 100, ... estimated programs (drawn anew for each seed; both searches of a program count as
one) and prints mean Kendall's tau

- out of fold: on the train programs of families that were not learned from,
- with ``--valid``: on the valid split of the estimated collections,
- with ``--real``: on layouts *measured on a TPU* below another root, of which nothing is learned (zero-shot). Of a
  graph with more configurations `_MOST` are drawn.

Valid and the measured graphs judge; they are not there to choose by. So both are asked for, not looked at by
default.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.peers import load
from benchmarks.pretrain import ROUNDS, config_columns, estimated, wide_ensemble
from xlarank.data.collection import graph_files
from xlarank.data.family import program_family
from xlarank.data.root import SAMPLE, find_data_root
from xlarank.features.rows import GraphRows
from xlarank.models.validation.folds import family_folds
from xlarank.models.validation.metrics import kendall_tau

#: Distinct configurations of a measured graph that are looked at.
_MOST = 4000
_FOLDS = 6


def some_programs(graphs: Sequence[GraphRows], count: int, seed: int) -> list[GraphRows]:
    """The graphs of ``count`` programs, drawn by name; of all where there are no more."""
    names = sorted({graph.name for graph in graphs})
    drawn = set(np.random.default_rng([seed, count]).permutation(names)[:count].tolist())
    return [graph for graph in graphs if graph.name in drawn]


def program_counts(programs: int) -> list[int]:
    """10, 25, 50, then doubling, below all of them, and all.

    >>> program_counts(60), program_counts(7)
    ([10, 25, 50, 60], [7])
    """
    steps = [10, 25, *(50 * 2**n for n in range(10))]
    return [*(step for step in steps if step < programs), programs]


def taus(learned: Sequence[GraphRows], judged: Sequence[GraphRows], seed: int, threads: int) -> list[float]:
    """Tau of each judged graph by a ranker of the learned ones."""
    ranker = wide_ensemble(list(learned), ROUNDS, seed, threads)
    scores = [ranker.predict(graph.matrix(), graph.columns, graph.instances)[graph.group] for graph in judged]
    return [kendall_tau(score, graph.cost) for score, graph in zip(scores, judged, strict=True)]


def out_of_fold(graphs: Sequence[GraphRows], count: int, seed: int, threads: int) -> list[float]:
    """Tau of every graph by rankers of ``count`` programs of other families."""
    found: list[float] = []
    for held in family_folds([program_family(graph.name) for graph in graphs], _FOLDS):
        others = [graph for number, graph in enumerate(graphs) if number not in set(held)]
        found += taus(some_programs(others, count, seed), [graphs[number] for number in held], seed, threads)
    return found


def measured(root: Path) -> dict[str, GraphRows]:
    """Labelled, rankable layouts below a root, with at most `_MOST` distinct configurations each."""
    npz = find_data_root(root).npz
    found: dict[str, GraphRows] = {}
    for file in graph_files(npz, [], where=str(root)):
        if file.collection.kind == "layout" and file.split != "test":
            for rows in load([file.path], "layout").wide:
                kept = np.sort(np.random.default_rng(0).permutation(len(rows))[:_MOST])
                found[f"{rows.name} ({file.collection})"] = config_columns(rows.take(kept))
    return found


def told(values: Sequence[Sequence[float]]) -> str:
    """``[seed][graph]`` taus: their mean, the standard error over graphs, the spread over seeds."""
    table = np.array(values)
    error = table.mean(axis=0).std() / np.sqrt(table.shape[1])
    return f"{table.mean():.3f} ± {error:.3f} (seeds ± {table.mean(axis=1).std():.3f})"


def main() -> None:
    """Print the curve."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data-root", type=Path, default=SAMPLE)
    parser.add_argument("--valid", action="store_true")
    parser.add_argument("--real", type=Path)
    parser.add_argument("--programs", type=int, action="append", default=[])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=0)
    asked = parser.parse_args()
    train = [graph for graphs in estimated(asked.data_root).values() for graph in graphs]
    valid = (
        [graph for graphs in estimated(asked.data_root, "valid").values() for graph in graphs]
        if asked.valid
        else []
    )
    real = measured(asked.real) if asked.real else {}
    programs = len({graph.name for graph in train})
    families = len({program_family(graph.name) for graph in train})
    print(
        f"{programs} programs of {families} families, {len(train)} graphs; {asked.seeds} seeds, {ROUNDS} rounds\n"
    )
    print("| programs | out of fold |" + " valid |" * bool(valid) + "".join(f" {name} |" for name in real))
    print("|---|---|" + "---|" * (bool(valid) + len(real)))
    for count in asked.programs or program_counts(programs):
        judged = [*valid, *real.values()]
        folds, others = [], []
        for seed in range(asked.seeds):
            folds.append(out_of_fold(train, count, seed, asked.threads))
            others.append(taus(some_programs(train, count, seed), judged, seed, asked.threads) if judged else [])
        table = np.array(others)
        line = f"| {count} | {told(folds)} |"
        line += f" {told(table[:, : len(valid)].tolist())} |" if valid else ""
        line += "".join(f" {value:.3f} |" for value in table[:, len(valid) :].mean(axis=0))
        print(line, flush=True)


if __name__ == "__main__":
    main()
