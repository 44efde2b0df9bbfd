"""A file is whole or absent, the old one survives a failure, and nothing is written outside the workspace."""

import errno
import json
import os
import stat
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xlarank.data.collection import Collection
from xlarank.data.errors import WorkspaceError
from xlarank.data.files import atomic_write, regular_no_link, sweep_partial, write_json
from xlarank.data.workspace import Workspace

POSIX = pytest.mark.skipif(os.name != "posix", reason="modes, devices and pipes are those of posix")


def content(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def refuse(path: Path, words: str) -> None:
    with pytest.raises(WorkspaceError, match=words), atomic_write(path):
        pytest.fail("the block must not run")


def test_the_old_file_is_there_until_the_new_one_is_whole(tmp_path):
    path = tmp_path / "deep" / "er" / "model.json"
    for text, old in (("first", None), ("second", "first")):
        with atomic_write(path) as partial:
            partial.write_text(text)
            assert (path.read_text() if path.exists() else None) == old
            assert partial.parent == path.parent, "beside its name, so that the move is atomic"
            assert partial.suffix == ".json" and partial.name.startswith(".")
    with atomic_write(path) as one, atomic_write(path) as other:
        assert one != other, "two writers do not meet"
        one.write_text("one")
        other.write_text("other")
    assert content(path.parent) == {"model.json": "one"}, "the outer block ends last"


def test_an_error_leaves_things_as_they_were(tmp_path):
    path, value = tmp_path / "model.json", {"tau": 0.5, "names": ["größe"]}
    for before in ({}, {"model.json": json.dumps(value, indent=2) + "\n"}):
        for error in (ValueError("bad"), KeyboardInterrupt(), SystemExit(1), MemoryError()):
            with pytest.raises(type(error)), atomic_write(path) as partial:
                partial.write_text("half")
                raise error
        with pytest.raises(WorkspaceError, match=r"model\.json \(No space left"), atomic_write(path):
            raise OSError(errno.ENOSPC, "No space left on device")
        with pytest.raises(WorkspaceError), atomic_write(path) as partial:
            partial.unlink()
        # A file that is missing is another one, and free space will not bring it back.
        with pytest.raises(FileNotFoundError, match=r"input\.json"), atomic_write(path) as partial:
            partial.write_text((tmp_path / "input.json").read_text())
        for wrong in (float("nan"), float("inf"), object()):
            with pytest.raises((ValueError, TypeError)):
                write_json(path, {"tau": wrong})
        assert content(tmp_path) == before
        write_json(path, value)
    for below in ("out.json", "deep/out.json"):
        refuse(path / below, r"cannot write .*`workspace` \(or `out`\)")


@POSIX
def test_a_new_file_has_the_mode_of_the_mask_and_a_replaced_one_keeps_its_mode(tmp_path):
    path, before = tmp_path / "a.json", os.umask(0o027)
    try:
        write_json(path, {})
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        for mode in (0o600, 0o664, 0o755):
            path.chmod(mode)
            write_json(path, {})
            assert stat.S_IMODE(path.stat().st_mode) == mode
        assert os.umask(0o027) == 0o027, "the mask of the process is as before"
    finally:
        os.umask(before)


def test_only_what_was_left_behind_long_ago_is_swept(tmp_path: Path) -> None:
    old, young = {"deep/er/.partial-old.parquet", ".partial-just.json"}, {"deep/.partial-young.json"}
    for name in (*old, *young, "deep/result.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (time.time() - 24 * 3600 + (60 if name in young else -60),) * 2)
    (tmp_path / ".partial-folder").mkdir()
    os.utime(tmp_path / ".partial-folder", (0, 0))
    sweep_partial(tmp_path)
    assert all((tmp_path / name).exists() == (name not in old) for name in (*old, *young, "deep/result.json"))
    assert (tmp_path / ".partial-folder").exists()
    sweep_partial(tmp_path / "not there")


@POSIX
@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir])
def test_what_is_no_file_links_in_a_circle_and_read_only_files_are_refused_even_to_root(tmp_path, make):
    """And stay; a file that is protected during the work, too."""
    make(tmp_path / "place")
    for name, target in (("link", "place"), ("one", "two"), ("two", "one")):
        (tmp_path / name).symlink_to(target)
    before = stat.S_IFMT((tmp_path / "place").lstat().st_mode)
    for name in ("place", "link"):
        refuse(tmp_path / name, f"cannot write .*{name} .*a folder, a device or a pipe")
        with pytest.raises(OSError):
            os.close(regular_no_link(str(tmp_path / name), os.O_RDONLY))
    refuse(tmp_path / "one", "circle")
    path = tmp_path / "kept.csv"
    path.write_text("kept")
    with pytest.raises(WorkspaceError, match="read-only"), atomic_write(path) as partial:
        partial.write_text("new")
        path.chmod(0o444)
    refuse(path, "read-only")
    assert path.read_text() == "kept" and stat.S_IMODE(path.stat().st_mode) == 0o444
    assert stat.S_IFMT((tmp_path / "place").lstat().st_mode) == before and (tmp_path / "link").is_symlink()
    assert len(list(tmp_path.iterdir())) == 5


