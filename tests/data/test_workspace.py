"""Nothing is written outside the workspace, whatever a file is called."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xlarank.data.collection import Collection
from xlarank.data.errors import WorkspaceError
from xlarank.data.workspace import Workspace

LAYOUT, TILE = Collection.parse("layout:xla:random"), Collection.parse("tile:cpu")
ESCAPES = [
    "", ".", "..", "../x", "a/b", "a/../../b", "/etc/passwd", "/", "a/", "\\", "a\\b", "C:\\x", "C:x",
    ".hidden", ".partial-x", "a\nb", "a\n", "\n", "a\0b", "\0", "a\tb", "~", "~root", "a:b", "a*b", "a?b",
    "$HOME", "`ls`", "a;b", "a|b", "a\r", " ", " a", "\u2028", "a\u200b", "\ud800",
]  # fmt: skip
ALLOWED = [
    "alexnet_train_batch_32_-3006cd0d02fa72c4", "unet_3d.4x4.bf16", "resnet50 copy", "größe", "模型", "a..b",
    "net (1)", "a[0]{1}", "-x", "a=1,b=2@c+d",
]  # fmt: skip


def test_paths_repeat_the_tree_of_collections(tmp_path):
    work = Workspace(tmp_path)
    assert work.features(LAYOUT, "train") == tmp_path / "features/layout/xla/random/train"
    assert work.graph_rows(TILE, "valid", "a.4x4") == tmp_path / "features/tile/cpu/valid/a.4x4.parquet"
    assert work.study(LAYOUT) == tmp_path / "studies/layout/xla/random"
    assert (work.model(TILE), work.reports()) == (tmp_path / "models/tile/cpu", tmp_path / "reports")
    assert list(tmp_path.iterdir()) == [], "naming a path makes nothing"


@given(other=st.text(max_size=12))
def test_names_that_try_to_leave_are_refused_and_others_are_one_plain_step(other):
    """By every way in which a name from outside becomes a part of a path."""
    work = Workspace(Path("/srv/work"))
    for name in (*ESCAPES, *ALLOWED, other):
        for ask in (
            lambda name: work.graph_rows(LAYOUT, "train", name).with_suffix(""),
            lambda name: work.features(LAYOUT, name),
            lambda name: work.study(Collection(("tile", name))),
            lambda name: work.model(Collection(("layout", name))),
        ):
            try:
                path = ask(name)
            except WorkspaceError as error:
                assert name not in ALLOWED and "cannot be used inside the workspace" in str(error)
                assert "\n" not in str(error) and "\0" not in str(error)
            else:
                assert name not in ESCAPES and os.path.normpath(path) == str(path) and path.name == name
                assert path.is_relative_to(work.root)


def test_a_missing_workspace_is_made_and_what_cannot_be_written_refused(tmp_path, monkeypatch):
    for _ in range(2):
        Workspace(tmp_path / "a" / "b").require_writable()
    assert (tmp_path / "a" / "b").is_dir()
    (tmp_path / "file").write_text("keep me")
    for below in ("", "deep/work"):
        with pytest.raises(WorkspaceError, match=r"file.* cannot be written .*pass another --workspace"):
            Workspace(tmp_path / "file" / below).require_writable()
    assert (tmp_path / "file").read_text() == "keep me"
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # to root nothing is read-only
    with pytest.raises(WorkspaceError, match="permission denied"):
        Workspace(tmp_path).require_writable()
