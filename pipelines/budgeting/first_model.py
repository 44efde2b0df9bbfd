"""A model of the train split alone, and how it ranks valid: what to show beside a final model."""

from __future__ import annotations

import zlib
from typing import Any, Final

import numpy as np

from xlarank.data.collection import Collection
from xlarank.data.errors import XlarankError
from xlarank.data.files import write_json
from xlarank.data.workspace import Workspace
from xlarank.features.store import read_rows
from xlarank.models.trained import model_of
from xlarank.pipelines.budgeting.plan import FIRST_SEEDS
from xlarank.pipelines.budgeting.reports import first_scores
from xlarank.pipelines.evaluate import evaluate
from xlarank.pipelines.support.progress import Progress
from xlarank.pipelines.train import TrainResult, train

#: Configurations of the example that are written down.
_SHOWN: Final = 1000


def first_model(
    workspace: Workspace, collection: Collection, *, rounds: int, threads: int, seed: int, progress: Progress
) -> TrainResult:
    """Train on the train split and judge on valid, as `reports.read_first_scores` returns it.

    Raises what `xlarank.pipelines.train.train` raises; a valid split that cannot be judged leaves no scores.
    """
    (result,) = train(
        workspace, collections=[str(collection)], seeds=FIRST_SEEDS, rounds=rounds, seed=seed, threads=threads,
        progress=progress,
    )  # fmt: skip
    found: dict[str, Any] = {}
    try:
        report = evaluate(workspace, collections=[str(collection)], progress=progress).report[str(collection)]
        found = {"report": report, "example": _example(workspace, collection, report["score"]["graphs"])}
    except XlarankError:
        pass
    write_json(first_scores(workspace, collection), found)
    return result


def _example(workspace: Workspace, collection: Collection, scores: dict[str, float]) -> dict[str, Any]:
    name = sorted(scores, key=lambda graph: (scores[graph], graph))[len(scores) // 2]
    graph = read_rows(workspace.graph_rows(collection, "valid", name)).measured()
    predicted, measured = model_of(workspace, collection).score(graph).mean, graph.row_cost
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    shown = rng.permutation(len(measured))[:_SHOWN]
    return {
        "graph": name,
        "score": scores[name],
        "predicted": predicted[shown].tolist(),
        "measured": measured[shown].tolist(),
    }