@pytest.mark.parametrize("old", ["old", None], ids=["in place", "dangling"])
def test_a_link_is_written_through(tmp_path, old):
    """A dangling link names the file to make; the link itself stays."""
    real, link = tmp_path / "far" / "real.json", tmp_path / "near.json"
    real.parent.mkdir()
    if old:
        real.write_text(old)
    link.symlink_to(Path("far", "real.json"))
    with atomic_write(link) as partial:
        assert partial.parent == real.parent, "beside the file itself: another file system may be behind the link"
        partial.write_text("new")
    assert link.is_symlink() and real.read_text() == "new"
    with pytest.raises(OSError), open(link, "rb", opener=regular_no_link):
        pytest.fail("the link was followed")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["far", "near.json", "real.json"]


LAYOUT, TILE = Collection.parse("layout:xla:random"), Collection.parse("tile:cpu")
ESCAPES = [
    "", ".", "..", "../x", "a/b", "/etc/passwd", "a/", "a\\b", "C:\\x", "C:x", ".partial-x", "a\n", "a\0b", "a\tb",
    "~root", "a:b", "a*b", "a?b", "$HOME", "`ls`", "a;b", "a|b", "a\r", " ", " a", "\u2028", "a\u200b", "\ud800",
]  # fmt: skip
ALLOWED = ["unet_3d.4x4.bf16", "resnet50 copy", "größe", "模型", "a..b", "net (1)", "a[0]{1}", "-x", "a=1,b=2@c+d"]


def test_paths_repeat_the_tree_of_collections(tmp_path):
    work = Workspace(tmp_path)
    assert work.features(LAYOUT, "train") == tmp_path / "features/layout/xla/random/train"
    assert work.rows(TILE, "valid", 12) == tmp_path / "features/tile/cpu/valid/part-0012.parquet"
    assert work.study(LAYOUT) == tmp_path / "studies/layout/xla/random"
    assert (work.model(TILE), work.reports()) == (tmp_path / "models/tile/cpu", tmp_path / "reports")
    assert list(tmp_path.iterdir()) == [], "naming a path makes nothing"


WORK = Workspace(Path("/srv/work"))
#: Every way in which a name from outside becomes a part of a path.
BUILT = (
    lambda name: WORK.graph_instances(LAYOUT, "train", name).with_suffix("").with_suffix(""),
    lambda name: WORK.features(LAYOUT, name),
    lambda name: WORK.study(Collection(("tile", name))),
    lambda name: WORK.model(Collection(("layout", name))),
)


def refusals(name: str) -> int:
    """Return how many paths refuse a name; of the others it must be one plain step."""
    refused = 0
    for build in BUILT:
        try:
            path = build(name)
        except WorkspaceError as error:
            refused += 1
            assert "cannot be used inside the workspace" in str(error) and not {*str(error)} & {"\n", "\0"}
        else:
            assert os.path.normpath(path) == str(path) and path.name == name and path.is_relative_to(WORK.root)
    return refused


@given(name=st.text(max_size=12))
def test_names_that_try_to_leave_are_refused_and_others_are_one_plain_step(name):
    assert [name for name in ESCAPES if refusals(name) < len(BUILT)] == []
    assert [name for name in ALLOWED if refusals(name)] == []
    assert refusals(name) in (0, len(BUILT))


def test_a_missing_workspace_is_made_and_what_cannot_be_written_refused(tmp_path, monkeypatch):
    for _ in range(2):
        Workspace(tmp_path / "a" / "b").require_writable()
    assert (tmp_path / "a" / "b").is_dir()
    (tmp_path / "file").write_text("keep me")
    for below in ("", "deep/work"):
        with pytest.raises(WorkspaceError, match=r"file.* cannot be written .*pass another `workspace`"):
            Workspace(tmp_path / "file" / below).require_writable()
    assert (tmp_path / "file").read_text() == "keep me"
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # to root nothing is read-only
    with pytest.raises(WorkspaceError, match="permission denied"):
        Workspace(tmp_path).require_writable()
