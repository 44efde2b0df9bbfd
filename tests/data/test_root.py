"""Where the data is looked for: five places in a fixed order, three shapes of a root."""

from __future__ import annotations

import os
import pwd
import shutil
from pathlib import Path

import pytest

from xlarank.data import root
from xlarank.data.collection import discover
from xlarank.data.errors import DataRootError
from xlarank.data.root import ENVIRONMENT, SAMPLE, find_data_root

SHAPES = ["", "npz", "npz_all/npz"]
PLACES = ["named", "environment", "kaggle", "home"]


@pytest.fixture
def places(tmp_path, monkeypatch) -> dict[str, Path]:
    """The four places before the sample, none of which exists yet."""
    found = {name: tmp_path / name for name in PLACES}
    monkeypatch.setattr(root, "KAGGLE", found["kaggle"])
    monkeypatch.setattr(root, "HOME", found["home"])
    return found


def tree(path: Path, below: str = "npz", kind: str = "layout") -> Path:
    (path / below / kind).mkdir(parents=True)
    return path


def ask(places: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> root.DataRoot:
    """Search with whatever of the four places has been made."""
    if places["environment"].exists():
        monkeypatch.setenv(ENVIRONMENT, str(places["environment"]))
    return find_data_root(places["named"] if places["named"].exists() else None)


# Precedence ---------------------------------------------------------------------------------------------


def test_the_first_place_that_holds_a_tree_wins_and_says_why(places, monkeypatch):
    reasons = ["named by --data-root", f"named by {ENVIRONMENT}", "Kaggle's mount", "the default place"]
    for name in PLACES:
        tree(places[name])
    for name, reason in zip(PLACES, reasons, strict=True):
        found = ask(places, monkeypatch)
        assert (found.path, found.npz) == (places[name], places[name] / "npz")
        assert reason in found.why
        shutil.rmtree(places[name])
        monkeypatch.delenv(ENVIRONMENT, raising=False)


def test_the_sample_is_the_last_resort(places, monkeypatch):
    places["kaggle"].mkdir()
    places["home"].write_text("a file, not a folder")
    monkeypatch.setenv(ENVIRONMENT, "")
    found = find_data_root()
    assert (found.path, found.npz) == (SAMPLE, SAMPLE / "npz")
    assert "the embedded sample" in found.why
    assert {file.collection.kind for file in discover(found.npz)} == {"layout", "tile"}


def test_the_home_of_the_user_is_expanded(tmp_path, monkeypatch, places):
    monkeypatch.setattr(root, "HOME", Path("~/data/tpugraphs"))
    monkeypatch.setenv("HOME", str(tmp_path))
    tree(tmp_path / "data" / "tpugraphs")
    found = find_data_root()
    assert found.path == tmp_path / "data" / "tpugraphs"
    assert "~/data/tpugraphs" in found.why


def test_a_user_without_a_home_gets_the_sample(monkeypatch, places):
    """As in a container that runs under an unknown user id."""

    def unknown(uid: int) -> object:
        raise KeyError(uid)

    monkeypatch.setattr(root, "HOME", Path("~/data/tpugraphs"))
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    assert find_data_root().path == SAMPLE


@pytest.mark.parametrize("below", SHAPES)
def test_three_shapes_of_a_root_are_accepted(places, monkeypatch, below):
    """The root itself, ``npz/`` below it and Kaggle's ``npz_all/npz/``; one kind is enough."""
    for place, kind in zip(PLACES, ("layout", "tile", "layout", "tile"), strict=True):
        tree(places[place], below, kind)
        found = ask(places, monkeypatch)
        assert (found.path, found.npz) == (places[place], places[place] / below)
        shutil.rmtree(places[place])
        monkeypatch.delenv(ENVIRONMENT, raising=False)


def test_the_nearest_tree_is_taken(tmp_path):
    for below in SHAPES:
        tree(tmp_path, below)
    assert find_data_root(tmp_path).npz == tmp_path


# Refusals -----------------------------------------------------------------------------------------------


def refused(places: dict[str, Path], monkeypatch: pytest.MonkeyPatch, place: str, path: Path | str) -> str:
    """The refusal of a place that was asked for, although the later ones would do."""
    (places["kaggle"] / "npz" / "layout").mkdir(parents=True, exist_ok=True)
    with pytest.raises(DataRootError) as caught:
        if place == "named":
            find_data_root(Path(path))
        else:
            monkeypatch.setenv(ENVIRONMENT, str(path))
            find_data_root()
    message = str(caught.value)
    assert str(path) in message
    assert ("--data-root" if place == "named" else ENVIRONMENT) in caught.value.got
    assert f"pass --data-root or set {ENVIRONMENT}" in caught.value.do
    return message


@pytest.mark.parametrize("place", ["named", "environment"])
def test_what_was_asked_for_and_holds_no_tree_is_refused(places, monkeypatch, place):
    def message(path: Path) -> str:
        return refused(places, monkeypatch, place, path)

    assert "does not exist" in message(places["home"])
    (places["home"] / "npz_all" / "layout").mkdir(parents=True)
    (places["home"] / "data" / "npz" / "layout").mkdir(parents=True)
    (places["home"] / "layout").write_text("")
    assert "is not a TpuGraphs root: found no layout/ or tile/" in message(places["home"])
    assert "is not a folder" in message(places["home"] / "layout")
    message(places["home"].parent / ("x" * 300))


def test_a_place_that_may_not_be_looked_into_is_passed_over(places, monkeypatch):
    """Permissions do not bind root, so the refusal of the system is played."""

    def is_dir(self: Path) -> bool:
        if self.is_relative_to(places["kaggle"]):
            raise PermissionError(13, "Permission denied", str(self))
        return os.path.isdir(self)

    monkeypatch.setattr(Path, "is_dir", is_dir)
    assert find_data_root().path == SAMPLE
