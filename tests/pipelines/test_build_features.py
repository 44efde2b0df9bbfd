"""npz files to stored rows: what is built, what is kept, and what a broken file or a kill leaves behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.graphs import save_npz
from tests.pipelines.trees import (
    FAST,
    LAYOUT,
    TILE,
    TREE,
    Listener,
    build,
    data_root,
    graph_count,
    graph_path,
    layout_graph,
    parquet_bytes,
    stored,
    tile_graph,
    write_tree,
)
from xlarank.data.collection import Collection
from xlarank.data.errors import CollectionError, DataRootError, WorkspaceError, XlarankError
from xlarank.data.workspace import Workspace
from xlarank.features.block import Tier
from xlarank.features.recipe import FeatureSettings
from xlarank.features.store import Manifest, load_split, read_manifest
from xlarank.pipelines.build_features import BuildReport
from xlarank.pipelines.building import builders as module

ROOT = Path(__file__).parents[2]
FILES = sum(len(names) for splits in TREE.values() for names in splits.values())


def manifest(workspace: Path, collection: str = LAYOUT, split: str = "train") -> Manifest:
    found = read_manifest(Workspace(workspace), Collection.parse(collection), split)
    assert found is not None
    return found


def totals(report: BuildReport) -> tuple[int, int, int]:
    """Files built, kept and broken."""
    parts = report.splits
    return sum(p.built for p in parts), sum(p.kept for p in parts), sum(len(p.broken) for p in parts)


def inodes(workspace: Path) -> dict[str, int]:
    """Every write moves a new file into place."""
    return {str(path.relative_to(workspace)): path.stat().st_ino for path in workspace.rglob("*.parquet")}


# What is built -------------------------------------------------------------------------------------------


def test_every_graph_of_every_collection_and_split_is_stored(tree: Path, tmp_path: Path) -> None:
    report = build(tree, tmp_path / "work")
    assert totals(report) == (FILES, 0, 0)
    assert [(part.collection, part.split) for part in report.splits] == [
        (collection, split) for collection in (LAYOUT, TILE) for split in ("train", "valid", "test")
    ]
    for part in report.splits:
        names = list(TREE[part.collection][part.split])
        assert list(stored(tmp_path / "work", part.collection, part.split)) == names
        assert part.graphs == part.built == len(names)
    layout_train = report.splits[0]
    assert (layout_train.configs, layout_train.rows) == (5 * 24, 5 * 22), "two of each 24 are repeats"
    assert report.columns == {
        kind: (len(FAST.graph_columns(kind)), len(FAST.config_columns(kind))) for kind in ("layout", "tile")
    }


def test_labels_and_repeats_are_kept_as_measured(tree: Path, tmp_path: Path) -> None:
    build(tree, tmp_path / "work")
    with np.load(graph_path(tree, LAYOUT, "train", "beta__a")) as file:
        runtime = file["config_runtime"]
    rows = stored(tmp_path / "work")["beta__a"]
    assert np.array_equal(rows.runtime, runtime)
    assert rows.ids.tolist() == list(range(24))
    assert rows.group[[0, 22, 23]].tolist() == [0, 0, 0]
    assert not stored(tmp_path / "work", split="test")["omega__a"].labelled


def test_the_manifest_tells_what_was_made_from_what(tree: Path, tmp_path: Path) -> None:
    build(tree, tmp_path / "work")
    found = manifest(tmp_path / "work")
    assert Path(found.data_root) == tree.resolve()
    assert found.columns == FAST.graph_columns("layout") + FAST.config_columns("layout")
    assert found.recipe.code_hash == FAST.code_hash("layout")
    assert found.recipe.settings() == FAST
    npz = graph_path(tree, LAYOUT, "train", "alpha__a").stat()
    assert found.graphs["alpha__a"] == {
        "configs": 24, "rows": 22, "labelled": True, "rankable": True,
        "source": {"size": npz.st_size, "mtime_ns": npz.st_mtime_ns},
    }  # fmt: skip


def test_only_what_was_asked_for_is_built(tree: Path, tmp_path: Path) -> None:
    report = build(tree, tmp_path / "work", collections=[TILE], splits=["valid", "train"])
    assert [(part.collection, part.split) for part in report.splits] == [(TILE, "train"), (TILE, "valid")]
    assert sorted(path.name for path in (tmp_path / "work").rglob("*.parquet")) == sorted(
        f"{name}.parquet" for split in ("train", "valid") for name in TREE[TILE][split]
    )
    build(tree, tmp_path / "work", collections=[LAYOUT])
    assert list(stored(tmp_path / "work", TILE)) == list(TREE[TILE]["train"]), "other collections are left alone"


def test_progress_is_told_of_every_file(tree: Path, tmp_path: Path) -> None:
    listener = Listener()
    build(tree, tmp_path / "work", progress=listener)
    assert [total for _, total in listener.jobs] == [FILES]
    assert len(listener.notes) == FILES
    assert f"{LAYOUT} train alpha__a" in listener.notes
    assert listener.ended == 1


# What is kept ---------------------------------------------------------------------------------------------


def test_a_second_build_keeps_everything(tree: Path, tmp_path: Path) -> None:
    first = build(tree, tmp_path / "work")
    before, manifests = inodes(tmp_path / "work"), manifest(tmp_path / "work")
    again = build(tree, tmp_path / "work")
    assert totals(again) == (0, FILES, 0)
    assert inodes(tmp_path / "work") == before
    assert manifest(tmp_path / "work") == manifests
    for one, other in zip(first.splits, again.splits, strict=True):
        assert (one.configs, one.rows, one.unrankable) == (other.configs, other.rows, other.unrankable)


def test_only_a_changed_file_is_built_again(tree: Path, tmp_path: Path) -> None:
    build(tree, tmp_path / "work")
    before = inodes(tmp_path / "work")
    changed = save_npz(graph_path(tree, LAYOUT, "train", "beta__a"), layout_graph(99))
    report = build(tree, tmp_path / "work")
    after = inodes(tmp_path / "work")
    assert totals(report) == (1, FILES - 1, 0)
    assert [name for name in after if after[name] != before[name]] == [
        str(Path("features", *LAYOUT.split(":"), "train", "beta__a.parquet"))
    ]
    with np.load(changed) as file:
        assert np.array_equal(stored(tmp_path / "work")["beta__a"].runtime, file["config_runtime"])


def test_a_touched_file_is_built_again(tree: Path, tmp_path: Path) -> None:
    """Its content may have changed without changing its size."""
    build(tree, tmp_path / "work")
    path = graph_path(tree, TILE, "valid", "pool__a")
    os.utime(path, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns + 1_000_000))
    report = build(tree, tmp_path / "work")
    assert totals(report) == (1, FILES - 1, 0)
    assert [(part.collection, part.split) for part in report.splits if part.built] == [(TILE, "valid")]


@pytest.mark.parametrize("harm", ["gone", "empty", "cut", "something else"])
def test_a_damaged_row_file_is_built_again(tree: Path, tmp_path: Path, harm: str) -> None:
    build(tree, tmp_path / "work", collections=[TILE])
    path = Workspace(tmp_path / "work").graph_rows(Collection.parse(TILE), "train", "dot__a")
    whole = path.read_bytes()
    if harm == "gone":
        path.unlink()
    else:
        path.write_bytes({"empty": b"", "cut": whole[: len(whole) // 2], "something else": b"PAR1" * 9}[harm])
    assert totals(build(tree, tmp_path / "work", collections=[TILE])) == (1, 6, 0)
    assert path.read_bytes() == whole


def test_other_feature_code_means_build_again(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build(tree, tmp_path / "work")
    old = manifest(tmp_path / "work").recipe.code_hash
    monkeypatch.setattr("xlarank.features.recipe.source_hash", lambda: "other code")
    assert totals(build(tree, tmp_path / "work")) == (FILES, 0, 0)
    assert manifest(tmp_path / "work").recipe.code_hash != old
    assert totals(build(tree, tmp_path / "work")) == (0, FILES, 0)


@pytest.mark.parametrize(
    "settings",
    [FeatureSettings(Tier.FULL), FeatureSettings(Tier.FAST, candidates=False)],
    ids=["tier", "candidates"],
)
def test_other_settings_mean_build_again(tree: Path, tmp_path: Path, settings: FeatureSettings) -> None:
    build(tree, tmp_path / "work", collections=[LAYOUT], splits=["valid"])
    report = build(tree, tmp_path / "work", collections=[LAYOUT], splits=["valid"], settings=settings)
    assert totals(report) == (2, 0, 0)
    rows = stored(tmp_path / "work", split="valid")["delta__a"]
    assert rows.columns == settings.graph_columns("layout") + settings.config_columns("layout")
    assert rows.columns != FAST.graph_columns("layout") + FAST.config_columns("layout")


# Fewer configurations ------------------------------------------------------------------------------------


def test_max_configs_thins_out_train_alone(tree: Path, tmp_path: Path) -> None:
    build(tree, tmp_path / "whole")
    report = build(tree, tmp_path / "work", max_configs=10)
    for collection, splits in TREE.items():
        for split in splits:
            graphs, whole = (
                stored(tmp_path / "work", collection, split),
                stored(tmp_path / "whole", collection, split),
            )
            for name, rows in graphs.items():
                assert len(rows) == (10 if split == "train" else len(whole[name]))
                kept = np.isin(whole[name].ids, rows.ids)
                assert np.array_equal(whole[name].runtime[kept], rows.runtime)
                old_row = {tuple(row) for row in whole[name].config_values}
                assert {tuple(row) for row in rows.config_values} <= old_row, (
                    "features are those of the whole graph"
                )
    assert [part.rows for part in report.splits if part.split == "train"] == [50, 40]


def test_all_repeats_of_a_kept_configuration_stay(tree: Path, tmp_path: Path) -> None:
    build(tree, tmp_path / "whole", collections=[LAYOUT], splits=["train"])
    build(tree, tmp_path / "work", collections=[LAYOUT], splits=["train"], max_configs=15)
    whole = stored(tmp_path / "whole")
    for name, rows in stored(tmp_path / "work").items():
        twins = {int(g): set(whole[name].ids[whole[name].group == g].tolist()) for g in whole[name].group}
        kept = set(rows.ids.tolist())
        assert all(members <= kept or not members & kept for members in twins.values())


def ids(workspace: Path) -> dict[str, list[int]]:
    return {name: rows.ids.tolist() for name, rows in stored(workspace).items()}


def test_the_draw_depends_on_seed_and_name_alone(tree: Path, tmp_path: Path) -> None:
    """Not on what else is built, in which order or by how many processes."""
    build(tree, tmp_path / "one", max_configs=10)
    save_npz(graph_path(tree, LAYOUT, "train", "aaa__first"), layout_graph(77))
    for name in ("alpha__a", "beta__b"):
        graph_path(tree, LAYOUT, "train", name).unlink()
    build(tree, tmp_path / "fewer", max_configs=10, collections=[LAYOUT], splits=["train"])
    drawn, fewer = ids(tmp_path / "one"), ids(tmp_path / "fewer")
    assert len(fewer) == 4
    assert all(drawn[name] == fewer[name] for name in drawn if name in fewer)
    assert len({tuple(one) for one in drawn.values()}) == 5, "every graph has a draw of its own"


def test_another_seed_draws_others_and_builds_train_alone_again(tree: Path, tmp_path: Path) -> None:
    build(tree, tmp_path / "work", collections=[LAYOUT], max_configs=10)
    before = ids(tmp_path / "work")
    report = build(tree, tmp_path / "work", collections=[LAYOUT], max_configs=10, seed=1)
    assert {part.split for part in report.splits if part.built} == {"train"}
    after = ids(tmp_path / "work")
    assert all(before[name] != after[name] for name in before)


def test_the_seed_does_not_matter_where_nothing_is_drawn(tree: Path, tmp_path: Path) -> None:
    build(tree, tmp_path / "work", collections=[TILE])
    assert totals(build(tree, tmp_path / "work", collections=[TILE], seed=5)) == (0, 7, 0)


def test_graphs_smaller_than_max_configs_are_whole(tree: Path, tmp_path: Path) -> None:
    build(tree, tmp_path / "work", max_configs=22, collections=[LAYOUT], splits=["train"])
    assert {len(rows) for rows in stored(tmp_path / "work").values()} == {22}


def test_unlabelled_graphs_are_drawn_from_too(tree: Path, tmp_path: Path) -> None:
    save_npz(graph_path(tree, LAYOUT, "train", "alpha__a"), layout_graph(0, labelled=False))
    build(tree, tmp_path / "work", collections=[LAYOUT], max_configs=10)
    assert len(ids(tmp_path / "work")["alpha__a"]) == 10


# Broken files --------------------------------------------------------------------------------------------


def test_a_broken_file_does_not_stop_the_others(tree: Path, tmp_path: Path) -> None:
    path = graph_path(tree, LAYOUT, "train", "beta__a")
    whole = path.read_bytes()
    path.write_bytes(whole[:-200])
    report = build(tree, tmp_path / "work")
    assert totals(report) == (FILES - 1, 0, 1)
    assert list(report.broken) == [f"{LAYOUT} train beta__a"]
    assert "beta__a.npz" in report.broken[f"{LAYOUT} train beta__a"]
    found = manifest(tmp_path / "work")
    assert list(found.broken) == ["beta__a"]
    assert "beta__a" not in found.graphs
    assert len(found.graphs) == 4

    path.write_bytes(whole)
    assert totals(build(tree, tmp_path / "work")) == (1, FILES - 1, 0), "mended: only this one is built"
    assert manifest(tmp_path / "work").broken == {}
    assert list(stored(tmp_path / "work")) == list(TREE[LAYOUT]["train"])


def test_a_file_that_breaks_later_is_no_longer_listed(tree: Path, tmp_path: Path) -> None:
    """Its old rows must not stand for what is now in the data root."""
    build(tree, tmp_path / "work")
    graph_path(tree, LAYOUT, "train", "beta__a").write_bytes(b"")
    assert totals(build(tree, tmp_path / "work")) == (0, FILES - 1, 1)
    assert "beta__a" not in stored(tmp_path / "work")


def test_a_file_that_is_gone_is_no_longer_listed(tree: Path, tmp_path: Path) -> None:
    build(tree, tmp_path / "work")
    graph_path(tree, LAYOUT, "train", "beta__a").unlink()
    assert totals(build(tree, tmp_path / "work")) == (0, FILES - 1, 0)
    assert "beta__a" not in stored(tmp_path / "work")


@pytest.mark.parametrize("what", ["folder", "dangling link", "tile graph", "not a zip"])
def test_whatever_is_called_npz_is_broken_not_a_crash(tree: Path, tmp_path: Path, what: str) -> None:
    path = graph_path(tree, LAYOUT, "valid", "odd__a")
    if what == "folder":
        path.mkdir()
    elif what == "dangling link":
        path.symlink_to(tmp_path / "nowhere.npz")
    elif what == "tile graph":
        save_npz(path, tile_graph(0))
    else:
        path.write_text("hello")
    report = build(tree, tmp_path / "work", jobs=0, collections=[LAYOUT], splits=["valid"])
    assert totals(report) == (2, 0, 1)
    assert "odd__a.npz" in report.broken[f"{LAYOUT} valid odd__a"]


def test_a_collection_of_broken_files_has_a_manifest_that_says_so(tree: Path, tmp_path: Path) -> None:
    for name in TREE[TILE]["valid"]:
        graph_path(tree, TILE, "valid", name).write_bytes(b"no zip")
    build(tree, tmp_path / "work")
    assert manifest(tmp_path / "work", TILE, "valid").graphs == {}
    assert set(manifest(tmp_path / "work", TILE, "valid").broken) == set(TREE[TILE]["valid"])


def test_what_cannot_be_ranked_is_listed_and_kept(tree: Path, tmp_path: Path) -> None:
    alike, even = layout_graph(0), layout_graph(1)
    alike["node_config_feat"][:] = alike["node_config_feat"][0]
    even["config_runtime"][:] = 20_000_000
    save_npz(graph_path(tree, LAYOUT, "train", "alike__a"), alike)
    save_npz(graph_path(tree, LAYOUT, "train", "even__a"), even)
    for kept in (0, 2):
        report = build(tree, tmp_path / "work", collections=[LAYOUT], splits=["train"])
        assert report.splits[0].unrankable == ["alike__a", "even__a"]
        assert report.splits[0].kept >= kept
    assert not report.broken
    found = manifest(tmp_path / "work").graphs
    assert [name for name, counts in found.items() if not counts["rankable"]] == ["alike__a", "even__a"]
    assert found["alike__a"]["rows"] == 1
    assert len(stored(tmp_path / "work")["alike__a"].ids) == 24, "a submission needs every configuration"


# Names ---------------------------------------------------------------------------------------------------


def everything_below(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if "work" not in path.relative_to(folder).parts[:1]}


_HARMFUL = (
    "new\nline__a", "tab\t__a", "a;b", "a:b", "a*b", "back\\slash", 'q"uote',
    "x" * 250,  # fits as .npz, is too long as .parquet
)  # fmt: skip


#: Half-written, or the litter of a file manager: not a graph at all.
_PASSED_OVER = ("..", "..evil__a", ".hidden__a", "._alpha__a")


def test_file_names_that_could_do_harm_are_refused_alone(tree: Path, tmp_path: Path) -> None:
    for number, name in enumerate((*_HARMFUL, *_PASSED_OVER)):
        odd = save_npz(graph_path(tree, LAYOUT, "valid", "odd"), layout_graph(number))
        odd.rename(odd.with_name(f"{name}.npz"))
    before = everything_below(tmp_path)
    report = build(tree, tmp_path / "work", collections=[LAYOUT])
    assert set(report.broken) == {f"{LAYOUT} valid {name}" for name in _HARMFUL}
    assert totals(report) == (9, 0, len(_HARMFUL))
    assert set(manifest(tmp_path / "work", split="valid").broken) == set(_HARMFUL)
    assert everything_below(tmp_path) == before, "nothing was written outside the workspace"
    assert list(stored(tmp_path / "work", split="valid")) == list(TREE[LAYOUT]["valid"])
    assert len(list((tmp_path / "work").rglob("*.parquet"))) == 9


_HARMLESS = ("with space__a", "q'uote__a", "-dash__a", "plus+at@comma,equals=__a", "ünïcode__a", "dots.in.it__a")


def test_harmless_odd_names_are_taken(tree: Path, tmp_path: Path) -> None:
    for number, name in enumerate(_HARMLESS):
        save_npz(graph_path(tree, LAYOUT, "valid", name), layout_graph(number))
    for built, kept in ((8, 0), (0, 8)):
        report = build(tree, tmp_path / "work", collections=[LAYOUT], splits=["valid"])
        assert totals(report) == (built, kept, 0)
    assert set(stored(tmp_path / "work", split="valid")) == {*_HARMLESS, *TREE[LAYOUT]["valid"]}


@pytest.mark.parametrize("source", ["..cpu", ".hidden", "a:b", "c pu?"])
def test_a_collection_name_that_could_do_harm_does_not_spoil_the_others(
    tree: Path, tmp_path: Path, source: str
) -> None:
    """Refused for itself, by name; the collections beside it are built with their manifests."""
    path = tree / "npz" / "layout" / source / "random" / "train" / "alpha__a.npz"
    save_npz(path, layout_graph(3))
    before = everything_below(tmp_path)
    said = ""
    try:
        said = str(build(tree, tmp_path / "work", splits=["train"]).broken)
    except XlarankError as error:
        said = str(error)
    assert source in said or source.startswith("."), "a hidden folder may be passed over"
    assert everything_below(tmp_path) == before
    assert list(stored(tmp_path / "work")) == list(TREE[LAYOUT]["train"])
    assert list(stored(tmp_path / "work", TILE)) == list(TREE[TILE]["train"])


# Several processes, kills and workspaces -----------------------------------------------------------------


@pytest.mark.slow
def test_two_processes_store_the_same_bytes(tree: Path, tmp_path: Path) -> None:
    graph_path(tree, TILE, "test", "sort__a").write_bytes(b"no zip")
    one = build(tree, tmp_path / "one", max_configs=10)
    two = build(tree, tmp_path / "two", max_configs=10, jobs=2)
    assert totals(two) == totals(one) == (FILES - 1, 0, 1)
    assert two.broken == one.broken
    assert parquet_bytes(tmp_path / "two") == parquet_bytes(tmp_path / "one")
    for collection, splits in TREE.items():
        for split in splits:
            assert manifest(tmp_path / "two", collection, split) == manifest(tmp_path / "one", collection, split)
    assert [part.built for part in two.splits] == [part.built for part in one.splits]


def die(job: object) -> None:
    """Stands in for the building of a graph in a worker that the system kills."""
    os._exit(9)


@pytest.mark.slow
def test_a_worker_that_dies_is_a_clear_error(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "build_graph", die)
    listener = Listener()
    with pytest.raises(XlarankError, match=r"a worker process died.*smaller --jobs"):
        build(tree, tmp_path / "work", jobs=2, progress=listener)
    assert listener.ended == 1


def test_an_interrupted_build_goes_on_where_it_was(tree: Path, tmp_path: Path) -> None:
    listener = Listener(stop_at=4)
    with pytest.raises(KeyboardInterrupt):
        build(tree, tmp_path / "work", progress=listener)
    assert listener.ended == 1
    assert totals(build(tree, tmp_path / "work")) == (FILES - 4, 4, 0)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
def test_a_killed_build_is_finished_by_the_next(tmp_path: Path) -> None:
    names = [f"family{number % 9}__{number}" for number in range(80)]
    write_tree(tmp_path / "tree", {TILE: {"train": names}})
    work = tmp_path / "work"
    folder = work / "features" / Path(*TILE.split(":")) / "train"
    command = [sys.executable, str(ROOT / "run.py"), "build-features", "--jobs", "1", "--tier", "fast"]
    process = subprocess.Popen(
        [*command, "--data-root", str(tmp_path / "tree"), "--workspace", str(work)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 60
    while len(list(folder.glob("[!.]*.parquet"))) < 5 and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.002)
    process.kill()
    assert process.wait() == -signal.SIGKILL, "it must not have been through already"
    done = len(list(folder.glob("[!.]*.parquet")))
    assert 5 <= done < len(names)
    # what a kill in the middle of a write leaves, at the worst moment
    (folder / ".partial-abc123.parquet").write_bytes(b"PAR1 half")
    (folder / ".partial-def456.json").write_text('{"recipe":')
    os.utime(folder / ".partial-def456.json", (0, 0))

    report = build(tmp_path / "tree", work)
    assert (folder / ".partial-abc123.parquet").exists(), "somebody may be writing it now"
    assert not (folder / ".partial-def456.json").exists(), "nobody has been for years"
    assert totals(report) == (len(names) - done, done, 0)
    build(tmp_path / "tree", tmp_path / "uninterrupted")
    wanted = parquet_bytes(tmp_path / "uninterrupted")
    assert {place: content for place, content in parquet_bytes(work).items() if ".partial-" not in place} == wanted
    assert manifest(work, TILE) == manifest(tmp_path / "uninterrupted", TILE)
    assert list(stored(work, TILE)) == sorted(names)


def workers_of(process: subprocess.Popen[bytes]) -> list[Path]:
    """Its child processes, as folders of /proc."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return [Path("/proc") / child for child in children]


