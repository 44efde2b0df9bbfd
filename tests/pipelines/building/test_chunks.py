"""The columns of one graph in chunks of configurations: the same bits as in one piece."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.pipelines.trees import FAST, LAYOUT, TILE, graph_path
from xlarank.data.collection import Collection, GraphFile
from xlarank.data.workspace import Workspace
from xlarank.features.layout import block as one_pass
from xlarank.features.recipe import FeatureSettings, Recipe
from xlarank.pipelines.building import chunks as module
from xlarank.pipelines.building.chunks import chunk_columns, chunks_of, joined_rows
from xlarank.pipelines.building.graph_job import GraphJob


def job_of(path: Path, collection: str = LAYOUT, settings: FeatureSettings = FAST) -> GraphJob:
    file = GraphFile(Collection.parse(collection), "train", path)
    return GraphJob(file, Workspace(Path("nowhere")), Recipe.of(settings, file.collection.kind), settings)


def require_equal(job: GraphJob, chunks: int) -> None:
    whole = job.rows()
    joined = joined_rows(job, [chunk_columns(job, number, chunks) for number in range(chunks)])
    assert joined.columns == whole.columns
    assert joined.config_values.tobytes() == whole.config_values.tobytes()
    assert joined.graph_values.tobytes() == whole.graph_values.tobytes()
    assert np.array_equal(joined.group, whole.group) and np.array_equal(joined.runtime, whole.runtime)
    assert joined.instances is not None and whole.instances is not None
    assert joined.instances.value.values.tobytes() == whole.instances.value.values.tobytes()


@pytest.mark.parametrize("chunks", [1, 2, 5])
def test_chunks_join_to_the_whole(shared_tree: Path, monkeypatch: pytest.MonkeyPatch, chunks: int) -> None:
    """22 distinct configurations in batches of 4, so the last one is short."""
    monkeypatch.setattr(one_pass, "_CONFIGS", (4, 4))
    job = job_of(graph_path(shared_tree, LAYOUT, "train", "alpha__a"), settings=FeatureSettings())
    sizes = [len(chunk_columns(job, number, chunks)) for number in range(chunks)]
    assert sizes == {1: [22], 2: [12, 10], 5: [4, 4, 4, 4, 6]}[chunks]
    require_equal(job, chunks)


def test_more_chunks_than_batches_leave_some_empty(shared_tree: Path) -> None:
    require_equal(job_of(graph_path(shared_tree, LAYOUT, "train", "alpha__a")), 3)


@pytest.mark.slow
def test_a_real_graph_in_chunks(real_data: Path) -> None:
    (path,) = sorted(real_data.glob("npz/layout/xla/default/*/alexnet*.npz"))[:1]
    require_equal(job_of(path, "layout:xla:default", FeatureSettings()), 3)


def test_only_a_huge_layout_graph_is_divided(shared_tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = job_of(graph_path(shared_tree, LAYOUT, "train", "alpha__a"))
    assert chunks_of(layout, 2.5) == 1, "24 configurations x 2 nodes"
    monkeypatch.setattr(module, "WORTH_CHUNKS", 48)
    assert chunks_of(layout, 2.5) == 3
    assert chunks_of(layout, 1.0) == 1, "no more than a worker's share"
    assert chunks_of(job_of(graph_path(shared_tree, TILE, "train", "dot__a"), TILE), 2.5) == 1
    assert chunks_of(job_of(shared_tree / "absent.npz"), 2.5) == 1, "whoever reads it says so"
