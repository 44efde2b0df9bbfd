"""What each feature block is worth: leave-family-out scores with it left out, and with it alone.

    python -m benchmarks.ablation [--collection C]... [--model NAME] [--seeds N] [--out FILE]

Every graph of the train split is scored by models that saw none of its family. The number of rounds is the
best of all columns together, once a collection, and then the same for every variant. Prints a table a collection,
in Markdown: the mean over seeds of the mean score over graphs (Kendall's tau for layouts, 1 - slowdown of the best
of the top 5 for tiles), its standard deviation over seeds, and the difference from all columns. A difference below
two standard deviations is noise.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from xlarank.data.collection import Collection, graph_files
from xlarank.data.graph import Kind, read_graph
from xlarank.data.root import find_data_root
from xlarank.features.assemble import assemble
from xlarank.features.block import Block, Scope, Tier
from xlarank.features.catalogue import blocks_of
from xlarank.features.recipe import FeatureSettings
from xlarank.features.rows import GraphRows
from xlarank.models.fit_settings import FitSettings
from xlarank.models.registry import DEFAULT, ranker_class
from xlarank.models.training_data import TrainingData
from xlarank.models.validation.curves import join_curves, validate_folds
from xlarank.models.validation.folds import family_folds

_ROUNDS = 200
_FOLDS = 5


class Ablation:
    """Scores of one collection with any columns."""

    def __init__(self, collection: Collection, graphs: list[GraphRows], model: str, seeds: int) -> None:
        self.kind: Kind = collection.kind
        self.data = TrainingData.from_graphs(graphs)
        self.folds = family_folds(self.data.families, _FOLDS)
        self.model, self.seeds, self.stage = model, seeds, -1
        whole = np.stack([self._curve(self.data.columns, seed) for seed in range(seeds)])
        mean = np.pad(whole.mean(axis=0), 1, mode="edge")
        self.stage = int(np.argmax(mean[:-2] + mean[1:-1] + mean[2:]))
        self.whole = whole[:, self.stage]

    def _curve(self, columns: Sequence[str], seed: int) -> NDArray[np.float64]:
        """``(stages,)`` mean score over graphs."""
        wanted = set(columns)
        index = np.array([number for number, name in enumerate(self.data.columns) if name in wanted])
        parts = [part.only(index) for part in self.data.parts]
        data = replace(self.data, parts=parts, columns=parts[0].columns)
        ranker = ranker_class(self.model)({"columns": "all"}, kind=self.kind)
        curves = validate_folds(data, self.folds, ranker, FitSettings(_ROUNDS, seed))
        mean: NDArray[np.float64] = join_curves(list(curves)).column("score").mean(axis=0)
        return mean

    def score(self, columns: Sequence[str]) -> NDArray[np.float64]:
        """``(seeds,)`` at the chosen number of rounds."""
        return np.array([self._curve(columns, seed)[self.stage] for seed in range(self.seeds)])


def table(ablation: Ablation) -> list[str]:
    """The rows of the table, printed as they come."""
    blocks = blocks_of(ablation.kind)
    every = ablation.data.columns
    config = [block for block in blocks if block.scope is Scope.CONFIG]
    sets = {
        "**all**": every,
        "configuration columns only": [name for block in config for name in block.columns],
        "without transductive blocks": _names([block for block in blocks if not block.transductive]),
        "fast tier": _names([block for block in blocks if block.tier is Tier.FAST]),
    }
    lines = ["| block | columns | left out | difference | alone |", "|---|---|---|---|---|"]
    print("\n".join(lines), flush=True)

    def add(name: str, count: int, out: NDArray[np.float64], alone: NDArray[np.float64] | None) -> None:
        difference = out.mean() - ablation.whole.mean()
        lines.append(f"| {name} | {count} | {_spread(out)} | {difference:+.4f} | {_spread(alone)} |")
        print(lines[-1], flush=True)

    for name, columns in sets.items():
        add(name, len(columns), ablation.whole if columns is every else ablation.score(columns), None)
    for block in blocks:
        rest = [name for name in every if name not in block.columns]
        traits = [block.tier.value, *(["graph"] if block.scope is Scope.GRAPH else [])]
        traits += ["transductive"] if block.transductive else []
        alone = ablation.score(list(block.columns)) if block.scope is Scope.CONFIG else None
        label = f"{type(block).__name__} ({', '.join(traits)})"
        add(label, len(block.columns), ablation.score(rest), alone)
    return lines


def _names(blocks: Sequence[Block]) -> list[str]:
    return [name for block in blocks for name in block.columns]


def _spread(scores: NDArray[np.float64] | None) -> str:
    return "" if scores is None else f"{scores.mean():.4f} ± {scores.std():.4f}"


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--collection", action="append", default=[])
    parser.add_argument("--model", default=DEFAULT)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, help="also write the tables to this file")
    asked = parser.parse_args()
    root = find_data_root(asked.data_root)
    files = [
        file for file in graph_files(root.npz, asked.collection, where=str(root.path)) if file.split == "train"
    ]
    text: list[str] = []
    for collection in sorted({file.collection for file in files}, key=str):
        graphs = []
        for file in files:
            if file.collection == collection:
                graph = read_graph(file.path, collection.kind)
                graphs.append(assemble(graph, FeatureSettings()))
        ablation = Ablation(collection, graphs, asked.model, asked.seeds)
        metric = "Kendall's tau" if collection.kind == "layout" else "1 - slowdown of the best of the top 5"
        rounds = min(_ROUNDS, 25 * (ablation.stage + 1))
        text += ["", f"## {collection}", ""]
        text += [
            f"{metric}: mean over {ablation.data.groups} graphs, {len(ablation.folds)} folds of whole families; ± "
            f"standard deviation over {asked.seeds} seeds; `{asked.model}`, {rounds} rounds.",
            "",
        ]
        print("\n".join(text[-4:]), flush=True)
        text += table(ablation)
        if asked.out:
            asked.out.write_text("\n".join(text).lstrip() + "\n", encoding="utf-8")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
