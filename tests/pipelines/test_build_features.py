"""npz files to stored rows, here and on a Dask cluster; what a broken file or a kill leaves."""

import os
import re
import resource
import shutil
import signal
import sys
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from tests.graphs import save_npz
from tests.pipelines import trees
from tests.pipelines.conftest import local_cluster, need
from tests.pipelines.trees import FILES, LAYOUT, TILE, TREE, build, graph_path, stored
from xlarank import load_rows
from xlarank.data.collection import Collection, discover
from xlarank.data.errors import (
    CollectionError,
    DataRootError,
    FeatureStoreError,
    WorkspaceError,
    XlarankError,
    reasons,
)
from xlarank.data.workspace import Workspace
from xlarank.features.catalogue import all_columns
from xlarank.features.rows import Recipe, Source
from xlarank.features.store import StoredGraph, changed_files, read_manifest, stored_collections
from xlarank.pipelines.submit import check_submission, submit
from xlarank.pipelines.support import building
from xlarank.pipelines.support.processes import connected

VALID = {"collection": [LAYOUT], "split": ["valid"]}


def manifest(workspace, collection=LAYOUT, split="train"):
    return read_manifest(Workspace(workspace), Collection.parse(collection), split)


def totals(report):
    counts = [(part["built"], part["kept"], len(part["broken"])) for part in report.splits]
    return tuple(np.sum(counts, axis=0).tolist())


@pytest.mark.slow
def test_every_graph_of_every_collection_and_split_is_stored(tree, tmp_path):
    work = tmp_path / "work"
    with trees.Listener() as listener:
        report = build(tree, work)
    assert totals(report) == (FILES, 0, 0)
    assert listener.jobs == [("building features", FILES)] and listener.ended == 1
    assert len(listener.notes) == FILES and f"{LAYOUT} train alpha__a" in listener.notes
    expected = []
    for collection, splits in TREE.items():
        expected += [(collection, split) for split in splits]
    assert [(part["collection"], part["split"]) for part in report.splits] == expected
    for part in report.splits:
        names = [*TREE[part["collection"]][part["split"]]]
        assert [*stored(work, part["collection"], part["split"])] == names
        assert part["graphs"] == part["built"] == len(names)
    first = report.splits[0]
    assert (first["configs"], first["rows"]) == (5 * 24, 5 * 22), "two of each 24 are repeats"
    path = graph_path(tree, LAYOUT, "train", "beta__a")
    rows = stored(work)["beta__a"]
    written = manifest(work)
    assert np.array_equal(rows.runtime, np.load(path)["config_runtime"])
    assert Path(written.data_root) == tree.resolve()
    assert written.recipe == Recipe.of("layout", "cpu")
    assert written.columns == rows.columns == all_columns("layout")
    source = Source.of(path)
    entry = StoredGraph(
        24, 22, kernel_families=[], labelled=True, rankable=True, part=0, source=source
    )
    assert written.graphs["beta__a"] == entry


@pytest.mark.slow
def test_only_what_changed_is_built_again(tree, built):
    """By content, whatever the date, with the graphs of its file; what is gone is not listed."""

    def inodes():  # every write moves a new file into place
        parts = built.glob("features/**/[!.]*.parquet")
        return {str(path.relative_to(built / "features")): path.stat().st_ino for path in parts}

    first = inodes()
    assert totals(build(tree, built)) == (0, FILES, 0) and inodes() == first
    changed = save_npz(graph_path(tree, LAYOUT, "train", "beta__a"), trees.layout_graph(99))
    touched = graph_path(tree, TILE, "valid", "pool__a")
    os.utime(touched, ns=(touched.stat().st_atime_ns, touched.stat().st_mtime_ns + 1_000_000))
    assert totals(build(tree, built)) == (5, FILES - 5, 0)
    rewritten = [name for name, inode in inodes().items() if inode != first[name]]
    assert rewritten == ["layout/cpu/random/train/part-0000.parquet"]
    assert np.array_equal(stored(built)["beta__a"].runtime, np.load(changed)["config_runtime"])
    whole = changed.read_bytes()
    changed.write_bytes(whole[:-200])
    graph_path(tree, LAYOUT, "train", "alpha__a").unlink()
    report = build(tree, built)
    assert totals(report) == (3, FILES - 5, 1)
    assert "beta__a.npz" in report.broken[f"{LAYOUT} train beta__a"]
    assert [*manifest(built).broken] == ["beta__a"]
    names = ["alpha__b", "beta__b", "gamma__a"]
    assert list(stored(built)) == names
    assert [*load_rows(built, LAYOUT, "train")["graph"].unique().sort()] == names
    changed.write_bytes(whole)
    assert totals(build(tree, built)) == (4, FILES - 5, 0)
    assert manifest(built).broken == {} and "beta__a" in stored(built)


