"""Rows built by the workers of a real Dask cluster: the same files as without, whatever happens to a worker."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pipelines.clusters import Killer, need, pids, two_workers
from tests.pipelines.trees import (
    LAYOUT,
    TILE,
    TREE,
    Listener,
    build,
    graph_count,
    graph_path,
    write_tree,
)
from xlarank.data.errors import ClusterError
from xlarank.pipelines.building import cluster_builders
from xlarank.pipelines.support import cluster as module
from xlarank.pipelines.support.cluster import connected, local_cluster

slow = pytest.mark.slow
FILES = sum(len(names) for splits in TREE.values() for names in splits.values())


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with two_workers() as found:
        yield found


def contents(workspace: Path) -> dict[str, bytes]:
    """Everything below: rows, instances and manifests."""
    return {str(path.relative_to(workspace)): path.read_bytes() for path in workspace.rglob("*") if path.is_file()}


@slow
def test_a_cluster_stores_what_this_machine_would(address: str, tree: Path, tmp_path: Path) -> None:
    graph_path(tree, TILE, "test", "sort__a").write_bytes(b"no zip")
    graph_path(tree, LAYOUT, "valid", "odd;name").write_bytes(b"no zip")
    here = build(tree, tmp_path / "here", max_configs=10)
    listener = Listener()
    there = build(tree, tmp_path / "there", max_configs=10, scheduler=address, progress=listener)
    assert contents(tmp_path / "there") == contents(tmp_path / "here")
    assert len(list((tmp_path / "there").rglob("*.parquet"))) == FILES - 1
    assert there.splits == here.splits
    assert there.broken == here.broken and set(there.broken) == {f"{TILE} test sort__a", f"{LAYOUT} valid odd;name"}
    assert listener.jobs == [("building features", graph_count(tree))] and listener.ended == 1
    assert len(listener.notes) == graph_count(tree) and f"{LAYOUT} train alpha__a" in listener.notes

    again = build(tree, tmp_path / "there", max_configs=10, scheduler=address)
    assert (sum(part.built for part in again.splits), sum(part.kept for part in again.splits)) == (0, FILES - 1)


@slow
@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
def test_the_graphs_of_a_killed_worker_are_built_again(tmp_path: Path) -> None:
    names = [f"family{number % 9}__{number}" for number in range(24)]
    write_tree(tmp_path / "tree", {TILE: {"train": names}})
    with two_workers() as address:
        victim, other = pids(address)
        killer = Killer(victim)
        report = build(tmp_path / "tree", tmp_path / "there", scheduler=address, progress=killer)
        after = pids(address)
    assert killer.steps == 24 and not report.broken
    assert victim not in after and other in after
    build(tmp_path / "tree", tmp_path / "here")
    assert contents(tmp_path / "there") == contents(tmp_path / "here")


def die(job: object, source: object) -> None:
    """Stands in for the building of a graph that no worker has the memory for."""
    os._exit(9)


@slow
def test_a_graph_that_kills_its_workers_is_broken_alone(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need("distributed")
    import dask

    monkeypatch.setattr(cluster_builders, "build_remotely", die)
    with dask.config.set({"distributed.scheduler.allowed-failures": 0}), two_workers(1) as address:
        report = build(tree, tmp_path / "work", collections=[TILE], splits=["valid"], scheduler=address)
    (why,) = report.broken.values()
    assert why.startswith("pool__a.npz: 1 workers died while they built it; expected workers with enough memory;")


@slow
def test_workers_with_other_feature_code_are_refused(
    address: str, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("xlarank.features.recipe.source_hash", lambda: "other code")
    with pytest.raises(ClusterError, match=r"the worker tcp://.* has the feature code .*install the same xlarank"):
        build(tree, tmp_path / "work", scheduler=address)


@slow
def test_workers_that_do_not_see_the_data_are_refused(address: str, tmp_path: Path) -> None:
    with connected(address) as client, pytest.raises(ClusterError, match=r"does not see .*absent.*same path"):
        list(cluster_builders.cluster_outcomes(client, tmp_path / "absent", [], None))


@slow
def test_a_scheduler_that_goes_away_ends_the_build(tree: Path, tmp_path: Path) -> None:
    class Closing(Listener):
        def step(self, note: str = "") -> None:
            super().step(note)
            if len(self.notes) == 1:
                stopping.close()

    need("distributed")
    with (
        local_cluster(1) as stopping,
        pytest.raises(ClusterError, match=r"scheduler of the cluster is gone; start it"),
    ):
        build(tree, tmp_path / "work", scheduler=stopping.scheduler_address, progress=Closing())


@slow
def test_a_cluster_without_workers(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PATIENCE", 0.5)
    with two_workers(0) as address, pytest.raises(ClusterError, match=r"has no workers.*dask worker tcp://"):
        build(tree, tmp_path / "work", scheduler=address)


@slow
@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "nonsense://x"])
def test_nobody_answers(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    need("distributed")
    monkeypatch.setattr(module, "_PATIENCE", 0.5)
    with pytest.raises(ClusterError, match=r"no Dask scheduler answers at .*expected host:port .*dask scheduler"):
        build(tree, tmp_path / "work", scheduler=address)
