"""What tied and large programs add: arms evaluated on untied, tied and large graphs, families held out.

    python -m benchmarks.tied_arms [--data-root D] [--arms A,B,...] [--seeds N] [--flips]

Prints mean Kendall's tau of each arm, and its difference to the first arm with a 95 % bootstrap interval, paired
over graphs. With ``--flips`` prints columns whose correlation with the label, within a graph, is clear on untied
graphs (0.2 and two standard errors) and has another sign or less than half the size on tied ones.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from benchmarks.pretrain import ROUNDS, WEIGHTS, estimated
from xlarank.data.family import program_family
from xlarank.data.root import SAMPLE
from xlarank.features.rows import GraphRows
from xlarank.models.rankers.boosted import chosen_columns
from xlarank.models.rankers.ensemble import Ensemble
from xlarank.models.training_data import FitSettings, TrainingData
from xlarank.models.validation.folds import family_folds
from xlarank.models.validation.metrics import kendall_tau

#: Graphs that an arm is trained on, by kind. ``equal``: untied graphs with as many rows as the tied and large ones.
ARMS: Final = {
    "untied": ("untied",), "tied": ("tied",), "large": ("large",), "both": ("untied", "tied"),
    "untied+large": ("untied", "large"), "all": ("untied", "tied", "large"), "equal": ("untied",),
}  # fmt: skip
#: Changes of an arm, after a hyphen: ``all-nogroups-alike``.
CHANGES: Final = {
    "nogroups": "without columns of tied groups",
    "nocand": "without columns about the other candidates",
    "nocounts": "without columns that are counts",
    "alike": "every graph with the same weight, whatever its rows",
    "bygroups": "every graph weighted by its number of groups of tied nodes",
}
LARGE: Final = 40
_TIED: Final = "layout:tpu-estimate:tied"
_FOLDS: Final = 6
Graphs = dict[str, list[GraphRows]]


def by_kind(data_root: Path) -> Graphs:
    """Estimated graphs: untied ones, tied ones, and tied ones with `LARGE` configurable nodes or more."""
    found: Graphs = {"untied": [], "tied": [], "large": []}
    for collection, graphs in estimated(data_root).items():
        for graph in graphs:
            tied = "large" if _codes(graph).shape[1] >= LARGE else "tied"
            found[tied if collection == _TIED else "untied"].append(graph)
    return found


def trained_on(arm: str, graphs: Graphs, seed: int) -> list[GraphRows]:
    """What an arm is trained on."""
    if arm != "equal":
        return [graph for kind in ARMS[arm] for graph in graphs[kind]]
    rows = sum(len(graph) for kind in ("tied", "large") for graph in graphs[kind])
    drawn = [graphs["untied"][at] for at in np.random.default_rng(seed).permutation(len(graphs["untied"]))]
    before = np.cumsum([0, *map(len, drawn)])
    return drawn[: int(np.searchsorted(before, rows))]


def kept_columns(columns: Sequence[str], changes: Sequence[str]) -> NDArray[np.intp]:
    """Indices of the columns that the changes of an arm leave."""
    kept = chosen_columns(list(columns), "no_candidates" if "nocand" in changes else "all")
    names = np.array(columns)[kept]
    dropped = np.char.startswith(names, "groups__") & ("nogroups" in changes)
    return kept[~(dropped | np.char.endswith(names, "__log") & ("nocounts" in changes))]


def fitted(graphs: Sequence[GraphRows], changes: Sequence[str], seed: int) -> Ensemble:
    """An ensemble like the shipped one, with the changes of an arm."""
    data = TrainingData.from_graphs(graphs)
    sizes = np.diff(data.indptr)
    weight = None
    if "alike" in changes:
        weight = 1 / sizes
    elif "bygroups" in changes:
        weight = np.array([np.unique(_codes(graph), axis=1).shape[1] for graph in graphs]) / sizes
    if weight is not None:
        data = replace(data, group_weight=weight * sizes.sum() / (weight * sizes).sum())
    params: dict[str, Any] = {**WEIGHTS}
    if weight is not None:  # ranknet's own weights of graphs would come on top
        params["members"] = {"ranknet": {"graph_weight": "rows"}}
    return Ensemble(params, kind="layout").fit(data, FitSettings(ROUNDS, seed))


def taus(arm: str, others: Graphs, held_out: Sequence[GraphRows], seed: int) -> list[float]:
    """Tau of each held-out graph by an arm that is trained on the others."""
    name, *changes = arm.split("-")
    if name not in ARMS or not set(changes) <= CHANGES.keys():
        raise SystemExit(f"{arm} is no arm; expected one of {', '.join(ARMS)}, then {', '.join(CHANGES)}")
    kept = kept_columns(held_out[0].columns, changes)
    ranker = fitted([graph.only(kept) for graph in trained_on(name, others, seed)], changes, seed)
    return [
        kendall_tau(ranker.predict(graph.matrix(), graph.columns, graph.instances)[graph.group], graph.cost)
        for graph in (one.only(kept) for one in held_out)
    ]


def evaluated(arms: Sequence[str], graphs: Graphs, seed: int) -> dict[str, dict[str, NDArray[np.float64]]]:
    """Tau by arm and kind of each graph, by rankers that were trained on other families."""
    every = [(kind, graph) for kind, some in graphs.items() for graph in some]
    found = {arm: np.zeros(len(every)) for arm in arms}
    for held in family_folds([program_family(graph.name) for _, graph in every], _FOLDS):
        apart = {id(every[number][1]) for number in held}
        others = {kind: [graph for graph in some if id(graph) not in apart] for kind, some in graphs.items()}
        for arm in arms:
            found[arm][held] = taus(arm, others, [every[number][1] for number in held], seed)
            print(".", end="", flush=True)
    kinds = np.array([kind for kind, _ in every])
    return {arm: {kind: values[kinds == kind] for kind in graphs} for arm, values in found.items()}


def _codes(graph: GraphRows) -> NDArray[np.unsignedinteger[Any]]:
    """``(configurations, configurable nodes)`` number of the row that each node takes."""
    assert graph.instances is not None
    return graph.instances.value.codes


def interval(differences: NDArray[np.float64]) -> str:
    """Mean and 95 % bootstrap interval over graphs."""
    drawn = np.random.default_rng(0).choice(differences, (5000, len(differences))).mean(axis=1)
    low, high = np.quantile(drawn, (0.025, 0.975))
    return f"{differences.mean():+.3f} ({low:+.3f} to {high:+.3f})"


def correlations(graphs: Sequence[GraphRows]) -> NDArray[np.float64]:
    """``(graphs, columns)`` Spearman's correlation with the label; nan where a column is constant."""
    found = []
    for graph in graphs:
        ranks = rankdata(np.column_stack([graph.row_cost, graph.matrix().astype(float)]), axis=0)
        with np.errstate(invalid="ignore", divide="ignore"):
            found.append(np.corrcoef(ranks, rowvar=False)[0, 1:])
    return np.array(found)


