"""Collections are what the folders say, never a list in the code; what is not read is named."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.graphs import layout_arrays, tile_arrays
from xlarank.data import collection as tree
from xlarank.data.collection import Collection, GraphFile
from xlarank.data.errors import CollectionError, DataRootError, GraphFileError
from xlarank.data.graph import GraphCounts, graph_size
from xlarank.data.root import SAMPLE


def plant(npz: Path, names: Iterable[str]) -> Path:
    """Empty files at these places below an ``npz`` folder: discovery never opens them."""
    for name in names:
        (npz / name).parent.mkdir(parents=True, exist_ok=True)
        (npz / name).touch()
    return npz


def test_names_are_parsed_or_refused():
    for name in ("layout:my-gpu:beam_search", "tile:a.b"):
        assert (Collection.parse(name).kind, str(Collection.parse(name))) == (name.split(":")[0], name)
    wrong = ": layout tile layout:xla tile:xla:random layout:xla:random:train tile: layout::random layout:xla:"
    for name in ("", *f"{wrong} Layout:xla:random fusion:xla layout/xla/random".split()):
        with pytest.raises(CollectionError, match=r"not a collection name; expected layout:<source>:<search>"):
            Collection.parse(name)
    file = GraphFile(Collection.parse("layout:xla:random"), "valid", Path("x/unet_3d.4x4.bf16.npz"))
    assert (file.name, file.family) == ("unet_3d.4x4.bf16", "unet"), "only .npz is cut off"


def test_invented_sources_and_searches_are_found_in_order(tmp_path):
    places = [
        "layout/my-gpu/annealing/valid/b.npz",
        "layout/my-gpu/beam/train/a.npz",
        *(f"tile/fpga/{split}/{name}.npz" for split in ("train", "valid", "test") for name in "abc"),
    ]
    found = tree.discover(plant(tmp_path, reversed(places)))
    assert [file.path for file in found] == [tmp_path / place for place in places]
    assert (str(found[1].collection), found[1].split, found[1].name) == ("layout:my-gpu:beam", "train", "a")
    with pytest.raises(DataRootError, match=r"here has no graph files; expected npz/layout/<source>"):
        tree.graph_files(tmp_path / "absent", [], where="here")


#: Graphs that are not read, and why.
WRONG = {
    "layout/xla/random/validation/a.npz": "validation is not a split (train, valid, test); rename the folder",
    "layout/xla/random/Train/a.npz": "rename the folder to train",
    "layout/xla/random/odd/a.npz": "odd is not a split (train, valid, test)",
    "layout/xla/train/a.npz": "expected layout/<source>/<search>/<split>/*.npz",
    "tile/xla/random/train/a.npz": "expected tile/<source>/<split>/*.npz",
    "tile/a.npz": "expected tile/<source>/<split>/*.npz",
    "tile/xla/test/a.NPZ": "1 file not read: not called .npz in small letters",
    "tile/xla/train/deeper/a.npz": "expected tile/<source>/<split>/*.npz",
}
#: Files that are no graphs; .partial- is left by a killed `atomic_write`, ._ by a Mac in archives.
OTHER = [f"layout/xla/random/train/{n}" for n in (".partial-k3j2.npz", "._a.npz", "a.npy", "a.npz.part", "b.txt")]
OTHER += ["fusion/xla/train/a.npz", "elsewhere/a.npz", "tile/.cache/a.npz"]


def test_what_lies_elsewhere_is_no_graph_and_named(tmp_path, monkeypatch):
    """Permission bits do not bind root, so the system's answer about a locked folder is made up."""
    plant(tmp_path, (*WRONG, *OTHER))
    assert tree.discover(tmp_path) == []
    (tmp_path / "tile" / "xla" / "again").symlink_to(tmp_path / "tile")
    skipped = {str(path.relative_to(tmp_path)): why for path, why in tree.skipped_files(tmp_path)[0].items()}
    assert {where for where in skipped if "again" not in where} == {os.path.dirname(place) for place in WRONG}
    assert {place: why for place, why in WRONG.items() if why not in skipped[os.path.dirname(place)]} == {}
    assert 0 < max(where.count("again") for where in skipped) < 8, "links in a circle come to an end"
    locked, scandir = plant(tmp_path / "b", ["tile/xla/train/a.npz"]) / "tile" / "xla" / "train", os.scandir

    def refuses(path: Path):
        if Path(path) == locked:
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr("os.scandir", refuses)
    assert tree.skipped_files(tmp_path / "b") == ({}, {locked: "cannot be read (Permission denied)"})


def test_all_are_chosen_or_those_named_and_others_refused_with_the_close_ones():
    available = [Collection.parse(name) for name in ("tile:cpu", "layout:cpu:random", "layout:cpu:default")]
    assert [*map(str, tree.choose([], available * 2))] == ["layout:cpu:default", "layout:cpu:random", "tile:cpu"]
    asked = ["tile:cpu", "layout:cpu:default", "tile:cpu"]
    assert [*map(str, tree.choose(asked, iter(available)))] == ["tile:cpu", "layout:cpu:default"]
    assert tree.choose_splits([]) == list(tree.SPLITS) == ["train", "valid", "test"]
    assert tree.choose_splits(["test", "train", "test"]) == ["train", "test"]
    for name, do in (("layout:cpu:randm", "did you mean layout:cpu:random"), ("zzz", "name one of these")):
        with pytest.raises(CollectionError) as caught:
            tree.choose(["tile:cpu", name], available, where="the workspace")
        assert caught.value.got == f"collection {name!r} is not in the workspace"
        assert caught.value.expected == "layout:cpu:default, layout:cpu:random, tile:cpu"
        assert do in caught.value.do
    with pytest.raises(CollectionError, match="the data root holds no collections"):
        tree.choose(["tile:cpu"], [])
    with pytest.raises(CollectionError, match="'holdout' is not a split; expected train, valid, test"):
        tree.choose_splits(["train", "holdout"])


def test_sizes_stand_in_headers_and_a_survey_goes_on_after_a_broken_file(graph_file, tmp_path):
    layout, tile = graph_file(layout_arrays(), "a"), graph_file(tile_arrays(), "b")
    assert (graph_size(layout, "layout"), graph_size(tile, "tile")) == (GraphCounts(6, 5, 2), GraphCounts(5, 4))
    with pytest.raises(GraphFileError, match=r"^b\.npz: array node_config_ids is missing"):
        graph_size(tile, "layout")
    shutil.copytree(SAMPLE / "npz" / "tile" / "cpu", tmp_path / "tile" / "cpu")
    (tmp_path / "tile" / "cpu" / "test" / "bad.npz").write_bytes(b"no zip")
    (size,) = tree.survey(tree.graph_files(tmp_path, [], where="here"))
    assert (str(size.collection), size.families) == ("tile:cpu", 8)
    assert [len(size.graphs[split]) for split in ("train", "valid", "test")] == [30, 12, 15]
    assert (size.rows("train"), size.rows("train", 10), size.rows("absent")) == (1920, 300, 0)
