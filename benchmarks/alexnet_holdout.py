"""How much of a graph's order the wide row carries: learn from some configurations, rank others of the same graph.

    python -m benchmarks.alexnet_holdout [--data-root D] [--model NAME] [--rounds N] [--seeds N] [--json FILE]

The real AlexNet layout file has 23,924 distinct configurations. 5000 are drawn to learn from and 1000 others to
rank, both with a seed; the test configurations play no part in choosing anything. The peer is the number of
layouts set, which needs no model.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np

from xlarank.data.graph import read_graph
from xlarank.data.root import find_data_root
from xlarank.features.assemble import assemble
from xlarank.features.recipe import FeatureSettings
from xlarank.models.fit_settings import FitSettings
from xlarank.models.registry import DEFAULT, ranker_class
from xlarank.models.training_data import TrainingData
from xlarank.models.validation.metrics import kendall_tau

FILE = "layout/xla/default/train/alexnet_train_batch_32.npz"


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data-root", type=Path)
    parser.add_argument("--model", default=DEFAULT)
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--learn", type=int, default=5000)
    parser.add_argument("--rank", type=int, default=1000)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()

    graph = read_graph(find_data_root(asked.data_root).npz / FILE, "layout")
    # candidate-set columns would see the configurations that are to be ranked
    rows = assemble(graph, FeatureSettings(candidates=False))
    matrix, cost = rows.matrix(), rows.row_cost
    results = []
    for seed in range(asked.seeds):
        drawn = np.random.default_rng(seed).permutation(len(cost))[: asked.learn + asked.rank]
        learn, test = drawn[: asked.learn], drawn[asked.learn :]
        part = rows.take(learn)
        data = TrainingData([part], cost[learn], np.array([0, len(learn)]), ["learn"], ["alexnet"], rows.columns)
        started = time.perf_counter()
        ranker = ranker_class(asked.model)(kind="layout").fit(data, FitSettings(asked.rounds, seed))
        seconds = time.perf_counter() - started
        count = matrix[test, rows.columns.index("change__nodes_set__share")].astype(np.float64)
        result = {
            "seed": seed,
            "tau": kendall_tau(ranker.predict(matrix[test], rows.columns), cost[test]),
            "tau_layouts_set": kendall_tau(count, cost[test]),
            "fit_s": seconds,
        }
        print(", ".join(f"{name} {value:.3f}" for name, value in result.items()), flush=True)
        results.append(result)
    taus = [result["tau"] for result in results]
    print(f"{asked.model}: tau {np.mean(taus):.3f} ± {np.std(taus):.3f} over {len(taus)} draws (target 0.80)")
    if asked.json:
        asked.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