def show_flips(columns: Sequence[str], *kinds: NDArray[np.float64]) -> None:
    """Print the columns that are clear on the first kind of graphs and have another sign on the second."""
    enough = np.min([(~np.isnan(values)).sum(axis=0) for values in kinds], axis=0) >= 6
    known = [values[:, enough] for values in kinds]
    means = [np.nanmean(values, axis=0) for values in known]
    errors = [np.nanstd(values, axis=0) / np.sqrt((~np.isnan(values)).sum(axis=0)) for values in known]
    clear = np.abs(means[0]) > np.maximum(2 * errors[0], 0.2)
    faded = np.flatnonzero(clear & (means[1] * np.sign(means[0]) < np.abs(means[0]) / 2))
    print(f"\n{clear.sum()} columns are clear on untied graphs; of these change sign or lose half:")
    for at in faded.tolist():
        both = [f"{mean[at]:+.2f} ± {error[at]:.2f}" for mean, error in zip(means, errors, strict=True)]
        print(f"  {np.array(columns)[enough][at]}: untied {both[0]}, tied {both[1]}")


def main() -> None:
    """Print the tables."""
    about = "changes of an arm, after hyphens:\n" + "\n".join(f"  {name}: {text}" for name, text in CHANGES.items())
    parser = argparse.ArgumentParser(
        description=(__doc__ or "") + about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data-root", type=Path, default=SAMPLE)
    parser.add_argument("--arms", default="untied-nogroups,untied,all-nogroups,all")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--flips", action="store_true")
    asked = parser.parse_args()
    graphs = by_kind(asked.data_root)
    for kind, some in graphs.items():
        print(f"{kind}: {len(some)} graphs, {sum(len(graph) for graph in some)} rows")
    if asked.flips:
        rho = {kind: correlations(some) for kind, some in graphs.items()}
        show_flips(graphs["untied"][0].columns, rho["untied"], np.concatenate([rho["tied"], rho["large"]]))
    arms = [arm for arm in asked.arms.split(",") if arm]
    seeds = [evaluated(arms, graphs, seed) for seed in range(asked.seeds if arms else 0)]
    print("\n| trained on |" + "".join(f" {kind}: tau, difference |" for kind in graphs) if arms else "")
    for arm in arms:
        line = f"| {arm} |"
        for kind in graphs:
            values, base = (np.mean([one[name][kind] for one in seeds], axis=0) for name in (arm, arms[0]))
            line += f" {values.mean():.3f}, {interval(values - base)} |"
        print(line)


if __name__ == "__main__":
    main()