def runs(process: Path) -> bool:
    """Whether a process is there and not only waits to be collected."""
    try:
        return process.joinpath("stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks for worker processes in /proc")
def test_workers_do_not_outlive_a_killed_build(tmp_path: Path) -> None:
    """Each would hold its memory until the machine is started again."""
    write_tree(tmp_path / "tree", {TILE: {"train": [f"family__{number}" for number in range(100)]}})
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "run.py"), "build-features", "--jobs", "2", "--tier", "fast",
         "--data-root", str(tmp_path / "tree"), "--workspace", str(tmp_path / "work")],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    workers: list[Path] = []
    try:
        deadline = time.monotonic() + 60
        while not list(tmp_path.glob("work/**/[!.]*.parquet")):
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.005)
        workers = workers_of(process)
        process.kill()
        process.wait()
        assert len(workers) >= 2
        deadline = time.monotonic() + 10
        while any(runs(worker) for worker in workers) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert [worker for worker in workers if runs(worker)] == []
    finally:
        process.kill()
        process.wait()
        for worker in filter(runs, workers):
            os.kill(int(worker.name), signal.SIGKILL)


def test_a_file_in_place_of_the_workspace(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "work").write_text("in the way")
    with pytest.raises(WorkspaceError, match=r"the workspace .*work cannot be written.*another --workspace"):
        build(tree, tmp_path / "work")
    with pytest.raises(WorkspaceError, match="cannot be written"):
        build(tree, tmp_path / "work" / "below")


