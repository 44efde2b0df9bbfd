"""A process that tunes: ``python -m tests.pipelines.tune_worker WORKSPACE STORAGE TRIALS SECONDS``.

A trial takes so many seconds, prints a line and scores its learning rate. ``own`` is the workspace's own storage.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.pipelines.trees import TILE
from xlarank.data.workspace import Workspace
from xlarank.models.training_data import FitSettings
from xlarank.models.validation.curves import Curves
from xlarank.pipelines.support import studies
from xlarank.pipelines.tune import tune

#: What scores a trial; tests replace it where they are about the search alone.
CLIMB = "xlarank.pipelines.support.studies.climb"


def made_up(score: Callable[[dict[str, Any]], float]) -> Callable[..., Iterator[Curves]]:
    """A stand-in for `climb` whose score depends on the parameters alone, the same on every rung and graph."""

    def climb(rungs: list[int], data: Any, folds: Any, ranker: Any, settings: FitSettings) -> Iterator[Curves]:
        for rounds in rungs:
            value = [{"score": score(ranker.params.values())}]
            yield Curves([rounds], dict.fromkeys(data.names, value))

    return climb


if __name__ == "__main__":
    workspace, storage, trials, seconds = sys.argv[1:]

    def score(params: dict[str, Any]) -> float:
        print("trial", flush=True)
        time.sleep(float(seconds))
        return float(params["learning_rate"])

    studies.climb = made_up(score)  # type: ignore[assignment]
    options = studies.StudyOptions(None if storage == "own" else storage)
    fit = FitSettings(10, threads=1)
    tune(Workspace(Path(workspace)), trials=int(trials), collections=[TILE], fit=fit, study=options)
