"""A file is whole or absent; what was there before survives a failure."""

from __future__ import annotations

import errno
import json
import os
import stat
import time
from pathlib import Path

import pytest

from xlarank.data.errors import WorkspaceError
from xlarank.data.files import atomic_write, regular_no_link, sweep_partial, write_json

POSIX = pytest.mark.skipif(os.name != "posix", reason="modes, devices and pipes are those of posix")


def content(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_the_old_file_is_there_until_the_new_one_is_whole(tmp_path):
    path = tmp_path / "deep" / "er" / "model.json"
    for text, old in (("first", None), ("second", "first")):
        with atomic_write(path) as partial:
            partial.write_text(text)
            assert (path.read_text() if path.exists() else None) == old
            assert partial.parent == path.parent, "beside its name, so that the move is atomic"
            assert partial.suffix == ".json" and partial.name.startswith(".")
        assert content(path.parent) == {"model.json": text}
    with atomic_write(path) as one, atomic_write(path) as other:
        assert one != other, "two writers do not meet"
        one.write_text("one")
        other.write_text("other")
    assert content(path.parent) == {"model.json": "one"}, "the outer block ends last"


def test_an_error_leaves_things_as_they_were(tmp_path):
    path = tmp_path / "model.json"
    for before in ({}, {"model.json": "old"}):
        for name, text in before.items():
            (tmp_path / name).write_text(text)
        for error in (ValueError("bad"), KeyboardInterrupt(), SystemExit(1), MemoryError()):
            with pytest.raises(type(error)), atomic_write(path) as partial:
                partial.write_text("half")
                raise error
            assert content(tmp_path) == before
        with pytest.raises(WorkspaceError) as caught, atomic_write(path):
            raise OSError(errno.ENOSPC, "No space left on device")
        assert str(path) in caught.value.got and "No space left" in caught.value.got
        with pytest.raises(WorkspaceError), atomic_write(path) as partial:
            partial.unlink()
        # A file that is missing is another one, and free space will not bring it back.
        with pytest.raises(FileNotFoundError, match=r"input\.json"), atomic_write(path) as partial:
            partial.write_text((tmp_path / "input.json").read_text())
        assert content(tmp_path) == before


def test_a_file_in_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "file").write_text("keep me")
    for below in ("out.json", "deep/out.json"):
        with pytest.raises(WorkspaceError) as caught, atomic_write(tmp_path / "file" / below):
            pytest.fail("the block must not run")
        assert "cannot write" in caught.value.got
        assert "--workspace (or --out)" in caught.value.do
    assert content(tmp_path) == {"file": "keep me"}


@POSIX
def test_a_new_file_has_the_mode_of_the_mask_and_a_replaced_one_keeps_its_mode(tmp_path):
    path = tmp_path / "out.json"

    def write() -> int:
        with atomic_write(path) as partial:
            partial.write_text("x")
        return stat.S_IMODE(path.stat().st_mode)

    for umask, mode in ((0o022, 0o644), (0o077, 0o600), (0o002, 0o664)):
        path.unlink(missing_ok=True)
        before = os.umask(umask)
        try:
            assert write() == mode
            assert os.umask(umask) == umask, "the mask of the process is as before"
        finally:
            os.umask(before)
    for mode in (0o600, 0o664, 0o755):
        path.chmod(mode)
        assert write() == mode


def test_json_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "report.json"
    write_json(path, {"tau": 0.5, "names": ["größe"]})
    text = path.read_text(encoding="utf-8")
    assert json.loads(text) == {"tau": 0.5, "names": ["größe"]} and text.endswith("}\n")
    for value in ({"tau": float("nan")}, {"tau": float("inf")}, {"path": object()}):
        with pytest.raises((ValueError, TypeError)):
            write_json(path, value)
    assert content(tmp_path) == {"report.json": text}


def test_only_what_was_left_behind_long_ago_is_swept(tmp_path: Path) -> None:
    day = 24 * 3600
    ages = {
        "deep/er/.partial-old.parquet": 2 * day,
        ".partial-just.json": day + 60,
        "deep/.partial-young.json": day - 60,
        "deep/result.json": 5 * day,
    }
    for name, age in ages.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("half")
        os.utime(path, (time.time() - age,) * 2)
    (tmp_path / ".partial-folder").mkdir()
    os.utime(tmp_path / ".partial-folder", (0, 0))
    swept = sweep_partial(tmp_path)
    assert [str(path.relative_to(tmp_path)) for path in swept] == [
        ".partial-just.json",
        "deep/er/.partial-old.parquet",
    ]
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert left == {"deep/.partial-young.json", "deep/result.json"}
    assert sweep_partial(tmp_path / "not there") == []


# What must not be replaced --------------------------------------------------------------------------------


def make_device(path: Path) -> None:
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("only root makes devices")


@POSIX
@pytest.mark.parametrize("what", ["device", "pipe", "folder"])
def test_a_device_a_pipe_and_a_folder_are_refused_and_stay(tmp_path, what):
    place, link = tmp_path / "place", tmp_path / "link"
    {"device": make_device, "pipe": os.mkfifo, "folder": Path.mkdir}[what](place)
    link.symlink_to("place")
    before = stat.S_IFMT(place.lstat().st_mode)
    for named in (place, link):
        with pytest.raises(WorkspaceError, match=f"cannot write .*{named.name} .*a {what}"), atomic_write(named):
            pytest.fail("the block must not run")
        with pytest.raises(OSError):
            os.close(regular_no_link(str(named), os.O_RDONLY))
    assert stat.S_IFMT(place.lstat().st_mode) == before and link.is_symlink()
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("old", ["old", None], ids=["in place", "dangling"])
def test_a_link_is_written_through(tmp_path, old):
    """A dangling link names the file to make; the link itself stays."""
    real = tmp_path / "far" / "real.json"
    real.parent.mkdir()
    if old:
        real.write_text(old)
    link = tmp_path / "near.json"
    link.symlink_to(Path("far", "real.json"))
    with atomic_write(link) as partial:
        assert partial.parent == real.parent, "beside the file itself: another file system may be behind the link"
        partial.write_text("new")
    assert link.is_symlink() and real.read_text() == "new"
    with pytest.raises(OSError), open(link, "rb", opener=regular_no_link):
        pytest.fail("the link was followed")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["far", "near.json", "real.json"]


@POSIX
def test_links_in_a_circle_and_read_only_files_are_refused_even_to_root(tmp_path):
    """A file that is protected during the work, too."""
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").symlink_to("one")
    with pytest.raises(WorkspaceError, match="circle"), atomic_write(tmp_path / "one"):
        pytest.fail("the block must not run")
    path = tmp_path / "kept.csv"
    path.write_text("kept")
    with pytest.raises(WorkspaceError, match="read-only"), atomic_write(path) as partial:
        partial.write_text("new")
        path.chmod(0o444)
    with pytest.raises(WorkspaceError, match="read-only"), atomic_write(path):
        pytest.fail("the block must not run")
    assert path.read_text() == "kept" and stat.S_IMODE(path.stat().st_mode) == 0o444
    assert len(list(tmp_path.iterdir())) == 3
