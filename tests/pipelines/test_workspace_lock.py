"""One data root a workspace and one writer at a time: no model is lost, none is of rows that are gone."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.pipelines.trees import LAYOUT, TILE, Listener, build, data_root, parquet_bytes, write_tree
from xlarank.data.collection import Collection
from xlarank.data.errors import FeatureStoreError, ModelError, WorkspaceError
from xlarank.data.workspace import Workspace
from xlarank.features.store import stored_roots
from xlarank.models.rankers.wide_rows import LambdaRank
from xlarank.models.trained import CARD, load_model
from xlarank.pipelines import build_features
from xlarank.pipelines.evaluate import evaluate
from xlarank.pipelines.run_all import run_all
from xlarank.pipelines.submit import submit
from xlarank.pipelines.support.budget import RunSettings
from xlarank.pipelines.support.fitting import TrainRequest
from xlarank.pipelines.support.workspace_lock import LOCK, workspace_lock
from xlarank.pipelines.train import train

PLACE = Collection.parse(TILE)
OTHER = "layout:cpu:default"


def fit(workspace: Path) -> None:
    train(Workspace(workspace), TrainRequest(collections=[TILE], seeds=1, rounds=5, threads=1))


@pytest.fixture
def second(tmp_path: Path) -> Path:
    """Another data root: one collection of its own and one of the same name."""
    write_tree(tmp_path / "second", {OTHER: {"test": ["x__a"]}, TILE: {"train": ["y__a"], "test": ["z__a"]}})
    return tmp_path / "second"


def once(monkeypatch: pytest.MonkeyPatch, place: Any, name: str, first: Callable[[], object]) -> None:
    """Do ``first`` in the first call of a function, before all else."""
    real, todo = getattr(place, name), [first]

    def call(*given: Any, **named: Any) -> Any:
        if todo:
            todo.pop()()
        return real(*given, **named)

    monkeypatch.setattr(place, name, call)


@pytest.mark.slow
def test_a_training_that_saves_while_another_one_does_destroys_nothing(
    built: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed: list[object] = []
    other = threading.Thread(target=lambda: fit(built))
    monkeypatch.setattr(threading, "excepthook", failed.append)
    once(monkeypatch, LambdaRank, "save", lambda: [other.start(), other.join(1.0)])
    fit(built)
    other.join(60)
    folder = Workspace(built).model(PLACE)
    assert len(load_model(folder).rankers) == 1 and not failed
    assert len([path for path in folder.iterdir() if path.is_dir()]) == 1


def test_a_build_of_another_root_meanwhile_is_not_undone_and_no_model_saved_of_its_rows(
    tree: Path, built: Path, second: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    once(monkeypatch, LambdaRank, "fit", lambda: build(second, built, replace=True))
    with pytest.raises(FeatureStoreError, match=r"train rows of tile:cpu were replaced .* run the same command"):
        fit(built)
    assert not list(built.rglob(CARD))
    moved = Path(shutil.copytree(tree, second.parent / "moved"))
    for root, replace in ((tree, True), (moved, False)):  # a root that was moved is the same
        build(root, built, replace=replace)
        assert stored_roots(Workspace(built)) == {str(root.resolve())}
    once(monkeypatch, build_features, "_run", lambda: build(second, built, replace=True))
    with pytest.raises(WorkspaceError, match="one data root a workspace"):
        build(moved, built)
    assert stored_roots(Workspace(built)) == {str(second.resolve())}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
def test_only_a_file_of_the_workspace_is_its_lock(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("kept")
    workspace, lock = Workspace(tmp_path), tmp_path / LOCK
    for make in (os.mkfifo, lambda path: path.symlink_to("precious")):
        make(lock)
        with pytest.raises(WorkspaceError, match="cannot be locked"), workspace_lock(workspace, Listener()):
            pytest.fail("it is not held")
        lock.unlink()
    os.link(tmp_path / "precious", lock)
    with workspace_lock(workspace, Listener()):
        assert (tmp_path / "precious").read_text() == "kept"


@pytest.mark.slow
def test_the_lock_of_a_killed_process_is_free_and_others_say_that_they_wait(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom pathlib import Path\nfrom xlarank.data.workspace import Workspace\n"
        "from xlarank.pipelines.support.progress import Silent\n"
        "from xlarank.pipelines.support.workspace_lock import workspace_lock\n"
        "with workspace_lock(Workspace(Path(sys.argv[1])), Silent()):\n    print('held', flush=True)\n    input()\n"
    )
    command, pipe = [sys.executable, "-c", code, str(tmp_path)], subprocess.PIPE
    holder, listener = subprocess.Popen(command, stdin=pipe, stdout=pipe), Listener()
    assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
    threading.Timer(0.3, holder.kill).start()
    with workspace_lock(Workspace(tmp_path), listener):
        pass
    holder.communicate(timeout=30)
    assert listener.jobs == [(f"another process writes {tmp_path}; waiting", 1)] and listener.ended == 1


def test_rows_of_a_second_root_are_refused_or_replace_the_first(
    trained: Path, second: Path, tmp_path: Path
) -> None:
    before = parquet_bytes(trained)
    with pytest.raises(WorkspaceError, match=r"holds layout:cpu:random of .*; expected one data root a workspace"):
        build(second, trained)
    with pytest.raises(WorkspaceError, match="--replace"):
        run_all(data_root(second), Workspace(trained), tmp_path / "out.csv", RunSettings(0.01, 1, 1))
    assert parquet_bytes(trained) == before and not (tmp_path / "out.csv").exists()
    build(second, trained, replace=True)
    assert stored_roots(Workspace(trained)) == {str(second.resolve())}
    assert {Path(name).stem for name in parquet_bytes(trained)} == {"x__a", "y__a", "z__a"}
    assert list(trained.rglob(CARD)) == [], "models of the first root would rank the second's graphs"


def test_a_model_in_the_folder_of_another_collection_is_refused(trained: Path, tmp_path: Path) -> None:
    work = Workspace(trained)
    theirs, ours = (work.model(Collection.parse(name)) for name in (LAYOUT, TILE))
    shutil.rmtree(ours)
    shutil.copytree(theirs, ours)
    with pytest.raises(ModelError, match=f"is of {LAYOUT}; expected a model of {TILE}"):
        submit(work, tmp_path / "out.csv", collections=[TILE])
    with pytest.raises(ModelError, match="--model-from"):
        evaluate(work, collections=[TILE])