def test_rows_of_a_split_or_collection_without_files_are_removed(tree, built, tmp_path):
    assert build(tree, built).removed == []
    shutil.rmtree(graph_path(tree, TILE, "test", "a").parent)
    assert build(tree, built, collection=[LAYOUT]).removed == []
    assert build(tree, built, split=["train"]).removed == []
    with pytest.raises(FeatureStoreError, match=r"older than their files \(.*: removed"):
        stored(built, TILE, "test")
    assert build(tree, built).removed == [f"{TILE} test"]
    report = submit(tmp_path / "out.csv", built)
    assert not stored(built, TILE, "test") and not report.covers(TILE)
    assert check_submission(tmp_path / "out.csv", data_root=tree).problems == []
    shutil.rmtree(tree / "npz/tile")
    assert build(tree, built).removed == [f"{TILE} train", f"{TILE} valid"]
    assert [*map(str, stored_collections(Workspace(built)))] == [LAYOUT]


def test_rows_older_than_their_files_are_refused(tree, built, tmp_path):
    """Files are replaced, added or removed; other dates and other splits do not matter."""
    folder = graph_path(tree, LAYOUT, "valid", "a").parent
    first = min(folder.glob("*.npz"))
    train = stored(built)

    def changes():
        return changed_files(trees.LAYOUTS, "valid", manifest(built, split="valid"))

    def refused(expected):
        assert changes() == expected
        listed = re.escape("; ".join(reasons(expected)))
        with pytest.raises(FeatureStoreError, match=rf"older than their files \({listed}\)"):
            stored(built, split="valid")
        assert stored(built).keys() == train.keys()
        build(tree, built)
        assert changes() == {} and stored(built, split="valid")

    arrays = dict(np.load(first))
    os.utime(first, ns=(1, 1))
    assert changes() == {}, "the same content"
    np.savez(first, **arrays)
    build(tree, built)
    size = first.stat().st_size
    np.savez(first, **{**arrays, "config_runtime": arrays["config_runtime"][::-1]})
    assert first.stat().st_size == size
    refused({first.stem: "changed"})
    shutil.copy(first, folder / "new__a.npz")
    refused({"new__a": "added"})
    (folder / "new__a.npz").unlink()
    refused({"new__a": "removed"})
    whole = first.read_bytes()
    first.write_bytes(b"no zip")
    refused({first.stem: "changed"})
    first.write_bytes(whole)
    refused({first.stem: "changed"})
    moved = tree.rename(tmp_path / "moved")
    assert changes() == {} and stored(built, split="valid"), "nothing to compare with"
    moved.rename(tree)


def test_graphs_share_a_file_up_to_so_many_graphs_and_configurations_that_are_kept(
    shared_tree, monkeypatch
):
    files = discover(shared_tree / "npz")
    files = [file for file in files if file.path.match("layout/cpu/random/train/*")]
    for configs, graphs, kept, sizes in (
        (47, 9, 0, [1] * 5),
        (48, 9, 0, [2, 2, 1]),
        (48, 9, 16, [3, 2]),
        (9999, 4, 0, [4, 1]),
    ):
        monkeypatch.setattr(building, "_PART_CONFIGS", configs)
        monkeypatch.setattr(building, "_PART_GRAPHS", graphs)
        workspace = Workspace(shared_tree / "work")
        recipe = Recipe.of("layout", max_configs=kept)
        assert [len(job.files) for job in building.part_jobs(files, workspace, recipe)] == sizes


