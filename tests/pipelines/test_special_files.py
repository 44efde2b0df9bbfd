"""Pipes and links among the files of a workspace: nothing waits for a pipe, nothing is written through a link."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.pipelines.trees import LAYOUT
from xlarank.cli import record
from xlarank.data.collection import Collection
from xlarank.data.errors import XlarankError
from xlarank.data.submission import read_submission
from xlarank.data.workspace import Workspace
from xlarank.features.store import each_graph
from xlarank.models.trained import model_of
from xlarank.models.validation.best_params import load_best
from xlarank.pipelines.reporting.gather import read_runs

PLACE = Collection.parse(LAYOUT)

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")


@pytest.fixture
def pipe() -> Iterator[Callable[[Path], Path]]:
    """Puts a pipe in the place of a file; whoever waits for it is let go after 2 s, so that no test hangs."""
    pipes: list[Path] = []
    over = threading.Event()

    def let_go() -> None:
        while not over.wait(2.0):
            for path in pipes:
                with suppress(OSError):
                    os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK))
                    os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))

    def make(path: Path) -> Path:
        path.unlink(missing_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(path)
        pipes.append(path)
        return path

    thread = threading.Thread(target=let_go, daemon=True)
    thread.start()
    yield make
    over.set()
    thread.join()


def test_no_reader_waits_for_a_pipe(trained: Path, pipe: Callable[[Path], Path]) -> None:
    workspace = Workspace(trained)
    model = workspace.model(PLACE)
    (graph, *_) = each_graph(workspace, PLACE, "train")
    readers: list[tuple[Path, Callable[[], object]]] = [
        (next(model.glob("boosters-*/seed-0")) / "pipe", lambda: model_of(workspace, PLACE)),
        (model / "model.json", lambda: model_of(workspace, PLACE)),
        (workspace.study(PLACE) / "best-lambdarank.json", lambda: load_best(workspace.study(PLACE), "lambdarank")),
        (workspace.graph_instances(PLACE, "train", graph.name), lambda: graph.instances and graph.instances.value),
        (
            workspace.graph_rows(PLACE, "train", graph.name),
            lambda: list(each_graph(workspace, PLACE, "train")),
        ),
        (
            workspace.features(PLACE, "train") / "manifest.json",
            lambda: list(each_graph(workspace, PLACE, "train")),
        ),
        (trained / "submission.csv", lambda: read_submission(trained / "submission.csv")),
    ]
    for path, read in readers:
        pipe(path)
        with pytest.raises(XlarankError, match="not a regular file"):
            read()


def test_the_record_of_commands_neither_waits_for_a_pipe_nor_follows_a_link(
    tmp_path: Path, pipe: Callable[[Path], Path]
) -> None:
    runs = pipe(tmp_path / "reports" / record.RUNS)
    began = time.monotonic()
    assert read_runs(Workspace(tmp_path)) == []
    record.worked_in(tmp_path)
    record.end(0)
    assert time.monotonic() - began < 1.5
    runs.unlink()
    (tmp_path / "precious").write_text("kept")
    runs.symlink_to(tmp_path / "precious")
    record.worked_in(tmp_path)
    record.end(0)
    assert (tmp_path / "precious").read_text() == "kept"
