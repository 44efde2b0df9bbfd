"""Replay measured graphs: which configurations to measure first, and do runtimes help to choose the
next?

    python -m benchmarks.measure_next [--data-root D] [--collection PATTERN]

Prints the regret in per cent, the best runtime so far over the best of all minus 1, for five ways
to choose:

- random: the expectation;
- order: by the predictions of the shipped rankers (TPU) or of `lambdarank` out of fold by family
  (CPU);
- tpe: the configuration nearest to the suggestion of Optuna's TPE, after four random ones; mean of
  five seeds;
- learned: the largest expected improvement by a Gaussian process around the predicted log time:
  terms for the orders of tied outputs, a Laplace kernel for tiles, variances weighted by marginal
  likelihood;
- spread: the same, with the prediction in place of every measured runtime: it only spreads its
  choices.
"""

import argparse
from collections.abc import Iterable
from itertools import groupby, product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import optuna
from numpy.typing import NDArray
from optuna.distributions import CategoricalDistribution
from optuna.samplers import TPESampler
from optuna.trial import TrialState, create_trial
from scipy.stats import norm, sem

from xlarank.data.collection import Collection, GraphFile, find_data_root, graph_files
from xlarank.data.config_table import group_minimum
from xlarank.data.families import program_family
from xlarank.data.graph import LayoutGraph, TileGraph, read_graph
from xlarank.data.workspace import DEFAULT_ROOT, Workspace
from xlarank.features.layout.layout_facts import LayoutFacts
from xlarank.features.program.tensors import complete_layout, layout_key
from xlarank.graph_ranker import GraphRanker
from xlarank.models.stored import pretrained_model
from xlarank.models.training_data import TPU, target_of
from xlarank.models.validation.folds import family_folds
from xlarank.models.validation.label_noise import tied_groups
from xlarank.pipelines.rank import rank

Floats = NDArray[np.float64]
BUDGET = 16
SHOWN = [1, 2, 4, 8, 16]
#: Log time for one standard deviation of scores; standard deviations of terms and noise, relative
#: to it.
_SLOPES = (0.01, 0.03, 0.1, 0.3, 1.0)
_TERMS = (0.1, 0.3, 1.0, 3.0)
_NOISE = (0.01, 0.03, 0.1, 0.3, 1.0)


class Replay(NamedTuple):
    """Distinct measured configurations, best prediction first; predictions have a standard
    deviation of 1.
    """

    name: str
    cost: Floats  # the least of repeats
    prediction: Floats
    slopes: tuple[float, ...]
    # (configs, parameters): numbers of the orders of tied outputs, logarithms of a tile's columns
    codes: Floats
    tile: bool


def replay_of(graph: LayoutGraph | TileGraph, scores: Floats, *, times: bool) -> Replay:
    """Return the replay of a graph whose ``scores (configs,)`` are log times, or only order."""
    if isinstance(graph, LayoutGraph):
        facts = LayoutFacts(graph)
        default = facts.default_layout[graph.configurable[facts.table.node]]
        orders = layout_key(
            complete_layout(facts.table.rows[:, : default.shape[1]].astype(np.int64), default)
        )
        codes = tied_groups(orders.astype(np.int32)[facts.table.codes]).astype(np.float64)
    else:
        codes = np.log2(1 + graph.config_feat[graph.first].astype(np.float64))
        codes = codes[:, np.ptp(codes, axis=0) > 0]
    cost = group_minimum(graph.cost, graph.group, len(graph.first))
    scores = scores[graph.first]
    order = [row for row in np.argsort(scores, kind="stable") if np.isfinite(cost[row])]
    scale = float(scores[order].std()) or 1.0
    slopes = (scale,) if times else _SLOPES
    tile = isinstance(graph, TileGraph)
    return Replay(graph.name, cost[order], scores[order] / scale, slopes, codes[order], tile)


def replays(collection: Collection, files: Iterable[GraphFile]) -> list[Replay]:
    """Return the labelled graphs of a collection, predicted without runtimes of their families."""
    graphs = [read_graph(file.path) for file in files]
    graphs = [graph for graph in graphs if graph.labelled and len(graph.first) > 1]
    if target_of(collection) is TPU:
        model = pretrained_model(collection.kind)
        workspace = Workspace(DEFAULT_ROOT)
        times = [(graph, rank(workspace, graph, model=model).estimated) for graph in graphs]
        return [replay_of(graph, np.log(ns), times=True) for graph, ns in times if ns is not None]
    result = []
    for _, held in family_folds([program_family(graph.name) for graph in graphs], limit=5):
        others = [graph for number, graph in enumerate(graphs) if number not in held]
        ranker = GraphRanker(n_estimators=200, target="cpu").fit(others)
        result += [
            replay_of(graphs[number], ranker.predict(graphs[number]), times=False)
            for number in held
        ]
    return result


