"""Rows that stay on disk: the same models as from rows in memory, and never all of them in memory."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.pipelines.trees import LAYOUT, TILE, Listener, build
from xlarank.data.collection import Collection
from xlarank.data.errors import FeatureStoreError, XlarankError
from xlarank.data.workspace import Workspace
from xlarank.models.disk_values import DiskValues
from xlarank.models.ranking_data import RankingData
from xlarank.models.row_digest import row_digest
from xlarank.pipelines.support import memory
from xlarank.pipelines.support.memory import left_on_disk, machine_memory, memory_budget
from xlarank.pipelines.support.training_sets import read_training_set, stored_bytes
from xlarank.pipelines.train import TrainResult, train

#: A budget in 1e9 bytes that no rows fit into.
TINY = 1e-9


def run(workspace: Path, **options: Any) -> TrainResult:
    chosen = {"collections": [TILE], "seeds": 2, "rounds": 30, "threads": 1, **options}
    (result,) = train(Workspace(workspace), **chosen)
    return result


def boosters(workspace: Path, collection: str) -> list[bytes]:
    folder = Workspace(workspace).model(Collection.parse(collection))
    return [path.read_bytes() for path in sorted(folder.glob("boosters-*/**/booster.*"))]


@pytest.mark.parametrize(
    ("model", "collection"),
    [
        ("lambdarank", LAYOUT),
        pytest.param("ranknet", TILE, marks=pytest.mark.slow),
        pytest.param("xgb-pairwise", LAYOUT, marks=pytest.mark.slow),
        pytest.param("ensemble", LAYOUT, marks=pytest.mark.slow),
    ],
)
def test_models_and_scores_are_those_of_rows_in_memory(
    model: str, collection: str, built: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("xlarank.models.ranking_data.BATCHED", 0)  # for xgboost: bounds of bins of batches
    monkeypatch.setattr("xlarank.models.rankers.lightgbm_data._SAMPLED", 20)  # fewer than there are rows
    inside = run(built, model=model, collections=[collection], with_valid=True)
    wanted = boosters(built, collection)
    shutil.rmtree(built / "bins", ignore_errors=True)  # they would be the same bins
    outside = run(built, model=model, collections=[collection], with_valid=True, ram_gb=TINY)
    assert wanted and boosters(built, collection) == wanted
    assert outside.folds == inside.folds
    assert (inside.note, outside.rounds, outside.importance) == ("", inside.rounds, inside.importance)
    assert outside.note.startswith(f"{collection}: its rows (")


def test_no_more_than_one_graph_is_in_memory(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alive = []
    array = DiskValues.array

    def watched(self: DiskValues) -> np.ndarray[Any, Any]:
        found = array(self)
        alive.append(DiskValues._latest is not None and DiskValues._latest[0] is self)
        return found

    monkeypatch.setattr(DiskValues, "array", watched)
    monkeypatch.setattr(RankingData, "matrix", None)  # all rows at once
    run(built, collections=[LAYOUT], ram_gb=TINY)
    assert len(alive) > 10 and all(alive)


def test_rows_on_disk_are_those_in_memory(tree: Path, built: Path) -> None:
    """At most so many configurations of a graph, drawn as ever."""
    build(tree, built, max_configs=5)
    for collection in map(Collection.parse, (TILE, LAYOUT)):
        inside, outside = (
            read_training_set(Workspace(built), collection, ("train", "valid"), on_disk=where)
            for where in (False, True)
        )
        assert outside.data.on_disk and not inside.data.on_disk
        assert outside.data.names == inside.data.names
        assert np.array_equal(outside.data.cost, inside.data.cost)
        for one, other in zip(outside.data.parts, inside.data.parts, strict=True):
            assert np.array_equal(one.matrix(), other.matrix())
            assert np.array_equal(one.matrix(np.array([1, 0])), other.matrix(np.array([1, 0])))
            assert np.array_equal(one.ids, other.ids) and np.array_equal(one.group, other.group)
        assert row_digest(outside.data) == row_digest(inside.data)
        assert stored_bytes(Workspace(built), collection, ("train", "valid")) >= sum(
            part.config_values.nbytes for part in inside.data.parts
        )


def test_rows_that_were_built_anew_meanwhile_are_told_apart(tree: Path, built: Path) -> None:
    training = read_training_set(Workspace(built), Collection.parse(TILE), on_disk=True)
    build(tree, built, max_configs=3)
    with pytest.raises(FeatureStoreError, match=r"rows of \d+ columns and held .* run the command again"):
        for part in training.data.parts:
            part.matrix()


def test_the_line_that_tells_it_and_the_progress(built: Path) -> None:
    listener = Listener()
    result = run(built, ram_gb=TINY, progress=listener)
    assert "stay on disk and are learned from in bins" in result.note
    assert f"training {TILE} from disk" in str(vars(listener))


@pytest.mark.parametrize(("ram", "limit", "expected"), [(0.0, None, 0.9), (2.0, None, None), (0.0, "max", 0.9)])
def test_the_budget(
    ram: float, limit: str | None, expected: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "memory.max"
    if limit:
        file.write_text(limit)
    monkeypatch.setattr(memory, "_LIMITS", (str(file),))
    assert memory_budget(ram) == (2e9 if expected is None else expected * machine_memory())


def test_a_container_has_what_it_is_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "memory.max"
    file.write_text("1000000\n")
    monkeypatch.setattr(memory, "_LIMITS", (str(file),))
    assert machine_memory() == 1e6
    assert left_on_disk(0.46e6, memory_budget()) and not left_on_disk(0.44e6, memory_budget())


@pytest.mark.parametrize("wrong", [-1.0, float("nan"), float("inf")])
def test_a_budget_that_is_none_is_refused(wrong: float, built: Path) -> None:
    with pytest.raises(XlarankError, match="--budget-ram-gb is"):
        run(built, ram_gb=wrong)
