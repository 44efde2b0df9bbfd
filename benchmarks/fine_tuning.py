"""What two measured graphs add to a ranker of estimates: going on from it, learning both together, or neither.

    python -m benchmarks.fine_tuning [--data-root D] [--draws N] [--real ROOT]

On the embedded sample, four times over: the ranker that comes with xlarank is made anew from estimates without the
families that are judged or taught, and two graphs of another collection are added: the other search of the
estimates (near to what it knows), or one measured on a CPU (far from it). `DEFAULT_ROUNDS` and `DEFAULT_RATE` of
`train --fine-tune` are chosen here: the best mean over the four of what loses no more than 0.01 in any.

With ``--real`` the shipped ranker, instead, goes on from the train graphs of ``layout:xla:default`` below another
root, measured on a TPU, and its valid graphs judge, those of ``layout:xla:random``, too. They choose nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.peers import load
from benchmarks.pretrain import ROUNDS, WEIGHTS, config_columns
from xlarank.data.collection import graph_files
from xlarank.data.family import program_family
from xlarank.data.root import SAMPLE, find_data_root
from xlarank.features.rows import GraphRows
from xlarank.features.sampling import sample_configs
from xlarank.models.fit_settings import FitSettings
from xlarank.models.pretrained import pretrained_model
from xlarank.models.rankers.ensemble import Ensemble
from xlarank.models.rankers.ensemble_weights import blend
from xlarank.models.ranking_data import RankingData
from xlarank.models.validation.metrics import kendall_tau
from xlarank.pipelines.support.fine_tuning import DEFAULT_RATE, DEFAULT_ROUNDS

ESTIMATES: Final = ("layout:tpu-estimate:random", "layout:tpu-estimate:default")
MEASURED: Final = ("layout:cpu:random", "layout:cpu:default")
#: Rounds that are added, rates, and what an estimated graph counts beside a measured one where both teach at once.
STAGES: Final = (25, 50, 100, 200)
RATES: Final = (0.3, 1.0)
JOINT: Final = (1.0, 0.1, 0.02)
#: What an estimated graph counts while new trees are grown on measured ones.
BESIDE: Final = 0.1
_BASE_ROUNDS: Final = 80
_JUDGED_FAMILIES: Final = 8
_JUDGED: Final = 14
#: Of each measured graph that is learned from.
_MOST: Final = 2000


def graphs_of(data_root: Path | None, collection: str, split: str = "train") -> list[GraphRows]:
    """Rows of a collection's labelled graphs, configuration columns alone."""
    root = find_data_root(data_root)
    files = [file.path for file in graph_files(root.npz, [collection], where=str(root.path)) if file.split == split]
    return [config_columns(rows) for rows in load(files, "layout").wide]


def fitted(data: RankingData, rounds: int, seed: int) -> Ensemble:
    """What is shipped, learned from some graphs."""
    return Ensemble(WEIGHTS, kind="layout").fit(data, FitSettings(rounds, seed, 1))


def taus(scores: Sequence[np.ndarray], judged: Sequence[GraphRows]) -> list[float]:
    """Tau of each judged graph; scores are of its distinct configurations."""
    return [kendall_tau(score[graph.group], graph.cost) for score, graph in zip(scores, judged, strict=True)]


