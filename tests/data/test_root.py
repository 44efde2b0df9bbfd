"""Where the data is looked for: five places in a fixed order, three shapes of a root."""

from __future__ import annotations

import os
import pwd
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


@pytest.mark.parametrize("first", range(len(PLACES)))
def test_the_first_place_that_holds_a_tree_wins(places, monkeypatch, first):
    """All places from ``first`` on hold a tree, those before it do not."""
    for name in PLACES[first:]:
        tree(places[name])
    found = ask(places, monkeypatch)
    assert found.path == places[PLACES[first]]
    assert found.npz == found.path / "npz"


def test_each_place_says_why_it_won(places, monkeypatch):
    reasons = ["named by --data-root", f"named by {ENVIRONMENT}", "Kaggle's mount", "the default place"]
    for name in PLACES:
        tree(places[name])
    for name, reason in zip(PLACES, reasons, strict=True):
        assert reason in ask(places, monkeypatch).why
        (places[name] / "npz" / "layout").rmdir()
        (places[name] / "npz").rmdir()
        places[name].rmdir()
        monkeypatch.delenv(ENVIRONMENT, raising=False)


def test_the_sample_is_the_last_resort(places):
    found = find_data_root()
    assert (found.path, found.npz) == (SAMPLE, SAMPLE / "npz")
    assert "the embedded sample" in found.why
    assert {str(file.collection) for file in discover(found.npz)} == {
        "layout:cpu:default", "layout:cpu:random", "layout:tpu-estimate:default", "layout:tpu-estimate:random",
        "tile:cpu",
    }  # fmt: skip


def test_an_empty_variable_is_no_place(places, monkeypatch):
    monkeypatch.setenv(ENVIRONMENT, "")
    assert find_data_root().path == SAMPLE


def test_a_place_nobody_asked_for_is_passed_over_when_it_holds_nothing(places):
    places["kaggle"].mkdir()
    places["home"].write_text("a file, not a folder")
    assert find_data_root().path == SAMPLE


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


def test_the_constants():
    """Part of the command line's contract, so spelled out here."""
    assert ENVIRONMENT == "XLARANK_DATA"
    source = Path(root.__file__).read_text(encoding="utf-8")
    assert 'Path("/kaggle/input/predict-ai-model-runtime")' in source
    assert 'Path("~/data/tpugraphs")' in source
    assert SAMPLE == Path(root.__file__).parent / "sample"


# Shapes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("below", SHAPES)
@pytest.mark.parametrize("kind", ["layout", "tile"])
@pytest.mark.parametrize("place", PLACES)
def test_three_shapes_of_a_root_are_accepted(places, monkeypatch, place, kind, below):
    """The root itself, ``npz/`` below it and Kaggle's ``npz_all/npz/``; one kind is enough."""
    tree(places[place], below, kind)
    found = ask(places, monkeypatch)
    assert (found.path, found.npz) == (places[place], places[place] / below)


def test_the_nearest_tree_is_taken(tmp_path):
    for below in SHAPES:
        tree(tmp_path, below)
    assert find_data_root(tmp_path).npz == tmp_path


# Refusals -----------------------------------------------------------------------------------------------


def refused(places: dict[str, Path], monkeypatch: pytest.MonkeyPatch, place: str, path: Path | str) -> str:
    """The refusal of a place that was asked for, although the later ones would do."""
    tree(places["kaggle"])
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
def test_what_was_asked_for_and_is_missing_is_refused(places, monkeypatch, place):
    assert "does not exist" in refused(places, monkeypatch, place, places["home"])


@pytest.mark.parametrize("place", ["named", "environment"])
def test_what_was_asked_for_and_is_a_file_is_refused(places, monkeypatch, place):
    places["home"].write_text("")
    assert "is not a folder" in refused(places, monkeypatch, place, places["home"])


@pytest.mark.parametrize("place", ["named", "environment"])
@pytest.mark.parametrize("below", ["", "npz", "npz_all/npz", "npz_all/layout", "data/npz/layout"])
def test_what_was_asked_for_and_holds_no_tree_is_refused(places, monkeypatch, place, below):
    (places["home"] / below).mkdir(parents=True)
    message = refused(places, monkeypatch, place, places["home"])
    assert "is not a TpuGraphs root: found no layout/ or tile/" in message


def test_a_file_called_layout_is_no_tree(places, monkeypatch):
    places["home"].mkdir()
    (places["home"] / "layout").write_text("")
    assert "not a TpuGraphs root" in refused(places, monkeypatch, "named", places["home"])


@pytest.mark.parametrize("place", ["named", "environment"])
def test_a_name_that_no_file_system_holds_is_refused(places, monkeypatch, place):
    refused(places, monkeypatch, place, places["home"].parent / ("x" * 300))


def test_a_place_that_may_not_be_looked_into_is_passed_over(places, monkeypatch):
    """Permissions do not bind root, so the refusal of the system is played."""

    def is_dir(self: Path) -> bool:
        if self.is_relative_to(places["kaggle"]):
            raise PermissionError(13, "Permission denied", str(self))
        return os.path.isdir(self)

    monkeypatch.setattr(Path, "is_dir", is_dir)
    assert find_data_root().path == SAMPLE
