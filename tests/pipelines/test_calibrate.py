"""Calibration of trained models: stored beside them, told by rank, forgotten when they change."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.pipelines.trees import LAYOUT, TILE, graph_path
from xlarank.data.collection import Collection
from xlarank.data.errors import CollectionError, ModelError
from xlarank.data.workspace import Workspace
from xlarank.models.trained import load_model
from xlarank.pipelines.calibrate import calibrate
from xlarank.pipelines.rank import rank
from xlarank.pipelines.train import train


def test_rank_tells_what_was_measured(shared_tree: Path, trained: Path) -> None:
    place, path = Workspace(trained), graph_path(shared_tree, LAYOUT, "valid", "delta__a")
    assert rank(place, path, collection=LAYOUT).trust is None
    found, left_out = calibrate(place, collections=[LAYOUT], threads=1)
    assert not left_out and list(found) == [LAYOUT]
    assert found[LAYOUT].seeds == 2 and found[LAYOUT].families >= 2
    ranking = rank(place, path, collection=LAYOUT)
    assert ranking.trust is not None
    assert ranking.trust.calibration.as_json() == found[LAYOUT].as_json()
    told = json.loads(json.dumps(ranking.as_json()))["trust"]
    assert told["best_among_first"] == found[LAYOUT].first_of(22)
    assert len(ranking.trust.lines()) == 2
    ahead = [entry.certainly_ahead_of for entry in ranking.best()]
    assert ahead == sorted(ahead, key=lambda count: -(count or 0)), "the better the rank, the more lie behind"
    model = load_model(place.model(Collection.parse(LAYOUT)))
    assert model.calibration is not None and np.isfinite(model.calibration.first)


def test_another_model_is_not_vouched_for(trained: Path) -> None:
    place = Workspace(trained)
    calibrate(place, collections=[TILE], threads=1)
    folder = place.model(Collection.parse(TILE))
    assert load_model(folder).calibration is not None
    train(place, collections=[TILE], seeds=1, rounds=10, threads=1)
    assert load_model(folder).calibration is None


def test_without_a_model(built: Path) -> None:
    with pytest.raises(ModelError, match="there is no trained model"):
        calibrate(Workspace(built))


def test_a_collection_without_a_model(trained: Path) -> None:
    with pytest.raises(CollectionError, match="layout:cpu:else has no trained model"):
        calibrate(Workspace(trained), collections=["layout:cpu:else"])
