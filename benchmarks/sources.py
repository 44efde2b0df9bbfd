"""What other collections teach: alone, beside them, at a lower weight, and told where labels come from.

    python -m benchmarks.sources --workspace WORK [--model NAME]... [--seeds N] [--rounds N]

The workspace holds the features of the embedded sample's layout collections (`build-features`). Each is learned
alone and beside one other: the same search of another source, or the other search of its own source. Kendall's tau
of its train graphs, families held out in both, at a fixed number of rounds. Differences to learning alone are
paired over graphs; their errors are standard errors of the mean with families as clusters.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from xlarank.data.collection import Collection
from xlarank.data.workspace import Workspace
from xlarank.models.fit_settings import FitSettings
from xlarank.models.registry import ranker_class
from xlarank.models.validation.curves import join_curves, validate_folds
from xlarank.models.validation.folds import family_folds
from xlarank.models.validation.learning_curve import clustered_error
from xlarank.pipelines.support.training_sets import StoredTrainingSet, also_learn_from, read_training_set

#: Own collection, another one, what they have in common.
PAIRS: Final = (
    ("layout:cpu:random", "layout:tpu-estimate:random", "search"),
    ("layout:tpu-estimate:random", "layout:cpu:random", "search"),
    ("layout:cpu:default", "layout:tpu-estimate:default", "search"),
    ("layout:tpu-estimate:default", "layout:cpu:default", "search"),
    ("layout:cpu:default", "layout:cpu:random", "source"),
    ("layout:cpu:random", "layout:cpu:default", "source"),
    ("layout:tpu-estimate:default", "layout:tpu-estimate:random", "source"),
    ("layout:tpu-estimate:random", "layout:tpu-estimate:default", "source"),
)
#: Weight of the other collection, whether the source is a column.
ARMS: Final = ((1.0, False), (1.0, True), (0.3, False), (0.3, True))
_FOLDS: Final = 4


def taus(training: StoredTrainingSet, model: str, rounds: int, seeds: int, threads: int) -> NDArray[np.float64]:
    """``(graphs,)`` out-of-fold tau of each graph of the own collection, mean over seeds."""
    ranker = ranker_class(model)({}, kind=training.kind)
    folds = family_folds(training.data.families, _FOLDS)
    found = []
    for seed in range(seeds):
        curves = join_curves([*validate_folds(training, folds, ranker, FitSettings(rounds, seed, threads))])
        last = curves.at(-1)
        found.append([last[name]["tau"] for name in training.data.names])
    return np.mean(found, axis=0)


def told(values: NDArray[np.float64], families: list[str]) -> str:
    """Their mean and its error."""
    return f"{values.mean():+.3f} ± {clustered_error(values, families):.3f}"


def lines(workspace: Workspace, model: str, rounds: int, seeds: int, threads: int) -> Iterator[str]:
    """The table of one ranker in Markdown, as it comes."""
    heads = [f"weight {weight:g}{', source' if source else ''}" for weight, source in ARMS]
    yield f"| {model}: own | also | alone | {' | '.join(heads)} |"
    yield "|---|---|---|" + "---|" * len(ARMS)
    alone: dict[str, NDArray[np.float64]] = {}
    for own, other, _ in PAIRS:
        training = read_training_set(workspace, Collection.parse(own))
        if own not in alone:
            alone[own] = taus(training, model, rounds, seeds, threads)
        cells = []
        for weight, source in ARMS:
            both = also_learn_from(training, workspace, {Collection.parse(other): weight}, source_columns=source)
            cells.append(told(taus(both, model, rounds, seeds, threads) - alone[own], training.data.families))
        yield f"| {own} | {other} | {alone[own].mean():.3f} | {' | '.join(cells)} |"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--workspace", type=Path, required=True)
    parser.add_argument("--model", action="append", default=[])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--threads", type=int, default=0)
    asked = parser.parse_args()
    for model in asked.model or ["lambdarank", "ranknet"]:
        for line in lines(Workspace(asked.workspace), model, asked.rounds, asked.seeds, asked.threads):
            print(line, flush=True)
        print()


if __name__ == "__main__":
    main()
