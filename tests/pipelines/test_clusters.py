"""A real Dask cluster of worker processes: equal rows and models, whatever a worker does."""

import os
import re
import shutil
import signal
import sys
import threading
import time
from dataclasses import replace
from functools import partial
from unittest.mock import Mock

import numpy as np
import pytest

from tests.models.helpers import easy_data, saved
from tests.pipelines import trees
from tests.pipelines.conftest import need
from tests.pipelines.trees import FAST, FILES, LAYOUT, TILE, build, graph_path, model_of, stored
from xlarank.data.collection import discover
from xlarank.data.errors import ClusterError, ModelError
from xlarank.data.workspace import Workspace
from xlarank.features.rows import Recipe, Source
from xlarank.models.cluster import grow_on_cluster
from xlarank.models.model import Model
from xlarank.models.training_data import CPU, FitSettings
from xlarank.pipelines.support import building as module
from xlarank.pipelines.support.processes import connected, local_cluster

#: Columns of `easy_data`, one of which is the estimated time that trees of layouts begin at.
COLUMNS = ["size", *CPU.estimate["layout"], "clash", "noise"]


@pytest.fixture(scope="module")
def client():
    """A client of a cluster of two workers; skips the test if Dask is not installed."""
    need("distributed")
    with connected("local", 2) as connection:
        yield connection


def pids(client):
    return sorted(client.run(os.getpid).values())


def fitted(client, rounds=20):
    """Return a ranker fitted on 8 graphs of 80 rows, in query groups of at most 30.

    The graphs have unlike weights, and trees begin at an estimated time.
    """
    data = easy_data(8, 80)
    parts = [replace(graph, columns=COLUMNS) for graph in data.parts]
    data = replace(data, parts=parts, columns=COLUMNS, group_weight=np.linspace(0.5, 2, 8))
    cluster = partial(grow_on_cluster, client) if client else None
    settings = FitSettings(rounds, threads=1, cluster=cluster)
    return Model.of("lambdarank", "layout", {"max_group": 30}).fit(data, settings)


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
    monkeypatch.setattr("xlarank.features.settings.source_hash", lambda: "other code")
    other_code = r"worker on .* has the feature code .*install the same xlarank"
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
def test_two_workers_grow_the_same_trees_again_and_a_model_like_any_other(client, built, tmp_path):
    first, second = (fitted(client) for _ in range(2))
    here = fitted(None)
    card = saved(first, tmp_path / "one").card
    assert card.fingerprint == saved(second, tmp_path / "two").card.fingerprint
    texts = [path.read_text() for path in (tmp_path / "one").rglob("*.txt")]
    assert texts and not any("127.0.0.1" in text for text in texts)
    part = replace(easy_data(8, 80, seed=1).parts[0], columns=COLUMNS)
    assert np.corrcoef([model.score(part) for model in (first, here)])[0, 1] > 0.98
    local = shutil.copytree(built, tmp_path / "local")
    request = {"collections": [LAYOUT], "rounds": 10}
    scheduler = client.scheduler.address
    (result,) = trees.train_models(built, engine="dask", scheduler=scheduler, **request)
    trees.train_models(local, **request)
    assert result.chosen_by == "3 folds by family"
    there = model_of(built)
    card = model_of(local).card
    differing = {"members": 0, "folds": 0, "rounds": 0}
    assert vars(there.card) | differing == vars(card) | differing
    assert len(there.card.members) == 1 and there.card.folds.keys() == card.folds.keys()
    assert np.isfinite(there.score(stored(built, split="valid")["delta__a"])).all()


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

    def kill():
        """Kill a worker once LightGBM is at work."""
        victim = pids(client)[0]
        while "_grow_part" not in str(client.processing()):
            time.sleep(0.02)
        time.sleep(0.3)
        os.kill(victim, signal.SIGKILL)

    client.wait_for_workers(2)
    undisturbed = fitted(client)
    thread = threading.Thread(target=kill)
    thread.start()
    with pytest.raises(ClusterError, match=r"a training on the cluster broke off \(.*train again"):
        fitted(client, rounds=2000)
    thread.join()
    assert len(pids(client)) == 2
    again = saved(fitted(client), tmp_path / "again")
    expected = saved(undisturbed, tmp_path / "undisturbed")
    assert again.card.fingerprint == expected.card.fingerprint


@pytest.mark.slow
def test_one_worker_a_graph_that_kills_it_and_a_scheduler_that_goes_away(
    tree, tmp_path, monkeypatch
):
    dask = pytest.importorskip("dask")
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        connected("local", 1) as client,
    ):
        there, here = (fitted(grower) for grower in (client, None))
        card = saved(there, tmp_path / "one").card
        assert card.fingerprint == saved(here, tmp_path / "here").card.fingerprint
        with monkeypatch.context() as patch:
            patch.setattr(module, "build_remotely", trees.die)
            asked = {"collections": [TILE], "scheduler": client.scheduler.address}
            (why,) = build(tree, tmp_path / "work", splits=["valid"], **asked).broken.values()
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


def test_unusable_engines_are_refused(shared_built, monkeypatch):
    lambdarank = r"`engine=dask` with `model={0}`; expected lambdarank: .*; leave out"
    local = {"engine": "dask", "scheduler": "local"}
    for options, message in (
        ({**local, "model": "ranknet"}, lambdarank.format("ranknet")),
        ({**local, "model": "ensemble"}, lambdarank.format("ensemble")),
        ({**local, "model": "auto"}, lambdarank.format("auto")),
        ({"engine": "dask"}, "`scheduler` is None; expected `engine=dask` with"),
        ({"scheduler": "local"}, "`engine` is local and `scheduler` is local; expected"),
        ({"engine": "spark", "scheduler": "local"}, "`engine` is 'spark'; expected local or dask"),
    ):
        with pytest.raises((ClusterError, ModelError), match=message):
            trees.train_models(shared_built, **options)
    monkeypatch.setitem(sys.modules, "distributed", None)
    absent = r"not installed; expected the extra dask; pip install 'xlarank"
    with pytest.raises(ClusterError, match=absent):
        trees.train_models(shared_built, **local)
