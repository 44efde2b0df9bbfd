"""Atomic writes, and paths within the workspace."""

import errno
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xlarank.data.collection import Collection
from xlarank.data.errors import WorkspaceError
from xlarank.data.files import atomic_write, write_json
from xlarank.data.workspace import Workspace


def refuse(path: Path, words: str) -> None:
    with pytest.raises(WorkspaceError, match=words), atomic_write(path):
        pytest.fail("the block must not run")


def test_the_old_file_remains_until_the_new_one_is_complete(tmp_path):
    path = tmp_path / "deep/er/model.json"
    for text, old in (("first", None), ("second", "first")):
        with atomic_write(path) as partial:
            partial.write_text(text)
            assert (path.read_text() if path.exists() else None) == old
            assert partial.parent == path.parent, "beside its name, so that the move is atomic"
            assert partial.suffix == ".json" and partial.name.startswith(".")
    with atomic_write(path) as outer, atomic_write(path) as inner:
        assert outer != inner, "two writers do not meet"
        outer.write_text("outer")
        inner.write_text("inner")
    assert [*path.parent.iterdir()] == [path]
    assert path.read_text() == "outer", "the outer block ends last"


def test_an_error_leaves_files_unchanged(tmp_path):
    path = tmp_path / "model.json"
    value = {"tau": 0.5, "names": ["größe"]}
    for before in ({}, {"model.json": json.dumps(value, indent=2) + "\n"}):
        for error in (ValueError("bad"), KeyboardInterrupt(), SystemExit(1), MemoryError()):
            with pytest.raises(type(error)), atomic_write(path) as partial:
                partial.write_text("half")
                raise error
        full = pytest.raises(WorkspaceError, match=r"model\.json \(No space left")
        with full, atomic_write(path):
            raise OSError(errno.ENOSPC, "No space left on device")
        with pytest.raises(WorkspaceError), atomic_write(path) as partial:
            partial.unlink()
        # A missing input file is not reported as an error of writing.
        with pytest.raises(FileNotFoundError, match=r"input\.json"), atomic_write(path) as partial:
            partial.write_text((tmp_path / "input.json").read_text())
        for wrong in (float("nan"), float("inf"), object()):
            with pytest.raises((ValueError, TypeError)):
                write_json(path, {"tau": wrong})
        assert {path.name: path.read_text() for path in tmp_path.iterdir()} == before
        write_json(path, value)
    for name in ("out.json", "deep/out.json"):
        refuse(path / name, r"cannot write .*`workspace` \(or `out`\)")


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir])
def test_special_and_read_only_files_are_refused_even_to_root(tmp_path, make):
    special = tmp_path / "special"
    path = tmp_path / "kept.csv"
    make(special)
    (tmp_path / "link").symlink_to("special")
    before = stat.S_IFMT(special.lstat().st_mode)
    for name in ("special", "link"):
        refuse(tmp_path / name, f"cannot write .*{name} .*a folder, a device or a pipe")
    path.write_text("kept")
    path.chmod(0o444)
    refuse(path, "read-only")
    assert path.read_text() == "kept" and stat.S_IMODE(path.stat().st_mode) == 0o444
    assert stat.S_IFMT(special.lstat().st_mode) == before and (tmp_path / "link").is_symlink()
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.parametrize("old", ["old", None], ids=["in place", "dangling"])
def test_a_link_is_written_through(tmp_path, old):
    """A dangling link names the file to create; the link itself stays."""
    real = tmp_path / "far" / "real.json"
    link = tmp_path / "near.json"
    real.parent.mkdir()
    if old:
        real.write_text(old)
    link.symlink_to(Path("far", "real.json"))
    with atomic_write(link) as partial:
        # another file system may be behind the link
        assert partial.parent == real.parent, "beside the file itself"
        partial.write_text("new")
    assert link.is_symlink() and real.read_text() == "new"
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["far", "near.json", "real.json"]


LAYOUT = Collection.parse("layout:xla:random")
ESCAPES = ["", " ", " a", "a\n", "a\0b", "\u2028", "a\u200b", "\ud800", "\x1b[31m"]
ESCAPES += r". .. ../x a/b /etc/passwd a/ a\b C:\x .partial-x".split()
ALLOWED = ["resnet50 copy", "net (1)"]
ALLOWED += "unet_3d.4x4.bf16 größe 模型 a..b a[0]{1} -x a=1,b=2@c+d".split()
WORK = Workspace(Path("/srv/work"))
#: Paths of which a name from outside becomes a part.
PATHS = (
    lambda name: WORK.features(LAYOUT, name),
    lambda name: WORK.study(Collection(("tile", name))),
    lambda name: WORK.model(Collection(("layout", name))),
)


def refused_by(path_of: Callable[[str], Path], name: str) -> bool:
    """Return whether a name is refused; otherwise it must be a single component of the path."""
    try:
        path = path_of(name)
    except WorkspaceError as error:
        assert "cannot be used inside the workspace" in str(error)
        assert {*str(error)}.isdisjoint("\n\0")
        return True
    assert (os.path.normpath(path), path.name) == (str(path), name)
    assert path.is_relative_to(WORK.root)
    return False


@given(name=st.text(max_size=12))
def test_names_that_would_leave_the_workspace_are_refused(name):
    for path_of in PATHS:
        assert [escape for escape in ESCAPES if not refused_by(path_of, escape)] == []
        assert [allowed for allowed in ALLOWED if refused_by(path_of, allowed)] == []
    assert len({refused_by(path_of, name) for path_of in PATHS}) == 1


def test_a_missing_workspace_is_created_and_an_unwritable_one_refused(tmp_path, monkeypatch):
    for _ in range(2):
        Workspace(tmp_path / "a/b").require_writable()
    assert (tmp_path / "a/b").is_dir()
    (tmp_path / "file").write_text("kept")
    said = r"file.* cannot be written .*pass another `workspace`"
    for name in ("file", "file/deep/work"):
        with pytest.raises(WorkspaceError, match=said):
            Workspace(tmp_path / name).require_writable()
    assert (tmp_path / "file").read_text() == "kept"
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # to root nothing is read-only
    with pytest.raises(WorkspaceError, match="permission denied"):
        Workspace(tmp_path).require_writable()