@pytest.mark.slow
def test_max_configs_thins_out_train_alone(tree, tmp_path, shared_built):
    work = tmp_path / "work"
    chosen = {**VALID, "split": ["train", "valid"]}
    build(tree, work, max_configs=10, **chosen)
    for split in chosen["split"]:
        drawn = stored(work, split=split)
        for name, full in stored(shared_built, split=split).items():
            assert len(drawn[name]) == (10 if split == "train" else len(full))
            drawn_values, values = (
                {tuple(row) for row in rows.config_values} for rows in (drawn[name], full)
            )
            assert drawn_values <= values, "features are of the whole graph"
    assert totals(build(tree, work, max_configs=22, **chosen)) == (5, 2, 0), "another recipe"


def test_odd_names_and_files_are_taken_or_refused_one_by_one(tree, tmp_path):
    """Graphs that cannot be ranked are listed and kept: a submission needs every configuration."""
    unsafe = ("new\nline__a", "back\\slash")
    # half-written, or made by a file manager
    skipped = ("..", "..evil__a", ".hidden__a", "._alpha__a")
    harmless = ("with space__a", "-dash__a", "ünïcode__a", "dots.in.it__a", "a:b", 'q"uote')
    unreadable = ("folder__a", "dangling__a", "tile__a", "text__a", "damaged__a")
    for name in (*unsafe, *skipped, *harmless):
        odd = save_npz(graph_path(tree, LAYOUT, "valid", "odd"), trees.layout_graph(len(name)))
        odd.rename(odd.with_name(f"{name}.npz"))
    paths = (graph_path(tree, LAYOUT, "valid", name) for name in unreadable)
    folder, dangling, tile, text, damaged = paths
    folder.mkdir()
    dangling.symlink_to(tmp_path / "nowhere.npz")
    save_npz(tile, trees.tile_graph(0))
    text.write_text("hello")
    save_npz(damaged, trees.layout_graph(2), compressed=False)
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 255  # its headers are whole
    damaged.write_bytes(content)
    save_npz(graph_path(tree, LAYOUT, "valid", "alike__a"), trees.identical(trees.layout_graph(0)))
    save_npz(graph_path(tree, LAYOUT, "valid", "even__a"), trees.even(trees.layout_graph(1)))
    # refused for itself; the collections beside it have their manifests
    harmful = "layout:c\tpu:random"
    save_npz(graph_path(tree, harmful, "valid", "alpha__a"), trees.layout_graph(3))
    before = set(tmp_path.rglob("*"))
    work = tmp_path / "work"
    report = build(tree, work, jobs=0, collection=[LAYOUT, harmful], split=["valid"])
    refused = {f"{LAYOUT} valid {name}" for name in (*unsafe, *unreadable)}
    assert set(report.broken) == {*refused, f"{harmful} valid alpha__a"}
    assert all(f"{name}.npz" in report.broken[f"{LAYOUT} valid {name}"] for name in unreadable)
    assert all("; expected " in reason for reason in report.broken.values())
    assert set(manifest(work, split="valid").broken) == {*unsafe, *unreadable}
    rows = stored(work, split="valid")
    assert set(rows) == {*harmless, *TREE[LAYOUT]["valid"], "alike__a", "even__a"}
    assert report.splits[1]["unrankable"] == ["alike__a", "even__a"]
    assert (len(rows["alike__a"]), len(rows["alike__a"].ids)) == (1, 24)
    written = set(tmp_path.rglob("*")) - before
    assert all(path.is_relative_to(work) for path in written), "nothing outside the workspace"
    graph_path(tree, TILE, "valid", "pool__a").write_bytes(b"no zip")
    report = build(tree, work, collection=[TILE], split=["valid", "train"])
    assert [part["split"] for part in report.splits] == ["train", "valid"]
    broken = manifest(work, TILE, "valid")
    assert (broken.graphs, [*broken.broken]) == ({}, ["pool__a"])
    assert set(stored(work, split="valid")) == set(rows), "other collections are left alone"


