"""A worker process for tests: ``python -m tests.pipelines.tune_worker WORKSPACE STORAGE TRIALS SECONDS HEARTBEAT``.

A fold takes so many seconds and scores the learning rate, so that what a point is worth depends on nothing else. A
line on standard output for each fold holds its parameters.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from tests.pipelines.trees import TILE
from xlarank.data.errors import XlarankError
from xlarank.data.workspace import Workspace
from xlarank.models.base import Ranker
from xlarank.models.fit_settings import FitSettings
from xlarank.models.training_set import TrainingSet
from xlarank.models.validation import curves
from xlarank.models.validation.curves import Curves
from xlarank.pipelines.tune import tune


def main(workspace: str, storage: str, trials: str, seconds: str, heartbeat: str) -> None:
    def fold(training: TrainingSet, held: list[int], ranker: Ranker[Any], settings: FitSettings) -> Curves:
        params = ranker.params.values()
        print(json.dumps(params, sort_keys=True), flush=True)
        time.sleep(float(seconds))
        score = [{"score": params["learning_rate"]}]
        return Curves([10], {training.data.names[g]: score for g in held})

    curves.validate_fold = fold
    tune(
        Workspace(Path(workspace)), trials=int(trials), collections=[TILE], storage=storage, worker=True, rounds=10,
        threads=1, heartbeat=float(heartbeat),
    )  # fmt: skip


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except XlarankError as error:
        sys.exit(f"error: {error}")
