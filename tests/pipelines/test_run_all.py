"""The whole job within a budget: a right submission whatever happens, and no work done twice."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import run as command_line
from tests.pipelines.trees import LAYOUT, TILE, TREE, data_root, graph_path, write_tree
from xlarank.data.collection import Collection
from xlarank.data.errors import CollectionError
from xlarank.data.submission import read_submission
from xlarank.data.workspace import Workspace
from xlarank.models.trained import load_model
from xlarank.pipelines.budgeting.plan import Budget, Plan
from xlarank.pipelines.check_submission import check_submission
from xlarank.pipelines.run_all import ATTACHED, DEFAULT_ORDER, EARLIER, FINAL, FIRST, RunSummary, run_all

RUN = Path(command_line.__file__)
#: One of the kinds is enough where it does not matter which; it has the faster rows.
SMALL = {TILE: TREE[TILE]}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tree")
    write_tree(root, SMALL)
    return root


def job(tree: Path, folder: Path, *, hours: float = 1.0, **options: Any) -> RunSummary:
    options = {"trials": 0, "seeds": 1, "jobs": 1, **options}
    return run_all(
        data_root(tree), Workspace(folder / "work"), folder / "out.csv", Budget(hours, 4, 1, 5), **options
    )


def right(folder: Path, tree: Path) -> bool:
    return check_submission(folder / "out.csv", data_root=data_root(tree)).problems == []


def test_no_time_at_all_leaves_the_default_order(tree: Path, tmp_path: Path) -> None:
    plans: list[Plan] = []
    summary = job(tree, tmp_path, hours=1e-9, tell=plans.append)
    assert right(tmp_path, tree)
    assert read_submission(tmp_path / "out.csv")[f"{TILE}:sort__a"] == [0, 1, 2, 3, 4]
    (outcome,) = summary.outcomes
    assert outcome.ranked_by == DEFAULT_ORDER and "no time" in outcome.notes[0]
    assert "too small for any model" in plans[0].notes[0]
    assert not (tmp_path / "work" / "features").exists()


def test_a_tree_without_test_graphs_is_refused(tmp_path: Path) -> None:
    write_tree(tmp_path / "tree", {TILE: {"train": ["dot__a"]}})
    with pytest.raises(CollectionError, match="has no test graphs that can be read"):
        job(tmp_path / "tree", tmp_path)


@pytest.mark.slow
def test_a_failing_collection_does_not_lose_the_other(tmp_path: Path) -> None:
    """Labels withheld in train: there is nothing to learn the layouts from, which no header tells."""
    write_tree(tmp_path / "tree", {LAYOUT: {"test": ["omega__a", "omega__b"]}, TILE: TREE[TILE]})
    unlabelled = graph_path(tmp_path / "tree", LAYOUT, "train", "alpha__a")
    unlabelled.parent.mkdir()
    os.link(graph_path(tmp_path / "tree", LAYOUT, "test", "omega__a"), unlabelled)
    broken = graph_path(tmp_path / "tree", TILE, "test", "broken__a")
    broken.write_bytes(b"no zip")
    summary = job(tmp_path / "tree", tmp_path)
    layout, tile = summary.outcomes
    assert (layout.ranked_by, tile.ranked_by) == (DEFAULT_ORDER, FINAL)
    assert any(
        "the first model failed: " in note and "none of which can be learned" in note for note in layout.notes
    )
    assert set(read_submission(tmp_path / "out.csv")) == {
        f"{LAYOUT}:omega__a", f"{LAYOUT}:omega__b", f"{TILE}:sort__a", f"{TILE}:sort__b"
    }  # fmt: skip
    assert summary.rows == 4 and list(summary.broken) == [f"{TILE} broken__a"]


@pytest.mark.slow
def test_models_from_elsewhere_rank_without_learning(tree: Path, tmp_path: Path) -> None:
    first = job(tree, tmp_path / "learned")
    assert first.outcomes[0].ranked_by == FINAL and first.outcomes[0].final is not None
    assert load_model(tmp_path / "learned" / "work" / "models" / "tile" / "cpu").card.trained_on.keys() == {
        "train",
        "valid",
    }
    summary = job(tree, tmp_path / "there", models=tmp_path / "learned" / "work")
    assert summary.outcomes[0].ranked_by == ATTACHED
    assert (tmp_path / "there" / "out.csv").read_bytes() == (tmp_path / "learned" / "out.csv").read_bytes()
    assert not (tmp_path / "there" / "work" / "features" / "tile" / "cpu" / "train").exists()
    # a finished job has nothing left to do, and a model is used even where the plan has no time for one
    again = job(tree, tmp_path / "learned")
    assert (again.outcomes[0].ranked_by, again.outcomes[0].final) == (FINAL, None)
    hurried = job(tree, tmp_path / "learned", hours=1e-9)
    assert hurried.outcomes[0].ranked_by == EARLIER and right(tmp_path / "learned", tree)
    assert (tmp_path / "there" / "out.csv").read_bytes() == (tmp_path / "learned" / "out.csv").read_bytes()


def start(tree: Path, folder: Path, *words: object) -> subprocess.Popen[str]:
    options = ["--data-root", tree, "--workspace", folder / "work", "--out", folder / "out.csv", "--jobs", 1]
    return subprocess.Popen(
        [sys.executable, str(RUN), "run-all", *map(str, [*options, "--seeds", 1, *words])],
        env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="kills like a system without memory")
def test_a_run_killed_while_tuning_goes_on_where_it_was(tree: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    best = work / "studies" / "tile" / "cpu" / "best-lambdarank.json"
    process = start(tree, tmp_path, "--trials", 100)
    try:
        end = time.monotonic() + 120
        while not best.exists():
            assert process.poll() is None and time.monotonic() < end, process.communicate()
            time.sleep(0.02)
    finally:
        process.kill()
        process.communicate()
    assert right(tmp_path, tree)
    with pytest.raises(ProcessLookupError):  # the process that tunes must not go on without its parent
        for _ in range(600):
            os.killpg(process.pid, 0)
            time.sleep(0.05)
    stored = {path: path.stat().st_mtime_ns for path in work.rglob("*.parquet")}
    model = load_model(Workspace(work).model(Collection.parse(TILE))).card
    assert len(stored) == 7 and list(model.trained_on) == ["train"], "the first model is there"
    done = (work / "studies" / "tile" / "cpu" / "journal.log").read_bytes()

    process = start(tree, tmp_path, "--trials", 3, "--budget-hours", 0.05)
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    assert right(tmp_path, tree)
    assert {path: path.stat().st_mtime_ns for path in work.rglob("*.parquet")} == stored, "no graph built again"
    journal = (work / "studies" / "tile" / "cpu" / "journal.log").read_bytes()
    assert journal.startswith(done[: done.rfind(b"\n") + 1]), "finished trials are kept"
    assert FIRST in out or FINAL in out
