"""Commands on a Dask cluster of this machine, as a user types them."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from tests.cli.shell import TILE, start
from tests.cli.test_signals import interrupt, posix_only
from tests.graphs import save_npz
from tests.pipelines.postgres import need
from tests.pipelines.trees import graph_path, tile_graph

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _dask() -> None:
    need("distributed")


@posix_only
def test_an_interruption_is_one_line_and_leaves_no_workers(tmp_path: Path) -> None:
    for number in range(150):
        save_npz(graph_path(tmp_path / "data", TILE, "train", f"family__{number}"), tile_graph(number))
    process = start(
        "build-features", "--data-root", "data", "--workspace", "work", "--tier", "fast", "--scheduler", "local",
        "--jobs", 2, cwd=tmp_path,
    )  # fmt: skip
    deadline = time.monotonic() + 240  # a busy machine takes its time to start workers
    while process.poll() is None and not list(tmp_path.glob("work/**/[!.]*.parquet")):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    done = interrupt(process, lambda: True)
    assert done.code == 128 + signal.SIGINT
    assert "Traceback" not in done.err and len(done.errors) == 1
