"""Core-hours of 200 trials per collection at the official size, from a share of it that is run.

    python -m benchmarks.tune_core_hours --data-root REAL [--collections C ...] [--share 0.1] [--rounds 300]
                                         [--threads 1] [--json FILE]

For each collection the sizes of the training graphs are drawn (`full_size_shapes`), every tenth of them (by size)
gets rows that are drawn from real files, and a trial of the defaults is run as it was (every fold with all rounds,
its own bins) and on rungs, in a process of its own: processor seconds of each part, and the peak of its memory.
Scores mean nothing. Hours of a study are then added up over the trials that reach each rung (`reached`).
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.full_size_shapes import OFFICIAL, draw_shapes, pick_share
from benchmarks.full_size_tree import DISTINCT
from xlarank.data.collection import discover
from xlarank.data.graph import Kind, read_graph
from xlarank.data.root import find_data_root
from xlarank.features.assemble import assemble
from xlarank.features.rows import GraphRows
from xlarank.models.fit_settings import FitSettings
from xlarank.models.rankers.binned import BinnedRows
from xlarank.models.ranking_data import RankingData
from xlarank.models.registry import DEFAULT, ranker_class
from xlarank.models.training_set import TrainingSet
from xlarank.models.validation.curves import validate_folds
from xlarank.models.validation.folds import Fold, family_folds
from xlarank.models.validation.rungs import FACTOR, climb, rungs_of

#: Configurations kept of each training graph, as a plan for 12 h, 30 GB and 4 cores had it.
CONFIGS: Final[dict[Kind, int]] = {"layout": 700, "tile": 35}
TRIALS: Final = 200
#: Choices of columns and orders that a study makes bins of.
CHOICES: Final = 16
#: Correlation of a setting's scores on neighbouring rungs, as in docs/tuning.md.
AGREEMENT: Final = 0.85
FOLDS: Final = 5


def drawn_rows(npz: Path, collection: str, share: float) -> TrainingSet:
    """Training graphs of the official sizes: rows of real graphs, graph columns scattered so that graphs differ."""
    kind: Kind = "tile" if collection.startswith("tile") else "layout"
    rng = np.random.default_rng(0)
    real = []
    for file in discover(npz):
        if file.collection.kind == kind:
            stored = assemble(read_graph(file.path, kind))
            if stored.labelled and stored.rankable and len(stored) >= 20:
                real.append(replace(stored, instances=None).take(np.arange(min(len(stored), 2000))))
    shapes = [shape for shape in draw_shapes(collection) if shape.split == "train"]
    graphs: list[GraphRows] = []
    for number, shape in enumerate(pick_share(shapes, share)):
        model = real[number % len(real)]
        rows = max(2, min(CONFIGS[kind], round(DISTINCT * shape.configs) if kind == "layout" else shape.configs))
        pick = np.sort(rng.choice(len(model), rows, replace=rows > len(model)))
        scattered = model.graph_values * (1 + rng.random(len(model.graph_values)))
        runtime = rng.permutation(rows) + 10**6
        graphs.append(
            replace(
                model, name=shape.name, graph_values=scattered.astype(np.float32),
                config_values=model.config_values[pick], group=np.arange(rows), ids=np.arange(rows),
                runtime=runtime, normalizer=np.ones(rows, np.int64),
            )
        )  # fmt: skip
    return TrainingSet(kind, RankingData.from_graphs(graphs))


def measure(npz: Path, collection: str, share: float, rounds: int, threads: int, whole: bool) -> dict[str, Any]:
    """Processor seconds of the parts of a trial, in this process, and its peak memory."""
    training = drawn_rows(npz, collection, share)
    idle = _peak()
    folds = family_folds(training.data.families, FOLDS)
    ranker, settings = ranker_class(DEFAULT)(kind=training.kind), FitSettings(rounds, 0, threads)
    found: dict[str, Any] = {"rows": len(training.data.cost), "graphs": training.data.groups, "folds": len(folds)}
    found["learned_rows"] = sum(len(training.without(held).cost) for held in folds)
    with tempfile.TemporaryDirectory() as folder:
        bins = BinnedRows(training.whole(), folder=Path(folder), threads=threads)
        rungs, bound = rungs_of(rounds), replace(settings, bins=bins)
        found["rungs"] = [rung.rounds for rung in rungs]
        for name, last in (("first", len(rungs)), ("again", 1)):
            began, seconds = time.process_time(), []
            climbing = climb(rungs, training, [Fold(held, held) for held in folds], ranker, bound)
            for _ in range(last):
                next(climbing)
                seconds.append(time.process_time() - began)
                began = time.process_time()
            climbing.close()
            found[name] = seconds
    found["peak"], found["idle"] = _peak(), idle
    if whole:
        began = time.process_time()
        list(validate_folds(training, folds, ranker, settings))
        found["whole"] = time.process_time() - began
    return found


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0


def reached(trials: int, rungs: int, agreement: float, draws: int = 200) -> list[float]:
    """Trials that get to each rung on average, scores of neighbouring rungs correlated so much.

    The defaults come first and always get to the top.
    """
    rng, counts = np.random.default_rng(0), np.zeros(rungs)
    for _ in range(draws):
        rivals: list[list[float]] = [[] for _ in range(rungs)]
        for number in range(trials):
            score = rng.standard_normal()
            for rung in range(rungs):
                rivals[rung].append(score)
                counts[rung] += 1
                if score < sorted(rivals[rung])[-max(1, len(rivals[rung]) // FACTOR)] and number:
                    break
                score = agreement * score + np.sqrt(1 - agreement**2) * rng.standard_normal()
    return [float(count) for count in counts / draws]


def _share(found: dict[str, Any]) -> float:
    """Seconds of a study on rungs, bins made once, over those of as many whole trials."""
    each = [found["again"][0], *found["first"][1:]]
    counts = reached(TRIALS, len(each), AGREEMENT)
    bins = CHOICES * (found["first"][0] - found["again"][0])
    seconds = bins + sum(count * cost for count, cost in zip(counts, each, strict=True))
    return float(seconds / (TRIALS * found["whole"]))


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data-root", type=Path, required=True)
    parser.add_argument("--collections", nargs="+", default=list(OFFICIAL), choices=list(OFFICIAL))
    parser.add_argument("--share", type=float, default=0.1)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--no-whole", action="store_true", help="the rungs alone")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    npz = find_data_root(asked.data_root).npz
    if asked.one:
        print(json.dumps(measure(npz, asked.one, asked.share, asked.rounds, asked.threads, not asked.no_whole)))
        return
    result = {}
    for collection in asked.collections:
        words = [sys.executable, "-m", "benchmarks.tune_core_hours", *sys.argv[1:], "--one", collection]
        result[collection] = json.loads(subprocess.run(words, stdout=subprocess.PIPE, check=True, text=True).stdout)
        print(collection, json.dumps(result[collection]), flush=True)
        if "whole" in result[collection]:
            print(f"  200 trials on rungs: {_share(result[collection]):.3f} of 200 whole ones", flush=True)
        if asked.json:
            asked.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
