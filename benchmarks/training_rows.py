"""Out-of-fold score of lambdarank against the number of training configurations of a graph.

    python -m benchmarks.training_rows [--data-root D] [COLLECTION...]
    python -m benchmarks.training_rows --simulated 1000

Held-out graphs are always scored on the same configurations. Measured collections of the sample
have at most 64 configurations a graph. With ``--simulated`` the programs of layout:cpu:random get
that many random ones, and as labels the estimated time of `xlarank.features.layout.relayouts` with
3 % of noise; the columns of that estimate are then left out. With ``--share 0.5`` folds train on a
random half of their graphs.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.untied import candidate_rows, random_configurations
from xlarank.data.collection import SAMPLE, Collection, DataRoot, find_data_root, graph_files
from xlarank.data.graph import LayoutGraph, read_graph
from xlarank.features.assembly import assemble
from xlarank.features.layout.relayout_blocks import TIME
from xlarank.features.rows import GraphRows, graph_generator
from xlarank.models.losses import DEFAULT
from xlarank.models.model import Model
from xlarank.models.training_data import FitSettings, TrainingData, target_of
from xlarank.models.validation.folds import Curves, FoldPlan, evaluated

_SIMULATED: Final = "layout:cpu:random"
_COLLECTIONS: Final = ("layout:cpu:random", "layout:cpu:default", "tile:cpu")
_SIZES: Final = (1000, 500, 250, 100, 64, 32, 16, 8)
_ROUNDS: Final = 300
_NOISE: Final = 0.03
#: Configurations of a graph that are scored at most.
_SCORED: Final = 300


def measured(root: DataRoot, collection: Collection) -> list[GraphRows]:
    """Return the labelled graphs of train and valid."""
    files = graph_files(root.npz, [str(collection)], where=str(root.path))
    hardware = collection.hardware
    graphs = [assemble(read_graph(file.path), hardware) for file in files if file.split != "test"]
    return [graph for graph in graphs if graph.labelled and graph.rankable]


def simulated(root: DataRoot, configs: int) -> list[GraphRows]:
    """Return the programs with random configurations and simulated labels."""
    graphs = []
    for file in graph_files(root.npz, [_SIMULATED], where=str(root.path)):
        if file.split == "test":
            continue
        program = read_graph(file.path)
        assert isinstance(program, LayoutGraph)
        rng = graph_generator(0, program.name)
        candidates = candidate_rows(program, rng)
        codes = random_configurations(candidates, configs, rng)
        rows = assemble(candidates.graph(program, codes), "cpu")
        log_time = rows.matrix()[rows.group, rows.columns.index(TIME)].astype(np.float64)
        nanoseconds = np.exp2(log_time) * np.exp(_NOISE * rng.standard_normal(len(log_time)))
        rows = replace(rows, runtime=np.maximum(1, 1000 * nanoseconds).astype(np.int64))
        kept = [at for at, name in enumerate(rows.columns) if not name.startswith("relayout")]
        graphs.append(rows.only(np.array(kept, np.intp)))
    return graphs


def sampled(graphs: Sequence[GraphRows], configs: int, seed: int) -> list[GraphRows]:
    samples = []
    for graph in graphs:
        count = min(configs, len(graph))
        index = graph_generator(seed, graph.name).choice(len(graph), count, replace=False)
        sample = graph.take(np.sort(index))
        samples.append(sample if sample.rankable else graph)
    return samples


def compare(collection: Collection, graphs: Sequence[GraphRows], seeds: int, share: float) -> None:
    """Print the scores with the paired differences to most configurations and their standard
    errors.
    """
    target = target_of(collection.hardware)
    scored = TrainingData.from_graphs(sampled(graphs, _SCORED, 77), target)
    plan = FoldPlan.of(scored, limit=5)
    largest = max(map(len, graphs))
    most = np.empty(0)
    for configs in (size for size in _SIZES if size <= largest):
        began = time.process_time()
        scores = []
        for seed in range(seeds):
            data = TrainingData.from_graphs(sampled(graphs, configs, seed), target)
            fit = FitSettings(_ROUNDS, seed, threads=1)
            parts = []
            rng = np.random.default_rng(seed)
            for fold in plan.folds:
                others = np.setdiff1d(np.arange(data.groups), fold.held)
                kept = rng.choice(others, max(4, round(share * len(others))), replace=False)
                model = Model.of(DEFAULT, collection.kind).fit(data.take(np.sort(kept)), fit)
                parts.append(evaluated(scored, fold.scored, model, _ROUNDS, plan.fallback))
            metrics = {name: part.metrics[name] for part in parts for name in part.metrics}
            curves = Curves(parts[0].rounds, metrics)
            scores.append(curves.column("score")[:, curves.best_stage()])
        mean = np.mean(scores, axis=0)
        most = most if len(most) else mean
        lead = mean - most
        error = lead.std(ddof=1) / np.sqrt(len(lead))
        seconds = (time.process_time() - began) / seeds
        score = f"{mean.mean():.3f} ± {mean.std():.3f}, {lead.mean():+.4f} ± {error:.4f}"
        rows = f"{configs:5} configurations, {len(data.cost):6} rows"
        print(f"{collection} {rows}: {score}, {seconds:.0f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("collection", nargs="*", default=_COLLECTIONS)
    parser.add_argument("--data-root", type=Path, default=SAMPLE)
    parser.add_argument("--simulated", type=int, default=0, help="configurations of a program")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--share", type=float, default=1.0, help="of the training graphs")
    args = parser.parse_args()
    root = find_data_root(args.data_root)
    if args.simulated:
        graphs = simulated(root, args.simulated)
        compare(Collection.parse(_SIMULATED), graphs, args.seeds, args.share)
        return
    for collection in map(Collection.parse, args.collection):
        compare(collection, measured(root, collection), args.seeds, args.share)


if __name__ == "__main__":
    main()
