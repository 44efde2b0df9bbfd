"""Which columns about operands earn their place: leave-family-out scores on the estimated layouts.

    python -m benchmarks.operand_columns [--data-root D] [--model NAME]... [--seeds N] [--rounds N] [--out FILE]

Estimated layouts constrain outputs alone, and in the measured file that was looked at closely (AlexNet) layouts
set on operands change nothing. So: all columns of configurations; those without a word on an operand's slot; and
the latter with the operand columns of one block at a time, or without the pairs in which an operand meets its
producer. Fixed rounds, so that nothing is chosen. Every difference to all columns is paired, with a 95 % interval
over graphs; slowdown stands beside tau.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.pretrain import estimated
from benchmarks.transcript import Transcript
from xlarank.data.root import SAMPLE
from xlarank.features.rows import GraphRows
from xlarank.models.fit_settings import FitSettings
from xlarank.models.rankers.columns import speaks_of_operands
from xlarank.models.ranking_data import RankingData
from xlarank.models.registry import ranker_class
from xlarank.models.training_set import TrainingSet
from xlarank.models.validation.curves import join_curves, validate_folds
from xlarank.models.validation.folds import family_folds
from xlarank.models.validation.paired import Scores, difference

_FOLDS = 5
_SHOWN = ("tau", "slowdown@1", "slowdown@5")
#: Blocks with columns about operands.
_BLOCKS = ("padding", "packed", "violation", "roles", "types", "change")
#: Blocks of pairs: an operand against its producer, and two readers of a tensor.
_PAIRS = ("disagreement", "siblings")


def variants(columns: Sequence[str]) -> dict[str, list[str]]:
    """Which columns each variant keeps, in their order."""
    outputs = [name for name in columns if not speaks_of_operands(name)]
    found = {"all of configurations": list(columns), "outputs": outputs}
    for block in _BLOCKS:
        kept = {name for name in columns if name.startswith(f"{block}__")}.union(outputs)
        found[f"outputs, operands of {block}"] = [name for name in columns if name in kept]
    found["outputs, no pairs"] = [name for name in outputs if name.split("__")[0] not in _PAIRS]
    return found


def scores(graphs: Sequence[GraphRows], model: str, columns: Sequence[str], seeds: int, rounds: int) -> Scores:
    """``{graph: {metric: value}}`` out of fold, the mean over seeds."""
    index = np.array([number for number, name in enumerate(graphs[0].columns) if name in set(columns)])
    data = RankingData.from_graphs(graphs)
    parts = [part.only(index) for part in data.parts]
    data = replace(data, parts=parts, columns=parts[0].columns)
    folds = family_folds(data.families, _FOLDS)
    ranker = ranker_class(model)({"columns": "all"}, kind="layout")
    found = []
    for seed in range(seeds):
        curves = validate_folds(TrainingSet("layout", data), folds, ranker, FitSettings(rounds, seed, 1))
        found.append(join_curves(list(curves)).at(-1))
    return {
        graph: {metric: float(np.mean([one[graph][metric] for one in found])) for metric in _SHOWN}
        for graph in found[0]
    }


def lines(graphs: Sequence[GraphRows], model: str, seeds: int, rounds: int) -> Iterator[str]:
    """The table in Markdown, as it comes."""
    yield (
        "| columns | number | "
        + " | ".join(_SHOWN)
        + " | "
        + " | ".join(f"{one}, less all" for one in _SHOWN)
        + " |"
    )
    yield "|---|---|" + "---|" * 2 * len(_SHOWN)
    whole: Scores = {}
    for name, columns in variants(graphs[0].columns).items():
        of = scores(graphs, model, columns, seeds, rounds)
        whole = whole or of
        cells = [f"{np.mean([values[metric] for values in of.values()]):.3f}" for metric in _SHOWN]
        cells += ["-" if of is whole else str(difference(of, whole, metric)) for metric in _SHOWN]
        yield f"| {name} | {len(columns)} | " + " | ".join(cells) + " |"


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data-root", type=Path, default=SAMPLE)
    parser.add_argument("--model", action="append", default=[], help="default: ranknet and lambdarank")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=150)
    parser.add_argument("--out", type=Path, help="also write the tables to this file")
    asked = parser.parse_args()
    say = Transcript(asked.out)

    for collection, graphs in estimated(asked.data_root).items():
        for model in asked.model or ["ranknet", "lambdarank"]:
            say(f"\n## {collection}, {model}: {len(graphs)} graphs, {asked.rounds} rounds, {asked.seeds} seeds\n")
            for line in lines(graphs, model, asked.seeds, asked.rounds):
                say(line)


if __name__ == "__main__":
    main()
