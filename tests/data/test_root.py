"""Where the data is looked for: five places in a fixed order, three shapes of a root."""

from __future__ import annotations

import os
import pwd
import shutil
from pathlib import Path

import pytest

from xlarank.data import root
from xlarank.data.errors import DataRootError
from xlarank.data.root import ENVIRONMENT, SAMPLE, find_data_root

REASONS = {
    "named": "named by --data-root",
    "environment": f"named by {ENVIRONMENT}",
    "kaggle": "Kaggle's mount",
    "home": "the default place",
}


@pytest.fixture
def places(tmp_path, monkeypatch) -> dict[str, Path]:
    """The four places before the sample, none of which exists yet."""
    monkeypatch.setattr(root, "KAGGLE", tmp_path / "kaggle")
    monkeypatch.setattr(root, "HOME", tmp_path / "home")
    return {name: tmp_path / name for name in REASONS}


def ask(place: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> root.DataRoot:
    """Search with the place named by the option or the environment where it is one of these."""
    if place == "environment":
        monkeypatch.setenv(ENVIRONMENT, str(path))
    return find_data_root(path if place == "named" else None)


@pytest.mark.parametrize("below", ["", "npz", "npz_all/npz"])
def test_the_first_place_that_holds_a_tree_wins_and_says_why(places, monkeypatch, below):
    """The root itself, ``npz/`` below it and Kaggle's ``npz_all/npz/``; the nearest tree is taken."""
    for number, path in enumerate(places.values()):
        (path / below / ("layout", "tile")[number % 2]).mkdir(parents=True)
        (path / "npz_all" / "npz" / "layout").mkdir(parents=True, exist_ok=True)
    for place, path in places.items():
        found = ask(place, path, monkeypatch)
        assert (found.path, found.npz) == (path, path / below) and REASONS[place] in found.why
        shutil.rmtree(path)
        monkeypatch.delenv(ENVIRONMENT, raising=False)


def test_the_sample_is_the_last_resort(places, monkeypatch, tmp_path):
    """Also where the system refuses to look, and for an unknown user id, as in containers, that has no home."""
    places["kaggle"].mkdir()
    monkeypatch.setenv(ENVIRONMENT, "")
    monkeypatch.setattr(root, "HOME", Path("~/data/tpugraphs"))
    monkeypatch.setenv("HOME", str(tmp_path))
    found = find_data_root()
    assert (found.path, found.npz) == (SAMPLE, SAMPLE / "npz") and "the embedded sample" in found.why
    (tmp_path / "data" / "tpugraphs" / "tile").mkdir(parents=True)
    found = find_data_root()
    assert found.path == tmp_path / "data" / "tpugraphs" and "~/data/tpugraphs" in found.why

    def refuses(what: object) -> bool:
        if isinstance(what, int):  # a user id
            raise KeyError(what)
        if what.is_relative_to(places["kaggle"]):
            raise PermissionError(13, "Permission denied", str(what))
        return os.path.isdir(what)

    monkeypatch.delenv("HOME")
    monkeypatch.setattr(pwd, "getpwuid", refuses)
    monkeypatch.setattr(Path, "is_dir", refuses)
    assert find_data_root().path == SAMPLE


@pytest.mark.parametrize("place", ["named", "environment"])
def test_what_was_asked_for_and_holds_no_tree_is_refused(places, monkeypatch, place):
    """Although a later place would do."""
    (places["kaggle"] / "npz" / "layout").mkdir(parents=True)
    tree = places["home"]
    (tree / "npz_all" / "layout").mkdir(parents=True)
    (tree / "layout").write_text("")
    for path, said in (
        (tree, "is not a TpuGraphs root: found no layout/ or tile/"),
        (tree / "layout", "is not a folder"),
        (tree / ("x" * 300), "does not exist"),
    ):
        with pytest.raises(DataRootError) as caught:
            ask(place, path, monkeypatch)
        assert caught.value.got.startswith(f"{path} ({REASONS[place].removeprefix('named by ')}) {said}")
        assert f"pass --data-root or set {ENVIRONMENT}" in caught.value.do
