"""A workspace knows its data root, and a folder its model."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.pipelines.trees import LAYOUT, TILE, build, data_root, parquet_bytes, write_tree
from xlarank.data.collection import Collection
from xlarank.data.errors import ModelError, WorkspaceError
from xlarank.data.workspace import Workspace
from xlarank.features.store import stored_roots
from xlarank.models.trained import CARD
from xlarank.pipelines.budgeting.plan import RunSettings
from xlarank.pipelines.evaluate import evaluate
from xlarank.pipelines.run_all import run_all
from xlarank.pipelines.submit import submit

OTHER = "layout:cpu:default"


@pytest.fixture
def second(tmp_path: Path) -> Path:
    """Another data root: one collection of its own and one of the same name."""
    write_tree(tmp_path / "second", {OTHER: {"test": ["x__a"]}, TILE: {"train": ["y__a"], "test": ["z__a"]}})
    return tmp_path / "second"


def test_rows_of_a_second_root_are_refused_and_the_first_stay(trained: Path, second: Path, tmp_path: Path) -> None:
    before = parquet_bytes(trained)
    with pytest.raises(WorkspaceError, match=r"holds layout:cpu:random of .*; expected one data root a workspace"):
        build(second, trained)
    with pytest.raises(WorkspaceError, match="--replace"):
        run_all(data_root(second), Workspace(trained), tmp_path / "out.csv", RunSettings(0.01, 1, 1))
    assert parquet_bytes(trained) == before and not (tmp_path / "out.csv").exists()


def test_replacing_leaves_nothing_of_the_first(trained: Path, second: Path) -> None:
    build(second, trained, replace=True)
    assert stored_roots(Workspace(trained)) == {str(second.resolve())}
    assert {Path(name).stem for name in parquet_bytes(trained)} == {"x__a", "y__a", "z__a"}
    assert list(trained.rglob(CARD)) == [], "models of the first root would rank the second's graphs"


def test_a_root_that_was_moved_is_the_same(tree: Path, built: Path, tmp_path: Path) -> None:
    moved = Path(shutil.copytree(tree, tmp_path / "moved"))
    assert not build(moved, built).broken
    assert stored_roots(Workspace(built)) == {str(moved.resolve())}


def test_a_model_in_the_folder_of_another_collection_is_refused(trained: Path, tmp_path: Path) -> None:
    work = Workspace(trained)
    theirs, ours = (work.model(Collection.parse(name)) for name in (LAYOUT, TILE))
    shutil.rmtree(ours)
    shutil.copytree(theirs, ours)
    with pytest.raises(ModelError, match=f"is of {LAYOUT}; expected a model of {TILE}"):
        submit(work, tmp_path / "out.csv", collections=[TILE])
    with pytest.raises(ModelError, match="--model-from"):
        evaluate(work, collections=[TILE])
