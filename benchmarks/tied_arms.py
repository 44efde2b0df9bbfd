"""What tied and large programs teach: arms judged on untied, tied and large ones alone, families held out.

    python -m benchmarks.tied_arms ROOT... [--data-root D] [--arms A,B,...] [--seeds N] [--flips]

``ROOT`` holds graphs that were collected with ties; those with 60 configurable nodes or more are called large, the
embedded sample's are the untied ones. Prints mean Kendall's tau for each arm, and its difference to the first arm
with a 95 % bootstrap interval, paired over graphs. With ``--flips`` prints columns whose correlation with the
label, within a graph, is clear on untied graphs (0.2 and two standard errors) and has another sign or less than
half the size on tied ones.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from benchmarks.graph_rows import labelled_rows
from benchmarks.pretrain import ROUNDS, config_columns, estimated, wide_ensemble
from xlarank.data.collection import graph_files
from xlarank.data.family import program_family
from xlarank.data.root import SAMPLE, find_data_root
from xlarank.features.rows import GraphRows
from xlarank.models.validation.folds import family_folds
from xlarank.models.validation.metrics import kendall_tau

#: Each draws from graphs by kind. ``equal``: untied graphs with as many rows as the tied ones; ``-nocand``: without
#: the columns that look at the graph's candidate set.
ARMS = ("untied", "tied", "large", "both", "all", "equal")
LARGE = 60
_FOLDS = 6
Graphs = dict[str, list[GraphRows]]


def tied_graphs(roots: Sequence[Path]) -> Graphs:
    """Rankable graphs below some roots, small and large ones."""
    found: Graphs = {"tied": [], "large": []}
    for root in roots:
        for file in graph_files(find_data_root(root).npz, [], where=str(root)):
            with np.load(file.path) as arrays:
                nodes = arrays["node_config_ids"].size
            found["large" if nodes >= LARGE else "tied"] += map(
                config_columns, labelled_rows([file.path], "layout")
            )
    return found


def taught(arm: str, graphs: Graphs, seed: int) -> list[GraphRows]:
    """What an arm learns from."""
    if arm != "equal":
        wanted = {"both": ("untied", "tied"), "all": ("untied", "tied", "large")}.get(arm, (arm,))
        return [graph for kind in wanted for graph in graphs[kind]]
    rows = sum(len(graph) for graph in graphs["tied"])
    chosen: list[GraphRows] = []
    for number in np.random.default_rng(seed).permutation(len(graphs["untied"])).tolist():
        if sum(len(graph) for graph in chosen) < rows:
            chosen.append(graphs["untied"][number])
    return chosen


def without_candidates(graph: GraphRows) -> GraphRows:
    """Without columns of the candidate set."""
    return graph.only(np.array([at for at, name in enumerate(graph.columns) if "candidates_" not in name], np.intp))


def taus(learned: Sequence[GraphRows], asked: Sequence[GraphRows], seed: int, threads: int) -> list[float]:
    """Tau of each graph asked for by a ranker of the learned ones."""
    ranker = wide_ensemble(list(learned), ROUNDS, seed, threads)
    scores = [ranker.predict(graph.matrix(), graph.columns, graph.instances)[graph.group] for graph in asked]
    return [kendall_tau(score, graph.cost) for score, graph in zip(scores, asked, strict=True)]


def judged(
    arms: Sequence[str], graphs: Graphs, seed: int, threads: int
) -> dict[str, dict[str, NDArray[np.float64]]]:
    """Tau by arm and kind of each graph, by rankers of other families."""
    every = [(kind, graph) for kind, some in graphs.items() for graph in some]
    found = {arm: np.zeros(len(every)) for arm in arms}
    for held in family_folds([program_family(graph.name) for _, graph in every], _FOLDS):
        others: Graphs = {kind: [] for kind in graphs}
        for number, (kind, graph) in enumerate(every):
            if number not in set(held):
                others[kind].append(graph)
        for arm in arms:
            name, _, less = arm.partition("-")
            learned, asked = taught(name, others, seed), [every[number][1] for number in held]
            if less:
                learned, asked = [*map(without_candidates, learned)], [*map(without_candidates, asked)]
            found[arm][held] = taus(learned, asked, seed, threads)
    kinds = np.array([kind for kind, _ in every])
    return {arm: {kind: values[kinds == kind] for kind in graphs} for arm, values in found.items()}


def interval(differences: NDArray[np.float64]) -> str:
    """Mean and 95 % bootstrap interval over graphs.

    >>> interval(np.zeros(4))
    '+0.000 (+0.000 to +0.000)'
    """
    drawn = np.random.default_rng(0).choice(differences, (5000, len(differences))).mean(axis=1)
    low, high = np.quantile(drawn, (0.025, 0.975))
    return f"{differences.mean():+.3f} ({low:+.3f} to {high:+.3f})"


def correlations(graphs: Sequence[GraphRows]) -> NDArray[np.float64]:
    """``(graphs, columns)`` Spearman correlation with the label within each graph; NaN for constant columns."""
    found = []
    for graph in graphs:
        ranks = rankdata(graph.matrix().astype(float), axis=0)
        ranks -= ranks.mean(axis=0)
        cost = rankdata(graph.row_cost)
        cost -= cost.mean()
        scale = np.sqrt((ranks**2).sum(axis=0) * (cost**2).sum())
        found.append(np.divide(cost @ ranks, scale, out=np.full(len(scale), np.nan), where=scale > 0))
    return np.array(found)


def show_flips(columns: Sequence[str], untied: NDArray[np.float64], tied: NDArray[np.float64]) -> None:
    """Print the columns that are clear in both and have another sign."""
    means, errors, enough = [], [], np.ones(len(columns), bool)
    for values in (untied, tied):
        number = (~np.isnan(values)).sum(axis=0)
        enough &= number >= 6
        filled = np.where(np.isnan(values), 0.0, values)
        mean = filled.sum(axis=0) / np.maximum(1, number)
        spread = np.where(np.isnan(values), 0.0, (values - mean) ** 2).sum(axis=0) / np.maximum(1, number)
        means.append(mean)
        errors.append(np.sqrt(spread / np.maximum(1, number)))
    clear = enough & (np.abs(means[0]) > np.maximum(2 * errors[0], 0.2))
    faded = np.flatnonzero(clear & (means[1] * np.sign(means[0]) < np.abs(means[0]) / 2))
    print(f"\n{clear.sum()} columns are clear on untied graphs; of these change sign or lose half:")
    for at in faded.tolist():
        both = [f"{mean[at]:+.2f} ± {error[at]:.2f}" for mean, error in zip(means, errors, strict=True)]
        print(f"  {columns[at]}: untied {both[0]}, tied {both[1]}")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("roots", type=Path, nargs="+")
    parser.add_argument("--data-root", type=Path, default=SAMPLE)
    parser.add_argument("--arms", default="untied,both,tied,equal,both-nocand")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--flips", action="store_true")
    asked = parser.parse_args()
    untied = [graph for graphs in estimated(asked.data_root).values() for graph in graphs]
    graphs = {"untied": untied, **tied_graphs(asked.roots)}
    for kind, some in graphs.items():
        print(f"{kind}: {len(some)} graphs, {sum(len(graph) for graph in some)} rows")
    if asked.flips:
        rho = {kind: correlations(some) for kind, some in graphs.items() if some}
        show_flips(
            untied[0].columns, rho["untied"], np.concatenate([rho[kind] for kind in rho if kind != "untied"])
        )
    arms = [arm for arm in asked.arms.split(",") if arm]
    seeds = [judged(arms, graphs, seed, asked.threads) for seed in range(asked.seeds if arms else 0)]
    kinds = [kind for kind, some in graphs.items() if some]
    print("\n| learned from |" + "".join(f" {kind}: tau, to {arms[0]} |" for kind in kinds) if arms else "")
    for arm in arms:
        line = f"| {arm} |"
        for kind in kinds:
            values, base = (np.mean([one[name][kind] for one in seeds], axis=0) for name in (arm, arms[0]))
            line += f" {values.mean():.3f}, {interval(values - base)} |"
        print(line)


if __name__ == "__main__":
    main()
