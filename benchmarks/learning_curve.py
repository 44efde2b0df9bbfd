"""What more data would bring, and what the columns cannot say: learning curves of layout collections.

    python -m benchmarks.learning_curve [--data-root D] [--collection C]... [--model NAME]... [--seeds N]
                                        [--rounds N] [--out FILE]

For each collection of layouts, mean Kendall's tau over the train graphs, each judged by models that never saw its
program family (but for the last two rows):

- learned from 1, 2, 4, ... of the other families, drawn anew for each seed, and from all of them;
- learned from the other families of the *other* collections: the same programs, another search;
- *same family*: learned from all graphs but the judged one;
- *same graph*: learned from three quarters of the graph's own configurations alone and judged on the last quarter,
  four times. No other row knows the graph's runtimes. Where it is no better, more programs would not help either.

The number of rounds is fixed, not chosen.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.peers import load
from benchmarks.transcript import Transcript
from xlarank.data.collection import graph_files
from xlarank.data.family import program_family
from xlarank.data.root import find_data_root
from xlarank.features.rows import GraphRows
from xlarank.models.fit_settings import FitSettings
from xlarank.models.ranking_data import RankingData
from xlarank.models.registry import ranker_class
from xlarank.models.validation.metrics import kendall_tau

_PARTS = 4


@dataclass(frozen=True)
class Learner:
    """One ranker with its default parameters and a fixed number of rounds."""

    model: str
    rounds: int
    threads: int = 0

    def taus(self, learned: Sequence[GraphRows], judged: Sequence[GraphRows], seed: int) -> list[float]:
        """Tau of each judged graph; nan where nothing can be learned from."""
        usable = [graph for graph in learned if graph.rankable]
        if not usable:
            return [np.nan] * len(judged)
        ranker = ranker_class(self.model)(kind="layout")
        ranker.fit(RankingData.from_graphs(usable), FitSettings(self.rounds, seed, self.threads))
        scores = [ranker.predict(graph.matrix(), graph.columns, graph.instances)[graph.group] for graph in judged]
        return [kendall_tau(score, graph.cost) for score, graph in zip(scores, judged, strict=True)]


def family_counts(families: int) -> list[int]:
    """Numbers of families to learn from: powers of two below all that are left when one is held out.

    >>> family_counts(9)
    [1, 2, 4, 8]
    >>> family_counts(7)
    [1, 2, 4, 6]
    """
    return sorted({*(2**n for n in range(10) if 2**n < families - 1), families - 1} - {0})


def held_families(
    graphs: Sequence[GraphRows], choose: Callable[[str], Sequence[GraphRows]], learner: Learner, seed: int
) -> list[float]:
    """Taus of all graphs, each family judged by what `choose` gives to learn from when it is held out."""
    found: list[float] = []
    for family in sorted({program_family(graph.name) for graph in graphs}):
        judged = [graph for graph in graphs if program_family(graph.name) == family]
        found += learner.taus(choose(family), judged, seed)
    return found


def some_families(graphs: Sequence[GraphRows], held: str, count: int, seed: int) -> list[GraphRows]:
    """Graphs of ``count`` families other than the held-out one."""
    others = sorted({program_family(graph.name) for graph in graphs} - {held})
    rng = np.random.default_rng([seed, count, *held.encode()])
    drawn = set(rng.choice(others, min(count, len(others)), replace=False).tolist())
    return [graph for graph in graphs if program_family(graph.name) in drawn]


def same_family(graphs: Sequence[GraphRows], learner: Learner, seed: int) -> list[float]:
    """Taus of the graphs that are not alone in their family, each judged by models of all others."""
    found: list[float] = []
    for graph in graphs:
        others = [other for other in graphs if other is not graph]
        if any(program_family(other.name) == program_family(graph.name) for other in others):
            found += learner.taus(others, [graph], seed)
    return found


def same_graph(graphs: Sequence[GraphRows], learner: Learner, seed: int) -> list[float]:
    """Taus of configurations by models of other configurations of the same graph, averaged over quarters."""
    found: list[float] = []
    for graph in graphs:
        order = np.random.default_rng(seed).permutation(len(graph))
        parts = [np.sort(order[start::_PARTS]) for start in range(_PARTS)]
        quarters: list[float] = []
        for part in parts:
            rest, judged = graph.take(np.setdiff1d(order, part)), graph.take(part)
            if judged.rankable:
                quarters += learner.taus([rest], [judged], seed)
        if quarters:
            found.append(float(np.mean(quarters)))
    return found


def curve(
    graphs: Sequence[GraphRows], elsewhere: Sequence[GraphRows], learner: Learner, seeds: int
) -> Iterator[tuple[str, str]]:
    """What was learned from, and the mean tau in words."""
    families = len({program_family(graph.name) for graph in graphs})

    def told(taus: Callable[[int], list[float]]) -> str:
        found = np.array([taus(seed) for seed in range(seeds)])
        return f"{np.nanmean(found):.3f} (± {np.nanmean(found, axis=1).std():.3f})"

    for count in family_counts(families):

        def of_some(seed: int, count: int = count) -> list[float]:
            return held_families(
                graphs, lambda held: some_families(graphs, held, count, seed), learner, seed
            )  # fmt: skip

        yield f"{count} other famil{'y' if count == 1 else 'ies'}", told(of_some)
    if elsewhere:

        def of_others(seed: int) -> list[float]:
            return held_families(
                graphs, lambda held: [g for g in elsewhere if program_family(g.name) != held], learner, seed
            )

        yield "other families of the other collections", told(of_others)
    yield "same family, another graph", told(lambda seed: same_family(graphs, learner, seed))
    yield "same graph, three quarters of its configurations", told(lambda seed: same_graph(graphs, learner, seed))


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--collection", action="append", default=[], help="default: all of layouts")
    parser.add_argument("--model", action="append", default=[])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--out", type=Path, help="also write the tables to this file")
    asked = parser.parse_args()
    root = find_data_root(asked.data_root)
    files = [
        file
        for file in graph_files(root.npz, asked.collection, where=str(root.path))
        if file.split == "train" and file.collection.kind == "layout"
    ]
    collections = sorted({file.collection for file in files})
    graphs = {c: load([file.path for file in files if file.collection == c], "layout").wide for c in collections}
    say = Transcript(asked.out)

    for collection in collections:
        elsewhere = [graph for other in collections if other != collection for graph in graphs[other]]
        say(f"\n## {collection}\n")
        say("| learned from | " + " | ".join(asked.model or ["ranknet"]) + " |")
        say("|---|" + "---|" * len(asked.model or ["ranknet"]))
        learners = [Learner(model, asked.rounds, asked.threads) for model in asked.model or ["ranknet"]]
        for lines in zip(
            *(curve(graphs[collection], elsewhere, one, asked.seeds) for one in learners), strict=True
        ):
            say(f"| {lines[0][0]} | " + " | ".join(value for _, value in lines) + " |")


if __name__ == "__main__":
    main()
