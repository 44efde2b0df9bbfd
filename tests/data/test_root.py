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
REASONS = {
    "named": "named by --data-root",
    "environment": f"named by {ENVIRONMENT}",
    "kaggle": "Kaggle's mount",
    "home": "the default place",
}


@pytest.fixture
def places(tmp_path, monkeypatch) -> dict[str, Path]:
    """The four places before the sample, none of which exists yet."""
    found = {name: tmp_path / name for name in REASONS}
    monkeypatch.setattr(root, "KAGGLE", found["kaggle"])
    monkeypatch.setattr(root, "HOME", found["home"])
    return found


def ask(place: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> root.DataRoot:
    """Search with the place named by the option or the environment where it is one of these."""
    if place == "environment":
        monkeypatch.setenv(ENVIRONMENT, str(path))
    return find_data_root(path if place == "named" else None)


# Precedence ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("below", SHAPES)
def test_the_first_place_that_holds_a_tree_wins_and_says_why(places, monkeypatch, below):
    """The root itself, ``npz/`` below it and Kaggle's ``npz_all/npz/``; one kind is enough."""
    for number, path in enumerate(places.values()):
        (path / below / ("layout", "tile")[number % 2]).mkdir(parents=True)
    for place, path in places.items():
        found = ask(place, path, monkeypatch)
        assert (found.path, found.npz) == (path, path / below)
        assert REASONS[place] in found.why
        shutil.rmtree(path)
        monkeypatch.delenv(ENVIRONMENT, raising=False)


def test_the_nearest_tree_is_taken(tmp_path):
    for below in SHAPES:
        (tmp_path / below / "layout").mkdir(parents=True)
    assert find_data_root(tmp_path).npz == tmp_path


def test_the_sample_is_the_last_resort(places, monkeypatch):
    places["kaggle"].mkdir()
    places["home"].write_text("a file, not a folder")
    monkeypatch.setenv(ENVIRONMENT, "")
    found = find_data_root()
    assert (found.path, found.npz) == (SAMPLE, SAMPLE / "npz")
    assert "the embedded sample" in found.why
    assert {file.collection.kind for file in discover(found.npz)} == {"layout", "tile"}


def test_the_home_of_the_user_is_expanded_where_there_is_one(tmp_path, monkeypatch, places):
    """A container that runs under an unknown user id has none."""

    def unknown(uid: int) -> object:
        raise KeyError(uid)

    monkeypatch.setattr(root, "HOME", Path("~/data/tpugraphs"))
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "data" / "tpugraphs" / "tile").mkdir(parents=True)
    found = find_data_root()
    assert found.path == tmp_path / "data" / "tpugraphs" and "~/data/tpugraphs" in found.why
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    assert find_data_root().path == SAMPLE


# Refusals -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["named", "environment"])
def test_what_was_asked_for_and_holds_no_tree_is_refused(places, monkeypatch, place):
    """Although a later place would do."""
    (places["kaggle"] / "npz" / "layout").mkdir(parents=True)
    tree = places["home"]
    for wrong in ("npz_all/layout", "data/npz/layout"):
        (tree / wrong).mkdir(parents=True)
    (tree / "layout").write_text("")
    for path, said in (
        (tree, "is not a TpuGraphs root: found no layout/ or tile/"),
        (tree / "absent", "does not exist"),
        (tree / "layout", "is not a folder"),
        (tree / ("x" * 300), "does not exist"),
    ):
        with pytest.raises(DataRootError) as caught:
            ask(place, path, monkeypatch)
        origin = "--data-root" if place == "named" else ENVIRONMENT
        assert caught.value.got.startswith(f"{path} ({origin}) {said}")
        assert f"pass --data-root or set {ENVIRONMENT}" in caught.value.do


def test_a_place_that_may_not_be_looked_into_is_passed_over(places, monkeypatch):
    """Permissions do not bind root, so the refusal of the system is played."""

    def is_dir(self: Path) -> bool:
        if self.is_relative_to(places["kaggle"]):
            raise PermissionError(13, "Permission denied", str(self))
        return os.path.isdir(self)

    monkeypatch.setattr(Path, "is_dir", is_dir)
    assert find_data_root().path == SAMPLE
