"""Commands on a Dask cluster of this machine, as a user types them."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.cli.shell import TILE, start
from tests.cli.test_signals import interrupt, posix_only
from tests.graphs import save_npz
from tests.pipelines.postgres import need
from tests.pipelines.trees import graph_path, tile_graph


@pytest.mark.slow
@posix_only
def test_an_interruption_is_one_line_and_leaves_no_workers(tmp_path: Path) -> None:
    need("distributed")
    for number in range(150):
        save_npz(graph_path(tmp_path / "data", TILE, "train", f"family__{number}"), tile_graph(number))
    process = start(
        "build-features", "--data-root", "data", "--workspace", "work", "--tier", "fast", "--scheduler", "local",
        "--jobs", 2, cwd=tmp_path,
    )  # fmt: skip
    # a busy machine takes its time to start workers
    done = interrupt(process, lambda: any(tmp_path.glob("work/**/[!.]*.parquet")))
    assert done.code == 128 + signal.SIGINT and len(done.errors) == 1