def test_a_file_in_place_of_the_features(tree: Path, tmp_path: Path) -> None:
    """The disk is the trouble, not the graphs."""
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "features").write_text("in the way")
    with pytest.raises(WorkspaceError, match=r"cannot write .*features"):
        build(tree, tmp_path / "work")


def test_a_read_only_workspace(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests may run as root, who may write anywhere: the answer of the system is made up."""
    monkeypatch.setattr("xlarank.data.workspace.os.access", lambda path, mode: False)
    with pytest.raises(WorkspaceError, match="permission denied"):
        build(tree, tmp_path / "work")
    assert list((tmp_path / "work").iterdir()) == []


# Bad requests --------------------------------------------------------------------------------------------


def test_an_unknown_collection_suggests_the_close_one(tree: Path, tmp_path: Path) -> None:
    with pytest.raises(CollectionError, match="did you mean layout:cpu:random"):
        build(tree, tmp_path / "work", collections=["layout:cpu:randon"])
    assert not list((tmp_path / "work").rglob("*.parquet"))


def test_an_unknown_split(tree: Path, tmp_path: Path) -> None:
    with pytest.raises(CollectionError, match="'validation' is not a split; expected train, valid, test"):
        build(tree, tmp_path / "work", splits=["validation"])


def test_negative_jobs(tree: Path, tmp_path: Path) -> None:
    with pytest.raises(XlarankError, match=r"--jobs is -1"):
        build(tree, tmp_path / "work", jobs=-1)


def test_a_tree_without_files(tmp_path: Path) -> None:
    (tmp_path / "npz" / "layout" / "cpu").mkdir(parents=True)
    with pytest.raises(DataRootError, match="has no graph files"):
        build(tmp_path, tmp_path / "work")


def test_the_sample_of_files_is_what_the_tests_think(tree: Path) -> None:
    assert graph_count(tree) == FILES == 16
    assert data_root(tree).npz.is_dir()


def test_manifests_are_plain_json(tree: Path, tmp_path: Path) -> None:
    build(tree, tmp_path / "work", collections=[TILE], splits=["valid"])
    path = tmp_path / "work" / "features" / "tile" / "cpu" / "valid" / "manifest.json"
    assert json.loads(path.read_text())["graphs"]["pool__a"]["rows"] == 11
    assert [graph.name for graph in load_split(Workspace(tmp_path / "work"), Collection.parse(TILE), "valid")] == [
        "pool__a"
    ]


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_no_graph_is_begun_after_the_time_and_the_next_call_goes_on(tree: Path, tmp_path: Path, jobs: int) -> None:
    report = build(tree, tmp_path / "work", jobs=jobs, timeout=0.0)
    left = sum(part.left for part in report.splits)
    assert left >= FILES - 2 * jobs - 1, "workers may have begun a few"
    listed = sum(len(manifest(tmp_path / "work", part.collection, part.split).graphs) for part in report.splits)
    assert listed == FILES - left and not report.broken
    again = build(tree, tmp_path / "work")
    assert (sum(part.kept for part in again.splits), sum(part.built for part in again.splits)) == (listed, left)
    assert sum(part.left for part in again.splits) == 0
