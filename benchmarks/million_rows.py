"""Time and memory of one booster on a million rows of full width.

    python -m benchmarks.million_rows [--rows 1000000] [--rounds 300] [--graphs 200] [--model lambdarank]
                                      [--threads 2] [--json FILE]

Makes rows of layout graphs in memory, as `store.each_graph` gives them, and fits the ranker with its
defaults through the code that ``train`` runs. Every configuration column takes another value in each row: more work
for the trees than real columns, most of which take few. Prints seconds (of the clock and of the processor) and peak
memory of the whole process, rows included, for making the rows and for the fit; and the tau that the ranker reaches
on a graph that it did not see, so that a fit that learned nothing would show.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import xlarank.models  # noqa: F401  (how threads wait is set before the libraries load)
from xlarank.features.recipe import FeatureSettings
from xlarank.features.rows import GraphRows
from xlarank.models.fit_settings import FitSettings
from xlarank.models.registry import ranker_class
from xlarank.models.training_data import TrainingData
from xlarank.models.validation.metrics import kendall_tau

#: Columns that decide the runtime.
_TELLING = 12


def made_graph(
    name: str, configs: int, graph_columns: list[str], config_columns: list[str], seed: int
) -> GraphRows:
    """Rows of even noise; the runtime is a sum over the first columns, on a scale of its own."""
    rng = np.random.default_rng(seed)
    rows = rng.random((configs, len(config_columns)), np.float32)
    telling = rows[:, :_TELLING] ** 2 @ np.linspace(1, 0.1, _TELLING)
    noise = rng.normal(0, 0.1, configs)
    runtime: NDArray[np.int64] = np.rint(1e8 * (1 + rng.random()) * np.exp(0.2 * (telling + noise))).astype(
        np.int64
    )
    return GraphRows(
        name=name,
        columns=[*graph_columns, *config_columns],
        graph_values=rng.random(len(graph_columns), np.float32),
        config_values=rows,
        group=np.arange(configs),
        ids=np.arange(configs),
        runtime=runtime,
        normalizer=np.ones(configs, np.int64),
    )


def peak_gb() -> float:
    """Largest resident size of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--graphs", type=int, default=200)
    parser.add_argument("--model", default="lambdarank")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    settings = FeatureSettings()
    columns = settings.graph_columns("layout"), settings.config_columns("layout")
    started = time.perf_counter()
    data = TrainingData.from_graphs(
        [
            made_graph(f"family{number % 20}__{number}", asked.rows // asked.graphs, *columns, number)
            for number in range(asked.graphs)
        ]
    )
    made, rows_gb = time.perf_counter() - started, peak_gb()
    started, processor = time.perf_counter(), time.process_time()
    ranker = ranker_class(asked.model)(kind="layout")
    ranker.fit(data, FitSettings(asked.rounds, threads=asked.threads))
    entry = {
        "model": asked.model,
        "rows": int(data.indptr[-1]),
        "columns": len(data.columns),
        "rounds": asked.rounds,
        "threads": asked.threads,
        "making_s": round(made, 1),
        "fit_s": round(time.perf_counter() - started, 1),
        "fit_processor_s": round(time.process_time() - processor, 1),
        "peak_gb_rows": round(rows_gb, 2),
        "peak_gb": round(peak_gb(), 2),
    }
    unseen = made_graph("unseen", 1000, *columns, asked.graphs)
    entry["tau_unseen"] = round(kendall_tau(ranker.predict(unseen.matrix(), unseen.columns), unseen.row_cost), 3)
    text = json.dumps(entry, indent=2)
    print(text)
    if asked.json:
        asked.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
