"""Time from a graph file to the order of its configurations, in a process that is warm.

    python -m benchmarks.warm_rank --file GRAPH.npz [--model NAME]... [--seeds 3] [--rounds 150] [--repeats 5]
                                   [--json FILE]

Trains each ranker on the train split of layout:cpu:default of the embedded sample (what it learned hardly changes
how long it takes), saves and loads it, ranks the file once uncounted, and then in turns with `numpy.load` of every
array of the file, the floor. Prints medians in seconds of both and of the parts of a ranking (reading the file, the
columns, the model's scores), and as ``rank_processor_s`` the processor's time, for machines that are not quiet.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from xlarank.data.collection import Collection
from xlarank.data.graph import read_graph
from xlarank.data.root import find_data_root
from xlarank.data.workspace import Workspace
from xlarank.features.assemble import assemble
from xlarank.models.fit_settings import FitSettings
from xlarank.models.registry import RANKERS, ranker_class
from xlarank.models.trained import ModelCard, TrainedModel, load_model, save_model
from xlarank.pipelines.build_features import build_features
from xlarank.pipelines.rank import rank
from xlarank.pipelines.support.training_sets import StoredTrainingSet, read_training_set

_SAMPLE = Path(__file__).parent.parent / "data" / "sample"
_COLLECTION = Collection.parse("layout:cpu:default")


def trained(training: StoredTrainingSet, model: str, seeds: int, rounds: int, folder: Path) -> TrainedModel:
    """A model of the defaults, as `load_model` gives it."""
    ranker = ranker_class(model)(kind="layout")
    rankers = [ranker.clone().fit(training.data, FitSettings(rounds, seed)) for seed in range(seeds)]
    card = ModelCard(
        collection=str(_COLLECTION),
        model=model,
        params=ranker.params.values(),
        rounds=rounds,
        tuned=False,
        recipe=training.manifest.recipe,
        columns=training.data.columns,
        trained_on={},
        folds={},
    )
    save_model(folder, card, rankers)
    return load_model(folder)


def measure(path: Path, model: TrainedModel, workspace: Workspace, repeats: int) -> dict[str, Any]:
    """Medians, all in this process, in turns."""

    def load() -> None:
        with np.load(path) as archive:
            for name in archive.files:
                archive[name]

    graph = read_graph(path)
    rows = assemble(graph)
    works: dict[str, Callable[[], object]] = {
        "load_s": load,
        "rank_s": lambda: rank(workspace, path, model=model),
        "read_s": lambda: read_graph(path),
        "columns_s": lambda: assemble(graph),
        "score_s": lambda: model.predict(rows.matrix(), rows.columns, rows.instances),
    }
    times: dict[str, list[float]] = {name: [] for name in [*works, "rank_processor_s"]}
    for turn in range(repeats + 1):
        for name, work in works.items():
            started, processor = time.perf_counter(), time.process_time()
            work()
            if turn:  # the first is not counted
                times[name].append(time.perf_counter() - started)
            if turn and name == "rank_s":
                times["rank_processor_s"].append(time.process_time() - processor)
    entry: dict[str, Any] = {name: round(statistics.median(values), 4) for name, values in times.items()}
    ratios = (one / floor for one, floor in zip(times["rank_s"], times["load_s"], strict=True))
    return entry | {"ratio": round(statistics.median(ratios), 2), "configs": graph.configs}


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--file", type=Path, required=True)
    parser.add_argument("--model", action="append", choices=list(RANKERS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=150)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    entries = []
    with tempfile.TemporaryDirectory() as folder:
        workspace = Workspace(Path(folder))
        build_features(find_data_root(_SAMPLE), workspace, collections=[str(_COLLECTION)], splits=["train"])
        training = read_training_set(workspace, _COLLECTION)
        for name in asked.model or ["lambdarank", "ensemble", "sum-pooled", "stacked"]:
            model = trained(training, name, asked.seeds, asked.rounds, Path(folder) / name)
            entries.append({"model": name, **measure(asked.file, model, workspace, asked.repeats)})
            print(json.dumps(entries[-1]), flush=True)
    if asked.json:
        asked.json.write_text(json.dumps(entries, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
