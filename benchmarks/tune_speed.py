"""What makes ``tune`` quicker, each step alone, by replay: settings are scored once and searched many times.

    python -m benchmarks.tune_speed pool --workspace W --collection C --out POOL.jsonl [--settings 60] [--configs N]
    python -m benchmarks.tune_speed replay POOL.jsonl [POOL.jsonl ...] [--orders 400]

``pool`` draws settings at random from a ranker's space (the defaults first) and writes for each what it scores on
every graph along the rounds, families held out, and the processor seconds of every fold; a second call goes on.
``replay`` then pretends to search them, in random orders and with every way to save time. A choice is made by the
scores of half of the families, drawn anew for each order, and judged by those of the other half, never seen by it.
Differences from the whole search are of the same order and the same graphs: of its best trial, and of what ``tune``
would choose (the defaults, unless the best beats them by two standard errors over graphs). Seconds are ratios to
the whole search's: time on a busy machine says little by itself. Not in a replay: the TPE sampler, reading rows.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import optuna
from numpy.typing import NDArray

from xlarank.data.collection import Collection
from xlarank.data.family import program_family
from xlarank.data.workspace import Workspace
from xlarank.features.sampling import draw_of_graph, sample_configs
from xlarank.models.fit_settings import FitSettings
from xlarank.models.ranking_data import RankingData
from xlarank.models.registry import DEFAULT, ranker_class
from xlarank.models.training_set import TrainingSet
from xlarank.models.validation.curves import STEP, judge_held
from xlarank.models.validation.folds import family_folds
from xlarank.models.validation.metrics import judge
from xlarank.models.validation.rungs import FACTOR, rungs_of
from xlarank.models.validation.selection import paired_difference
from xlarank.pipelines.study.first_points import searched_part
from xlarank.pipelines.support.training_sets import read_training_set

ROUNDS: Final = 300
FOLDS: Final = 5
RUNGS: Final = tuple(rung.rounds for rung in rungs_of(ROUNDS))
#: Settings whose binning is timed by itself.
_TIMED: Final = 3


# Scoring once -----------------------------------------------------------------------------------------------


def score_pool(training: TrainingSet, out: Path, settings: int, model: str, seed: int) -> None:
    """Append what is missing to the file: a line about the folds, then a line for each setting."""
    folds = family_folds(training.data.families, FOLDS)
    if not out.exists():
        names = [[training.data.names[g] for g in held] for held in folds]
        out.write_text(json.dumps({"folds": names}) + "\n", encoding="utf-8")
    done = len(out.read_text(encoding="utf-8").splitlines()) - 1
    for number, params in enumerate(drawn_settings(training.kind, settings, model, seed)):
        if number >= done:
            scored = _score(training, folds, model, params, bins=number < _TIMED)
            with out.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps({"params": params, **scored}) + "\n")


def drawn_settings(kind: Any, settings: int, model: str, seed: int) -> Iterator[dict[str, Any]]:
    """The defaults, then settings drawn evenly from the space."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=seed))
    space = ranker_class(model).params_class
    study.enqueue_trial(searched_part(model, kind, space.of(kind).values()))
    for _ in range(settings):
        yield space.suggest(study.ask(), kind).values()


def _score(
    training: TrainingSet, folds: list[list[int]], model: str, params: dict[str, Any], *, bins: bool
) -> dict[str, Any]:
    """Seconds of each fold (to bin and grow a tree, 0 if not timed; to fit; to judge) and scores of each graph.

    ``early`` are those after the rounds of the first rung, ``graphs`` after each `STEP`.
    """
    ranker, seconds = ranker_class(model)(params, kind=training.kind), []
    early: dict[str, float] = {}
    graphs: dict[str, list[float]] = {}
    for held in folds:
        data = training.without(held)
        first = _seconds(lambda data=data: ranker.clone().fit(data, FitSettings(1, 0, 1)))[0] if bins else 0.0
        fit, fitted = _seconds(lambda data=data: ranker.clone().fit(data, FitSettings(ROUNDS, 0, 1)))
        judging, curves = _seconds(lambda held=held, fitted=fitted: judge_held(training, held, fitted, ROUNDS))
        seconds.append([first, fit, judging])
        for name, stages in curves.metrics.items():
            graphs[name] = [round(stage["score"], 5) for stage in stages]
        for g in held:
            part = training.data.parts[g]
            scores = next(fitted.staged(part.matrix(), RUNGS[0], training.data.instances_of(g)))
            early[part.name] = round(judge(training.kind, scores[part.group], part.cost, part.group)["score"], 5)
    return {"seconds": seconds, "early": early, "graphs": graphs}


def _seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    began = time.thread_time()
    found = work()
    return time.thread_time() - began, found


def with_at_most(training: TrainingSet, configs: int) -> TrainingSet:
    """A training set with so many configurations of each graph."""
    parts = [
        part.take(sample_configs(part.row_cost, configs, draw_of_graph(0, part.name)))
        for part in training.data.parts
    ]
    return TrainingSet(training.kind, RankingData.from_graphs(parts))


