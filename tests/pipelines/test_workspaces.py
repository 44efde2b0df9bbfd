"""Workspaces have one data root and one writer at a time; damaged files and links are refused."""

import json
import os
import shutil
import subprocess
import sys
import threading
from functools import partial

import pytest

from tests.pipelines import trees
from tests.pipelines.trees import LAYOUT, LAYOUTS, TILE, TILES, TREE, build, graph_path, stored
from xlarank.data.errors import FeatureStoreError, ModelError, WorkspaceError, XlarankError
from xlarank.data.submission import submission_problems
from xlarank.data.workspace import Workspace
from xlarank.features.store import read_manifest, stored_roots
from xlarank.models.card import CARD
from xlarank.models.member import Member
from xlarank.models.model import Model
from xlarank.models.stored import model_of
from xlarank.models.tuned import load_best
from xlarank.pipelines import build_features
from xlarank.pipelines.cross_validate import cross_validate
from xlarank.pipelines.evaluate import evaluate
from xlarank.pipelines.rank import rank
from xlarank.pipelines.submit import submit
from xlarank.pipelines.support.workspaces import LOCK, workspace_lock
from xlarank.pipelines.train import train
from xlarank.pipelines.tune import tune

fit = partial(trees.train_models, collection=[TILE], rounds=5)


@pytest.fixture
def second(tmp_path):
    """Another data root: a collection that the first one lacks, and one of the same name."""
    tiles = {"train": ["y__a"], "test": ["z__a"]}
    collections = {"layout:cpu:default": {"test": ["x__a"]}, TILE: tiles}
    return trees.write_tree(tmp_path / "second", collections)


def call_first(monkeypatch, place, name, first):
    """Call ``first`` before the first call of a function."""
    function = getattr(place, name)
    todo = [first]

    def call(*args, **options):
        if todo:
            todo.pop()()
        return function(*args, **options)

    monkeypatch.setattr(place, name, call)


@pytest.mark.slow
def test_a_training_that_saves_while_another_one_does_destroys_nothing(built, monkeypatch):
    failed = []
    other = threading.Thread(target=fit, args=(built,))
    monkeypatch.setattr(threading, "excepthook", failed.append)
    call_first(monkeypatch, Member, "save", lambda: [other.start(), other.join(1.0)])
    fit(built)
    other.join(60)
    folder = Workspace(built).model(TILES)
    assert len(Model.load(folder).members) == 1 and not failed
    assert len([path for path in folder.iterdir() if path.is_dir()]) == 1


@pytest.mark.slow
def test_a_simultaneous_build_of_another_root_stays_and_no_model_is_saved(
    tree, built, second, monkeypatch
):
    search = partial(tune, trials=1, rounds=5, threads=1, collection=[TILE])
    for other_build, command in (
        (partial(build, tree, built, max_configs=20), search),
        (partial(trees.build_fewer_columns, tree, built), fit),
    ):
        replace = partial(other_build, collection=[TILE], split=["train"])
        call_first(monkeypatch, Member, "fit", replace)
        replaced = r"train rows of tile:cpu were replaced .* the same command"
        with pytest.raises(FeatureStoreError, match=replaced):
            command(built)
        assert not [*built.rglob(CARD), *built.rglob("best-*.json")]

    build(tree, built)

    def replace_rows():
        shutil.rmtree(built / "features")
        build(second, built)

    call_first(monkeypatch, Member, "fit", replace_rows)
    with pytest.raises(FeatureStoreError, match="train rows of tile:cpu were replaced"):
        fit(built)
    moved = shutil.copytree(tree, second.parent / "moved")
    shutil.rmtree(built / "features")
    for root in (tree, moved):  # a root that was moved is the same
        build(root, built, split=["valid"])
        assert stored_roots(Workspace(built)) == {str(root.resolve())}
    call_first(monkeypatch, build_features, "_run", replace_rows)
    with pytest.raises(WorkspaceError, match=r"expected features of .* alone"):
        build(moved, built)
    assert stored_roots(Workspace(built)) == {str(second.resolve())}


def test_a_pipe_is_no_lock(tmp_path):
    os.mkfifo(tmp_path / LOCK)
    refused = pytest.raises(WorkspaceError, match="cannot be locked")
    with refused, workspace_lock(Workspace(tmp_path)):
        pytest.fail("it is not held")


