"""Training from disk takes less than a quarter of the memory that its rows would."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.out_of_core import drawn_graph, make, run
from tests.models.rows import easy_graph
from xlarank.data.workspace import Workspace


def test_graphs_are_rows_of_the_sample_under_other_names() -> None:
    source = easy_graph("a__a", 30, 0)
    drawn = drawn_graph(source, "b__0", 50, np.random.default_rng(0))
    assert len(drawn) == 50 and drawn.name == "b__0"
    known = {row.tobytes() for row in source.config_values}
    assert {row.tobytes() for row in drawn.config_values} <= known
    assert drawn.rankable


@pytest.mark.slow
def test_training_from_disk_takes_less_than_a_quarter_of_the_rows(tmp_path: Path) -> None:
    """240,000 rows of all layout columns, 1.07 GB; the bounds of the bins are from fewer of them than usual."""
    workspace = Workspace(tmp_path)
    size = make(workspace, 240_000)
    found = run("disk", tmp_path, model="ranknet", rounds=2, threads=1, sampled=1500)
    assert found is not None and "stay on disk" in found["note"]
    assert found["peak_bytes"] < size / 4