def by_tpe(replay: Replay, seed: int) -> list[int]:
    """Return the configurations that TPE measures, in order."""
    rng = np.random.default_rng(seed)
    left = np.ones(len(replay.cost), bool)
    chosen = []
    choices = enumerate(np.unique(code).tolist() for code in replay.codes.T)
    space = {str(number): CategoricalDistribution(values) for number, values in choices}
    study = optuna.create_study(
        sampler=TPESampler(n_startup_trials=4, multivariate=True, seed=seed)
    )
    for number in range(min(BUDGET, len(left))):
        trial = study.ask(dict(space))
        study.tell(trial, state=TrialState.FAIL)  # the nearest configuration is added instead
        agreeing = (replay.codes == [trial.params[name] for name in space]).sum(axis=1) * (
            number >= 4
        )
        config = int(np.argmax(np.where(left, agreeing + rng.random(len(left)) / 2, -1)))
        params = dict(zip(space, replay.codes[config].tolist(), strict=True))
        value = np.log(replay.cost[config])
        study.add_trial(create_trial(params=params, distributions=dict(space), value=value))
        left[config] = False
        chosen.append(config)
    return chosen


def by_improvement(replay: Replay, *, learn: bool) -> list[int]:
    """Return the configurations of the largest expected improvement, in order, with or without
    runtimes.
    """
    prediction = replay.prediction
    logs = np.log(replay.cost)
    chosen = [0]
    while len(chosen) < min(BUDGET, len(logs)):
        apart = replay.codes[:, None] - replay.codes[chosen]
        kernel = np.exp(-np.abs(apart).mean(axis=2)) if replay.tile else (apart == 0).mean(axis=2)
        gains = []
        evidence = []
        for terms, noise in product(_TERMS, _NOISE):
            cross = terms**2 * kernel
            inverse = np.linalg.inv(cross[chosen] + noise**2 * np.eye(len(chosen)))
            ones = inverse.sum(axis=1)  # of the constant, which has a flat prior
            known = ((cross @ inverse) * cross).sum(axis=1)
            std = np.sqrt(terms**2 + noise**2 - known + (1 - cross @ ones) ** 2 / ones.sum())
            for slope in replay.slopes:
                values = logs[chosen] / slope if learn else prediction[chosen]
                residual = values - prediction[chosen]
                residual -= (constant := ones @ residual / ones.sum())
                z = (values.min() - constant - prediction - cross @ inverse @ residual) / std
                gains.append(slope * std * (z * norm.cdf(z) + norm.pdf(z)))
                fit = (
                    np.linalg.slogdet(inverse)[1]
                    - np.log(ones.sum())
                    - residual @ inverse @ residual
                )
                evidence.append(fit / 2 - (len(chosen) - 1) * np.log(slope) if learn else 0.0)
        gain = np.exp(np.array(evidence) - max(evidence)) @ np.array(gains)
        gain[chosen] = -np.inf
        chosen.append(int(np.argmax(gain)))
    return chosen


def regrets(replay: Replay) -> dict[str, Floats]:
    """Return the best runtime after each of 16 measurements, over the best of all, in per cent, by
    method.
    """
    cost = np.sort(replay.cost)
    left = np.arange(len(replay.cost), 0, -1)
    seeds = range(5)
    missed = [np.cumprod(np.clip(1 - count / left, 0, 1)) for count in range(1, BUDGET + 1)]
    orders = {
        "order": [[*range(min(BUDGET, len(cost)))]],
        "tpe": [by_tpe(replay, seed) for seed in seeds],
    }
    orders |= {
        name: [by_improvement(replay, learn=name == "learned")] for name in ("learned", "spread")
    }
    best = {"random": np.array([-np.diff(chance, prepend=1) @ cost for chance in missed])}
    for name, runs in orders.items():
        curve = np.minimum.accumulate(replay.cost[np.array(runs)], axis=1).mean(axis=0)
        best[name] = np.pad(curve, (0, BUDGET - len(curve)), mode="edge")
    return {name: 100 * (curve / cost[0] - 1) for name, curve in best.items()}


def print_table(title: str, graphs: list[dict[str, Floats]]) -> None:
    """Print means and standard errors; the last column is the mean of 16 regrets minus that of
    `order`.
    """
    print(
        f"\n| {title} | {' | '.join(map(str, SHOWN))} | mean - order's "
        f"|\n{'|---' * (len(SHOWN) + 2)}|"
    )
    for method in graphs[0]:
        curves = np.array([graph[method] for graph in graphs])
        lead = (curves - [graph["order"] for graph in graphs]).mean(axis=1)
        columns = [*curves.T[np.array(SHOWN) - 1], lead]
        cells = [
            f"{x.mean():.3f} ± {sem(x) if len(x) > 1 else np.nan:.3f}".removesuffix(" ± nan")
            for x in columns
        ]
        print(f"| {method} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--collection", action="append", default=[])
    args = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    root = find_data_root(args.data_root)
    files = graph_files(root.npz, args.collection, where=str(root.path))
    for collection, group in groupby(files, key=lambda file: file.collection):
        curves = {replay.name: regrets(replay) for replay in replays(collection, group)}
        if curves:
            print_table(f"{collection}, {len(curves)} graphs", [*curves.values()])
        for name, curve in curves.items() if len(curves) < 5 else ():
            print_table(name, [curve])


if __name__ == "__main__":
    main()