@pytest.mark.slow
def test_the_lock_of_a_killed_process_is_free_and_others_say_that_they_wait(tmp_path):
    code = (
        "import pathlib, sys\nfrom xlarank.pipelines.support.workspaces import *\n"
        "with workspace_lock(Workspace(pathlib.Path(sys.argv[1]))):\n"
        "    print('held', flush=True)\n    input()\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    pipe = subprocess.PIPE
    holder = subprocess.Popen(command, stdin=pipe, stdout=pipe)
    assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
    threading.Timer(0.3, holder.kill).start()
    with trees.Listener() as listener, workspace_lock(Workspace(tmp_path)):
        pass
    holder.communicate(timeout=30)
    waiting = f"another process writes {tmp_path}; waiting"
    assert listener.jobs == [(waiting, 1)] and listener.ended == 1


def test_rows_of_a_second_root_are_refused(trained, second):
    before = trees.contents(trained, "features/**/*.parquet")
    two_roots = r"holds layout:cpu:random of .*; expected features of .* alone"
    with pytest.raises(WorkspaceError, match=two_roots):
        build(second, trained)
    assert trees.contents(trained, "features/**/*.parquet") == before


def test_a_model_in_the_folder_of_another_collection_is_refused(trained, tmp_path):
    work = Workspace(trained)
    shutil.rmtree(work.model(TILES))
    shutil.copytree(work.model(LAYOUTS), work.model(TILES))
    message = f"is of {LAYOUT}; expected a model of {TILE}; .*`model_from"
    for command in (partial(submit, tmp_path / "out.csv"), evaluate):
        with pytest.raises(ModelError, match=message):
            command(work, collection=[TILE])


def test_rows_of_other_feature_code_are_refused_and_built_again(
    tree, trained, tmp_path, monkeypatch
):
    """They fit their old model, which `rank` rejects; training again would change nothing."""
    monkeypatch.setattr("xlarank.features.catalogue.COLUMNS_VERSION", 0)
    work = Workspace(trained)
    quick = partial(train, seeds=1, rounds=2, threads=1)
    commands = [
        partial(quick, collection=[TILE]),
        quick,
        evaluate,
        partial(evaluate, collection=[TILE]),
        partial(submit, tmp_path / "out.csv"),
        partial(submit, tmp_path / "out.csv", collection=[TILE]),
        partial(cross_validate, collection=[TILE]),
        partial(tune, trials=1, collection=[TILE]),
    ]
    message = r"rows of .* have another version of the columns; .*; run build-features again"
    for command in commands:
        with pytest.raises(FeatureStoreError, match=message):
            command(work)
    path = graph_path(tree, TILE, "valid", "pool__a")
    with pytest.raises(ModelError, match="run build-features, then train again"):
        rank(path, work)
    again = build(tree, trained, collection=[TILE]).splits
    assert {part["kept"] for part in again} == {0}, "all are built again"
    quick(work, collection=[TILE])
    rank(path, work)
    evaluate(work, collection=[TILE])
    assert submit(tmp_path / "out.csv", work, collection=[TILE]).rows == {TILE: 2}


def test_damaged_and_missing_rows_are_seen_and_mended_by_building(tree, built):
    work = Workspace(built)
    path = work.rows(LAYOUTS, "train", 0)
    whole = path.read_bytes()
    for damaged in (whole[:-9], None):
        path.unlink() if damaged is None else path.write_bytes(damaged)
        with pytest.raises(FeatureStoreError, match="run build-features again"):
            train(work, collection=[LAYOUT], seeds=1, rounds=5, threads=1)
        (report,) = build(tree, built, collection=[LAYOUT], split=["train"]).splits
        # the rows of all graphs share a file
        assert (report["built"], report["kept"]) == (len(stored(built)), 0)
        assert path.read_bytes() == whole


def test_only_regular_files_are_read_and_building_mends_a_manifest(tree, trained):
    """A device stands for a pipe, which no command waits for."""
    workspace = Workspace(trained)
    model = workspace.model(LAYOUTS)
    study = workspace.study(LAYOUTS)
    readers = [
        (next(model.glob("members-*/*")) / "device", lambda: model_of(workspace, LAYOUTS)),
        (model / "model.json", lambda: model_of(workspace, LAYOUTS)),
        (study / "best-lambdarank.json", lambda: load_best(study, "lambdarank")),
        (workspace.rows(LAYOUTS, "train", 0), lambda: stored(trained)),
        (workspace.features(LAYOUTS, "train") / "manifest.json", lambda: stored(trained)),
        (trained / "sub.csv", lambda: [*submission_problems(trained / "sub.csv", {})]),
    ]
    for path, read in readers:
        path.unlink(missing_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(os.devnull)
        with pytest.raises(XlarankError, match="not a regular file"):
            read()
    manifest = workspace.features(LAYOUTS, "test") / "manifest.json"
    graphs = json.loads(manifest.read_text())["graphs"]
    graphs["omega__a"]["configs"] = "many"
    trees.edit_json(manifest, graphs=graphs)
    with pytest.raises(FeatureStoreError, match=r"manifest\.json cannot be read"):
        read_manifest(workspace, LAYOUTS, "test")
    build(tree, trained, collection=[LAYOUT], split=["test"])
    assert set(stored(trained, split="test")) == set(TREE[LAYOUT]["test"])