def arms(
    base: Ensemble, estimates: RankingData, measured: RankingData, judged: Sequence[GraphRows], seed: int
) -> Iterator[tuple[str, list[float]]]:
    """Name and taus of every way to use the measured graphs; the first uses none."""

    def scores(ranker: Ensemble) -> list[np.ndarray]:
        return [ranker.predict(graph.matrix(), graph.columns, graph.instances) for graph in judged]

    before, alone = scores(base), scores(fitted(measured, ROUNDS, seed))
    yield "estimates alone", taus(before, judged)
    yield "measured alone", taus(alone, judged)
    mixed = [blend([a, b], [1.0, 1.0]) for a, b in zip(before, alone, strict=True)]
    yield "mean of their ranks", taus(mixed, judged)
    for rate in RATES:
        tuned = base.continuing(rate).fit(measured, FitSettings(STAGES[-1], seed, 1))
        staged = [list(tuned.staged(graph.matrix(), STAGES[0], graph.instances)) for graph in judged]
        for rounds in STAGES:  # small graphs may leave nothing to split before the last stage
            last = [stages[min(rounds // STAGES[0], len(stages)) - 1] for stages in staged]
            yield f"{rounds} rounds at rate {rate:g}", taus(last, judged)
    for weight in (1.0, BESIDE):
        beside = measured.join(estimates.weighted(weight))
        tuned = base.continuing().fit(beside, FitSettings(DEFAULT_ROUNDS, seed, 1))
        yield f"{DEFAULT_ROUNDS} rounds, estimated graphs beside at {weight:g}", taus(scores(tuned), judged)
    for weight in JOINT:
        together = fitted(measured.join(estimates.weighted(weight)), _BASE_ROUNDS, seed)
        yield f"together, an estimated graph {weight:g}", taus(scores(together), judged)


def on_sample(data_root: Path, draws: int) -> Iterator[str]:
    """A table for each collection that two graphs are drawn of."""
    sets = {name: graphs_of(data_root, name) for name in (*ESTIMATES, *MEASURED)}
    for target in sets:
        graphs = sets[target]
        known = [graph for name in ESTIMATES if name != target for graph in sets[name]]
        rng = np.random.default_rng(7)
        families = sorted({program_family(graph.name) for graph in graphs})
        found: dict[str, list[float]] = {}
        for draw in range(draws):
            order = [str(family) for family in rng.permutation(families)]
            taught, unseen = order[:2], order[2 : 2 + _JUDGED_FAMILIES]
            each = [[graph for graph in graphs if program_family(graph.name) == family] for family in taught]
            measured = RankingData.from_graphs([own[int(rng.integers(len(own)))] for own in each])
            judged = [graph for graph in graphs if program_family(graph.name) in unseen][:_JUDGED]
            left = {*taught, *unseen}
            estimates = RankingData.from_graphs([g for g in known if program_family(g.name) not in left])
            base = fitted(estimates, _BASE_ROUNDS, draw)
            for name, values in arms(base, estimates, measured, judged, draw):
                found.setdefault(name, []).extend(values)
        first = np.array(found["estimates alone"])
        yield f"\n{target}: {draws} draws, {len(first)} judged graphs"
        for name, values in found.items():
            gain = np.array(values) - first
            yield f"| {name} | {np.mean(values):.3f} | {gain.mean():+.3f} ± {gain.std() / np.sqrt(len(gain)):.3f} |"


def on_real(root: Path, data_root: Path) -> Iterator[str]:
    """The shipped ranker and the train graphs below ``root``: four ways, both seeds' mean of scores."""
    learned = []
    for graph in graphs_of(root, "layout:xla:default"):
        kept = sample_configs(graph.row_cost, _MOST, np.random.default_rng(0), "uniform")
        learned.append(graph.take(np.sort(kept)))
    measured = RankingData.from_graphs(learned)
    judged = {
        f"{graph.name} ({search})": graph
        for search in ("default", "random")
        for graph in graphs_of(root, f"layout:xla:{search}", "valid")
    }
    estimates = RankingData.from_graphs([g for name in ESTIMATES for g in graphs_of(data_root, name)])
    shipped = [ranker for ranker in pretrained_model().rankers if isinstance(ranker, Ensemble)]
    ways: dict[str, list[Ensemble]] = {
        "shipped as it is": shipped,
        f"shipped, {DEFAULT_ROUNDS} rounds more at rate {DEFAULT_RATE:g}": [
            ranker.continuing(DEFAULT_RATE).fit(measured, FitSettings(DEFAULT_ROUNDS, seed, 1))
            for seed, ranker in enumerate(shipped)
        ],
        f"the same, estimated graphs beside at {BESIDE:g}": [
            ranker.continuing(DEFAULT_RATE).fit(
                measured.join(estimates.weighted(BESIDE)), FitSettings(DEFAULT_ROUNDS, seed, 1)
            )
            for seed, ranker in enumerate(shipped)
        ],
        "together, an estimated graph 0.1": [
            fitted(measured.join(estimates.weighted(0.1)), ROUNDS, seed) for seed in range(2)
        ],
        "measured alone": [fitted(measured, ROUNDS, seed) for seed in range(2)],
    }
    yield f"learned from {', '.join(measured.names)}"
    yield f"| learned | {' | '.join(judged)} |"
    for name, rankers in ways.items():
        cells = []
        for graph in judged.values():
            each = [ranker.predict(graph.matrix(), ranker.columns, graph.instances) for ranker in rankers]
            cells.append(f"{kendall_tau(np.mean(each, axis=0)[graph.group], graph.cost):.3f}")
        yield f"| {name} | {' | '.join(cells)} |"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data-root", type=Path, default=SAMPLE)
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--real", type=Path)
    asked = parser.parse_args()
    for line in on_real(asked.real, asked.data_root) if asked.real else on_sample(asked.data_root, asked.draws):
        print(line, flush=True)


if __name__ == "__main__":
    main()