# Searching many times ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pool:
    """What a file of scored settings holds.

    Attributes:
        families, fold: ``(graphs,)``.
        early, scores: ``(settings, graphs)`` after the rounds of the first rung, ``(settings, graphs, stages)``.
        fit, judging: ``(settings, folds)`` seconds; ``bins`` ``(folds,)`` of them to bin.
    """

    families: NDArray[np.str_]
    fold: NDArray[np.intp]
    early: NDArray[np.float64]
    scores: NDArray[np.float64]
    fit: NDArray[np.float64]
    judging: NDArray[np.float64]
    bins: NDArray[np.float64]

    @classmethod
    def read(cls, path: Path) -> Pool:
        head, *lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        names = [name for held in head["folds"] for name in held]
        seconds = np.array([line["seconds"] for line in lines])
        return cls(
            np.array([program_family(name) for name in names]),
            np.repeat(np.arange(len(head["folds"])), [len(held) for held in head["folds"]]),
            np.array([[line["early"][name] for name in names] for line in lines]),
            np.array([[line["graphs"][name] for name in names] for line in lines]),
            seconds[:, :, 1],
            seconds[:, :, 2],
            np.median(seconds[:_TIMED, :, 0], axis=0),
        )

    def cost(self, setting: int, start: int, stop: int) -> float:
        """Seconds of all folds from one number of rounds to another, binning apart; time is even over rounds."""
        grow = self.fit[setting] - self.bins + self.judging[setting]
        return float(grow.sum()) * (stop - start) / ROUNDS

    def value(self, setting: int, graphs: NDArray[np.intp], rounds: int = ROUNDS) -> float:
        """The best smooth score of a setting within so many rounds."""
        if rounds < STEP:
            return float(self.early[setting][graphs].mean())
        return float(smooth(self.scores[setting][graphs, : rounds // STEP].mean(axis=0)).max())


@dataclass(frozen=True)
class Found:
    """What a search came to: seconds, and the complete settings with their scores on the graphs it chose by."""

    seconds: float
    complete: list[tuple[float, int]]
    reached: list[int]


def smooth(curve: NDArray[np.float64]) -> NDArray[np.float64]:
    """As `Curves.smooth_score`."""
    padded = np.pad(curve, 1, mode="edge")
    found: NDArray[np.float64] = (padded[:-2] + padded[1:-1] + padded[2:]) / 3
    return found


def whole_search(pool: Pool, order: Sequence[int], graphs: NDArray[np.intp], *, shared: bool = False) -> Found:
    """Every setting with all rounds; its bins made for it, or ``shared``."""
    each = [pool.cost(i, 0, ROUNDS) + (0.0 if shared else pool.bins.sum()) for i in order]
    return Found(sum(each), [(pool.value(i, graphs), i) for i in order], [len(order)])


def median_search(pool: Pool, order: Sequence[int], graphs: NDArray[np.intp]) -> Found:
    """Fold by fold; below the median of the trials before it a setting is given up, after five trials."""
    complete: list[tuple[float, int]] = []
    folds, seconds = len(pool.bins), 0.0
    seen: list[list[float]] = [[] for _ in range(folds)]
    for i in order:
        for fold in range(folds):
            seconds += float(pool.fit[i, fold] + pool.judging[i, fold])
            so_far = graphs[pool.fold[graphs] <= fold]
            if not len(so_far):
                continue
            found = pool.value(i, so_far)
            if fold + 1 < folds and len(complete) >= 5 and found < np.median(seen[fold]):
                break
            seen[fold].append(found)
        else:
            complete.append((pool.value(i, graphs), i))
    return Found(seconds, complete, [len(order), len(complete)])


def rung_search(
    pool: Pool,
    order: Sequence[int],
    graphs: NDArray[np.intp],
    *,
    rungs: Sequence[int] = RUNGS,
    factor: int = FACTOR,
    grows: bool = True,
    shared: bool = True,
) -> Found:
    """Asynchronous successive halving, as Optuna's pruner does it; the first setting (the defaults) always climbs.

    Args:
        grows: trees go on from rung to rung; else they are grown anew.
        shared: bins are made once for each choice of columns (8 times), not by every fit.
    """
    seconds = 8 * float(pool.bins.mean()) if shared else 0.0
    rivals: list[list[float]] = [[] for _ in rungs]
    complete = []
    for i in order:
        before = 0
        for number, rounds in enumerate(rungs):
            seconds += pool.cost(i, before if grows else 0, rounds)
            seconds += 0.0 if shared or (grows and number) else float(pool.bins.sum())
            before = rounds
            found = pool.value(i, graphs, rounds)
            rivals[number].append(found)
            if number + 1 == len(rungs):
                complete.append((found, i))
            place = max(1, len(rivals[number]) // factor)
            if found < sorted(rivals[number])[-place] and i != 0:
                break
    return Found(seconds, complete, [len(found) for found in rivals])


WAYS: Final[dict[str, Callable[[Pool, Sequence[int], NDArray[np.intp]], Found]]] = {
    "whole": whole_search,
    "whole, bins shared": lambda *of: whole_search(*of, shared=True),
    "median pruner, fold by fold": median_search,
    "rungs": lambda *of: rung_search(*of, grows=False, shared=False),
    "rungs, trees grow on": lambda *of: rung_search(*of, shared=False),
    "rungs, trees grow on, bins shared": rung_search,
    "the same, one in 3 climbs on": lambda *of: rung_search(*of, factor=3),
    "the same from 25 rounds on": lambda *of: rung_search(*of, rungs=(25, 100, 300)),
}


def replay(pool: Pool, orders: int) -> Iterator[str]:
    """Lines of a table: each way to search against the whole search of the same settings."""
    rng = np.random.default_rng(0)
    settings = len(pool.scores)
    rows: dict[str, list[tuple[float, float, float, float]]] = {name: [] for name in WAYS}
    reached: dict[str, list[list[int]]] = {name: [] for name in WAYS}
    defaults = []
    families = np.unique(pool.families)
    for _ in range(orders):
        order = [0, *(1 + rng.permutation(settings - 1)).tolist()]
        half = rng.permutation(families)[: len(families) // 2]
        seen = np.isin(pool.families, half)
        whole = whole_search(pool, order, np.flatnonzero(seen))

        def unseen(setting: int, seen: NDArray[np.bool_] = seen) -> float:
            stage = int(smooth(pool.scores[setting][seen].mean(axis=0)).argmax())
            return float(pool.scores[setting][~seen, stage].mean())

        def choice(found: Found, seen: NDArray[np.bool_] = seen) -> int:
            """As ``tune`` chooses: the defaults, unless the best beats them by two standard errors over graphs."""
            best = max(found.complete)[1]
            of_best, of_defaults = (_graph_scores(pool, setting, seen) for setting in (best, 0))
            mean, error = paired_difference(of_best, of_defaults)
            return best if mean > 2 * error else 0

        best, chosen = unseen(max(whole.complete)[1]), unseen(choice(whole))
        defaults.append((unseen(0) - best, unseen(0) - chosen))
        for name, search in WAYS.items():
            found = search(pool, order, np.flatnonzero(seen))
            score = unseen(max(found.complete)[1])
            gain = unseen(choice(found)) - chosen
            rows[name].append((found.seconds / whole.seconds, score, score - best, gain))
            reached[name].append(found.reached)
    yield (
        "| search | seconds, whole = 1 | its best trial on unseen families | against whole's "
        "| tune's choice against whole's | trials on each rung |"
    )
    yield "|---|---|---|---|---|---|"
    for name, found in rows.items():
        ratio, score, gain, kept = np.mean(found, axis=0)
        error, kept_error = np.std(found, axis=0)[2:] / np.sqrt(orders)
        counts = ", ".join(f"{count:.1f}" for count in np.mean(reached[name], axis=0))
        yield (
            f"| {name} | {ratio:.3f} | {score:.4f} | {gain:+.4f} ± {error:.4f} "
            f"| {kept:+.4f} ± {kept_error:.4f} | {counts} |"
        )
    best, chosen = np.mean(defaults, axis=0)
    yield f"| the defaults, nothing searched | 0 | | {best:+.4f} | {chosen:+.4f} | |"


def _graph_scores(pool: Pool, setting: int, seen: NDArray[np.bool_]) -> dict[str, float]:
    """Of the graphs that the choice is made by, at the best number of rounds."""
    scores = pool.scores[setting][seen]
    return {str(graph): float(one) for graph, one in enumerate(scores[:, smooth(scores.mean(axis=0)).argmax()])}


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    pool = commands.add_parser("pool")
    pool.add_argument("--workspace", type=Path, required=True)
    pool.add_argument("--collection", required=True)
    pool.add_argument("--out", type=Path, required=True)
    pool.add_argument("--settings", type=int, default=60)
    pool.add_argument("--configs", type=int, help="at most so many of each graph")
    pool.add_argument("--model", default=DEFAULT)
    pool.add_argument("--seed", type=int, default=7)
    replays = commands.add_parser("replay")
    replays.add_argument("pools", type=Path, nargs="+")
    replays.add_argument("--orders", type=int, default=400)
    asked = parser.parse_args()
    if asked.command == "pool":
        training: TrainingSet = read_training_set(Workspace(asked.workspace), Collection.parse(asked.collection))
        if asked.configs:
            training = with_at_most(training, asked.configs)
        score_pool(training, asked.out, asked.settings, asked.model, asked.seed)
        return
    for path in asked.pools:
        found = Pool.read(path)
        print(f"\n{path.stem}: {len(found.scores)} settings, {len(found.families)} graphs")
        print("\n".join(replay(found, asked.orders)))


if __name__ == "__main__":
    main()