def test_a_failed_write_ends_the_build_and_leaves_the_manifests(tree, tmp_path):
    """A full disk says nothing about the files; the next build goes on from whole rows."""
    work = tmp_path / "work"
    trees.build_fewer_columns(tree, work, **VALID)
    before = manifest(work, split="valid")
    rows = trees.contents(work, "*.parquet")
    for jobs in (1, 2):
        limit = resource.getrlimit(resource.RLIMIT_FSIZE)
        # all but the rows fit into this number of bytes
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limit[1]))
        try:
            with pytest.raises(WorkspaceError, match=r"cannot write .*File too large"):
                build(tree, work, jobs=jobs, **VALID)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert trees.contents(work, "*.parquet") == rows and manifest(work, split="valid") == before
    assert totals(build(tree, work, **VALID)) == (2, 0, 0)


@pytest.mark.slow
def test_two_processes_store_the_same_bytes(tree, tmp_path, monkeypatch):
    graph_path(tree, TILE, "test", "sort__a").write_bytes(b"no zip")
    alone = build(tree, tmp_path / "1", max_configs=10, jobs=1)
    shared = build(tree, tmp_path / "2", max_configs=10, jobs=2)
    assert totals(shared) == totals(alone) == (FILES - 1, 0, 1) and shared.splits == alone.splits
    assert trees.contents(tmp_path / "2") == trees.contents(tmp_path / "1")
    monkeypatch.setattr("xlarank.pipelines.support.building.PartJob.build", trees.die)
    message = r"a worker process died.*smaller `jobs`"
    with pytest.raises(XlarankError, match=message), trees.Listener() as listener:
        build(tree, tmp_path / "work", jobs=2)
    assert listener.ended == 1


def test_bad_requests(tree, tmp_path):
    work = tmp_path / "work"
    empty = tmp_path / "empty"
    work.mkdir()
    (work / "features").write_text("in the way")
    (empty / "npz" / "layout" / "cpu").mkdir(parents=True)
    no_split = "'validation' is not a split; expected train, valid"
    for root, options, kind, message in (
        # the disk is the trouble, not the graphs
        (tree, {}, WorkspaceError, r"cannot write .*features"),
        (tree, {"split": ["validation"]}, CollectionError, no_split),
        (tree, {"jobs": -1}, XlarankError, "`jobs` is -1"),
        (tree, {"max_configs": -1}, XlarankError, "`max_configs` is -1"),
        (empty, {}, DataRootError, "has no graph files"),
    ):
        with pytest.raises(kind, match=message):
            build(root, work, **options)
    assert not list(work.rglob("*.parquet"))


@pytest.fixture(scope="module")
def client():
    """A client of a cluster of two workers; skips the test if Dask is not installed."""
    need("distributed")
    with local_cluster(2) as cluster, connected(cluster.scheduler_address) as connection:
        yield connection


def pids(client):
    return sorted(client.run(os.getpid).values())


@pytest.mark.slow
def test_a_cluster_stores_what_this_machine_would(client, tree, tmp_path, monkeypatch):
    graph_path(tree, TILE, "test", "sort__a").write_bytes(b"no zip")
    graph_path(tree, LAYOUT, "valid", "odd;name").write_bytes(b"no zip")
    here = build(tree, tmp_path / "here", max_configs=10)
    asked = {"max_configs": 10, "scheduler": client.scheduler.address}
    with trees.Listener() as listener:
        there = build(tree, tmp_path / "there", **asked)
    assert trees.contents(tmp_path / "there") == trees.contents(tmp_path / "here")
    assert there.splits == here.splits
    assert set(there.broken) == {f"{TILE} test sort__a", f"{LAYOUT} valid odd;name"}
    assert listener.jobs == [("building features", FILES + 1)] and listener.ended == 1
    assert len(listener.notes) == FILES + 1 and f"{LAYOUT} train alpha__a" in listener.notes
    again = build(tree, tmp_path / "there", **asked).splits
    assert sum(part["built"] for part in again) == 0
    assert sum(part["kept"] for part in again) == FILES - 1
    monkeypatch.setattr("xlarank.features.catalogue.COLUMNS_VERSION", 0)
    other_code = r"worker on .* has version .*install the same xlarank"
    with pytest.raises(XlarankError, match=other_code):
        build(tree, tmp_path / "work", **asked)


