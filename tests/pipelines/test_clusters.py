"""A real Dask cluster of worker processes: equal rows, whatever a worker does."""

import os
import re
import signal
import sys
from dataclasses import replace
from unittest.mock import Mock

import pytest

from tests.pipelines import trees
from tests.pipelines.conftest import need
from tests.pipelines.trees import FAST, FILES, LAYOUT, TILE, build, graph_path
from xlarank.data.collection import discover
from xlarank.data.errors import ClusterError
from xlarank.data.workspace import Workspace
from xlarank.features.rows import Recipe, Source
from xlarank.pipelines.support import building as module
from xlarank.pipelines.support.processes import connected, local_cluster


@pytest.fixture(scope="module")
def client():
    """A client of a cluster of two workers; skips the test if Dask is not installed."""
    need("distributed")
    with connected("local", 2) as connection:
        yield connection


def pids(client):
    return sorted(client.run(os.getpid).values())


@pytest.mark.slow
def test_a_cluster_stores_what_this_machine_would(client, tree, tmp_path, monkeypatch):
    graph_path(tree, TILE, "test", "sort__a").write_bytes(b"no zip")
    graph_path(tree, LAYOUT, "valid", "odd;name").write_bytes(b"no zip")
    here = build(tree, tmp_path / "here", max_configs=10)
    listener = trees.Listener()
    asked = {"max_configs": 10, "scheduler": client.scheduler.address}
    there = build(tree, tmp_path / "there", progress=listener, **asked)
    assert trees.contents(tmp_path / "there") == trees.contents(tmp_path / "here")
    assert there.splits == here.splits
    assert set(there.broken) == {f"{TILE} test sort__a", f"{LAYOUT} valid odd;name"}
    assert listener.jobs == [("building features", FILES + 1)] and listener.ended == 1
    assert len(listener.notes) == FILES + 1 and f"{LAYOUT} train alpha__a" in listener.notes
    again = build(tree, tmp_path / "there", **asked).splits
    assert sum(part.built for part in again) == 0
    assert sum(part.kept for part in again) == FILES - 1
    monkeypatch.setattr("xlarank.features.settings.COLUMNS_VERSION", 0)
    other_code = r"worker on .* has version .*install the same xlarank"
    with pytest.raises(ClusterError, match=other_code):
        build(tree, tmp_path / "work", **asked)


def test_a_file_that_a_worker_does_not_see_is_broken_alone(tree, tmp_path):
    files = [file for file in discover(tree / "npz") if file.path.match("tile/cpu/train/*")]
    sources = {file.name: Source.of(file.path) for file in files}
    files[0].path.unlink()
    sources[files[1].name] = replace(sources[files[1].name], size=1)
    work = (Workspace(tmp_path), Recipe.of(FAST, "tile"))
    built = module.build_remotely(module.PartJob(tuple(files), 0, *work, sources=sources))
    assert [*built.broken] == [file.name for file in files[:2]]
    assert [*built.stored] == [file.name for file in files[2:]] and built.content
    assert built.workspace.root == tmp_path and not built.rows.exists()
    for file in files[:2]:
        why = built.broken[file.name]
        assert re.search(rf"worker on .* sees no {file.path} of .*same path", why)


def test_files_that_do_not_fit_into_memory_together_are_named(tree, tmp_path, monkeypatch):
    monkeypatch.setattr("xlarank.features.store.write_rows", Mock(side_effect=MemoryError))
    broken = build(tree, tmp_path / "work", collections=[TILE], splits=["train"]).broken
    names = [f"{name}.npz" for name in trees.TREE[TILE]["train"]]
    (why,) = set(broken.values())
    assert len(broken) == len(names) > 1 and all(name in why for name in names)
    assert why.endswith("do not fit into memory together; run again with `jobs=1`")


@pytest.mark.slow
def test_workers_that_are_killed(client, tmp_path, monkeypatch):
    # A job for each graph.
    monkeypatch.setattr("xlarank.pipelines.support.building._PART_GRAPHS", 1)
    victim, other = pids(client)
    names = [f"family{n % 9}__{n}" for n in range(24)]
    tree = trees.write_tree(tmp_path / "tree", {TILE: {"train": names}}).path
    killer = trees.Listener(1, lambda: os.kill(victim, signal.SIGKILL))
    scheduler = client.scheduler.address
    report = build(tree, tmp_path / "there", scheduler=scheduler, progress=killer)
    assert len(killer.notes) == 24 and not report.broken
    assert victim not in pids(client) and other in pids(client)
    build(tree, tmp_path / "here")
    assert trees.contents(tmp_path / "there") == trees.contents(tmp_path / "here")


@pytest.mark.slow
def test_one_worker_a_graph_that_kills_it_and_a_scheduler_that_goes_away(
    tree, tmp_path, monkeypatch
):
    dask = pytest.importorskip("dask")
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        connected("local", 1) as client,
    ):
        monkeypatch.setattr(module, "build_remotely", trees.die)
        asked = {"collections": [TILE], "scheduler": client.scheduler.address}
        (why,) = build(tree, tmp_path / "work", splits=["valid"], **asked).broken.values()
        monkeypatch.undo()
        died = "pool__a.npz: 1 workers died while they built it"
        assert why.startswith(f"{died}; expected workers with enough")
    with local_cluster(1) as stopping, pytest.raises(ClusterError, match="cluster is gone; start"):
        stop = trees.Listener(1, stopping.close)
        build(tree, tmp_path / "gone", scheduler=stopping.scheduler_address, progress=stop)


@pytest.mark.slow
def test_unusable_clusters_are_refused(tree, tmp_path, monkeypatch):
    monkeypatch.setattr("xlarank.pipelines.support.processes._MAX_WAIT", 0.5)
    idle = r"has no workers.*dask worker tcp://"
    with local_cluster(0) as cluster, pytest.raises(ClusterError, match=idle):
        build(tree, tmp_path / "work", scheduler=cluster.scheduler_address)
    silent = r"no Dask scheduler answers at .*host:port .*dask scheduler"
    for nobody in ("tcp://127.0.0.1:1", "nonsense://x"):
        with pytest.raises(ClusterError, match=silent):
            build(tree, tmp_path / "work", scheduler=nobody)
    monkeypatch.setitem(sys.modules, "distributed", None)
    absent = r"not installed; expected the extra dask; pip install 'xlarank"
    with pytest.raises(ClusterError, match=absent):
        build(tree, tmp_path / "work", scheduler="local")