def test_a_file_that_a_worker_does_not_see_is_broken_alone(tree, tmp_path):
    files = [file for file in discover(tree / "npz") if file.path.match("tile/cpu/train/*")]
    sources = {file.name: Source.of(file.path) for file in files}
    files[0].path.unlink()
    sources[files[1].name] = replace(sources[files[1].name], size=1)
    work = (Workspace(tmp_path), Recipe.of("tile"))
    built = building.build_remotely(building.PartJob(tuple(files), 0, *work, sources=sources))
    assert [*built.broken] == [file.name for file in files[:2]]
    assert [*built.stored] == [file.name for file in files[2:]] and built.content
    assert built.workspace.root == tmp_path and not built.rows.exists()
    for file in files[:2]:
        why = built.broken[file.name]
        assert re.search(rf"worker on .* sees no {file.path} of .*same path", why)


def test_files_that_do_not_fit_into_memory_together_are_named(tree, tmp_path, monkeypatch):
    monkeypatch.setattr("xlarank.features.store.write_rows", Mock(side_effect=MemoryError))
    broken = build(tree, tmp_path / "work", collection=[TILE], split=["train"]).broken
    names = [f"{name}.npz" for name in trees.TREE[TILE]["train"]]
    (why,) = set(broken.values())
    assert len(broken) == len(names) > 1 and all(name in why for name in names)
    assert why.startswith("no memory for ") and why.endswith("; run again with `jobs=1`")


@pytest.mark.slow
def test_workers_that_are_killed(client, tmp_path, monkeypatch):
    # A job for each graph.
    monkeypatch.setattr("xlarank.pipelines.support.building._PART_GRAPHS", 1)
    victim, other = pids(client)
    names = [f"family{n % 9}__{n}" for n in range(24)]
    tree = trees.write_tree(tmp_path / "tree", {TILE: {"train": names}})
    with trees.Listener(1, lambda: os.kill(victim, signal.SIGKILL)) as killer:
        report = build(tree, tmp_path / "there", scheduler=client.scheduler.address)
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
        local_cluster(1) as cluster,
    ):
        monkeypatch.setattr(building, "build_remotely", trees.die)
        asked = {"collection": [TILE], "scheduler": cluster.scheduler_address}
        (why,) = build(tree, tmp_path / "work", split=["valid"], **asked).broken.values()
        monkeypatch.undo()
        died = "pool__a.npz: 1 workers died while they built it"
        assert why.startswith(f"{died}; expected workers with enough")
    with local_cluster(1) as stopping, pytest.raises(XlarankError, match="cluster is gone; start"):
        with trees.Listener(1, stopping.close):
            build(tree, tmp_path / "gone", scheduler=stopping.scheduler_address)


@pytest.mark.slow
def test_unusable_clusters_are_refused(tree, tmp_path, monkeypatch):
    monkeypatch.setattr("xlarank.pipelines.support.processes._MAX_WAIT", 0.5)
    idle = r"has no workers.*dask worker tcp://"
    with local_cluster(0) as cluster, pytest.raises(XlarankError, match=idle):
        build(tree, tmp_path / "work", scheduler=cluster.scheduler_address)
    silent = r"no Dask scheduler answers at .*host:port .*dask scheduler"
    for nobody in ("tcp://127.0.0.1:1", "nonsense://x"):
        with pytest.raises(XlarankError, match=silent):
            build(tree, tmp_path / "work", scheduler=nobody)
    monkeypatch.setitem(sys.modules, "distributed", None)
    absent = r"not installed; expected the extra dask; pip install 'xlarank"
    with pytest.raises(XlarankError, match=absent):
        build(tree, tmp_path / "work", scheduler="tcp://127.0.0.1:1")
