"""Collections are what the folders say, never a list in the code."""

from __future__ import annotations

from pathlib import Path

import pytest

from xlarank.data.collection import SPLITS, Collection, GraphFile, choose, choose_splits, discover
from xlarank.data.errors import CollectionError


def plant(npz: Path, *names: str) -> Path:
    """Empty files at these places below an ``npz`` folder: discovery never opens them."""
    for name in names:
        path = npz / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return npz


# Names --------------------------------------------------------------------------------------------------


def test_names_are_parsed_or_refused():
    for name in ("layout:xla:random", "layout:my-gpu:beam_search", "tile:xla", "tile:a.b"):
        collection = Collection.parse(name)
        assert (":".join(collection.parts), collection.kind, str(collection)) == (name, name.split(":")[0], name)
    wrong = ": layout tile layout:xla tile:xla:random layout:xla:random:train tile: layout::random layout:xla:"
    for name in ("", *f"{wrong} Layout:xla:random fusion:xla layout/xla/random".split()):
        with pytest.raises(CollectionError, match=r"not a collection name; expected layout:<source>:<search>"):
            Collection.parse(name)
    assert Collection.parse("layout:a:z") < Collection.parse("layout:b:a") < Collection.parse("tile:a")


# Discovery ----------------------------------------------------------------------------------------------


def test_invented_sources_and_searches_are_found(tmp_path):
    npz = plant(
        tmp_path,
        "layout/my-gpu/beam/train/a.npz",
        "layout/my-gpu/annealing/valid/b.npz",
        "layout/xla/random/test/c.npz",
        "tile/fpga/train/d.npz",
    )
    found = discover(npz)
    assert [(str(file.collection), file.split, file.name) for file in found] == [
        ("layout:my-gpu:annealing", "valid", "b"),
        ("layout:my-gpu:beam", "train", "a"),
        ("layout:xla:random", "test", "c"),
        ("tile:fpga", "train", "d"),
    ]
    assert found[0].path == npz / "layout/my-gpu/annealing/valid/b.npz"
    splits = ("test", "valid", "train")
    npz = plant(tmp_path / "order", *(f"tile/x/{split}/{name}.npz" for split in splits for name in "cab"))
    expected = [(split, name) for split in reversed(splits) for name in "abc"]
    assert [(file.split, file.name) for file in discover(npz)] == expected


def test_what_lies_elsewhere_is_no_graph(tmp_path):
    plant(
        tmp_path,
        "layout/xla/random/holdout/a.npz",  # no such split
        "layout/xla/random/a.npz",
        "layout/xla/random/train/deep/a.npz",
        "layout/xla/train/a.npz",  # a layout collection names its search
        "tile/xla/random/train/a.npz",
        "fusion/xla/train/a.npz",
        "layout/xla/random/train/a.npy",
        "layout/xla/random/train/a.npz.part",
        "layout/xla/random/train/readme.txt",
        "tile/xla/train/.partial-k3j2.npz",  # left by a killed `atomic_write`
        "tile/xla/train/._alexnet.npz",  # left by a Mac in archives
    )
    assert discover(tmp_path) == []
    assert discover(tmp_path / "absent") == []


def test_only_npz_is_cut_from_a_name():
    file = GraphFile(Collection.parse("layout:xla:random"), "valid", Path("x/unet_3d.4x4.bf16.npz"))
    assert (file.name, file.family) == ("unet_3d.4x4.bf16", "unet")


# Choosing -----------------------------------------------------------------------------------------------

AVAILABLE = [Collection.parse(name) for name in ("tile:cpu", "layout:cpu:random", "layout:cpu:default")]


def names(collections: list[Collection]) -> list[str]:
    return [str(collection) for collection in collections]


def test_all_are_chosen_or_those_named_once_in_the_order_asked():
    assert names(choose([], AVAILABLE * 2)) == ["layout:cpu:default", "layout:cpu:random", "tile:cpu"]
    asked = ["tile:cpu", "layout:cpu:default", "tile:cpu"]
    assert names(choose(asked, iter(AVAILABLE))) == ["tile:cpu", "layout:cpu:default"]


def test_a_name_that_is_not_there_is_refused_with_the_close_ones():
    for asked, do in (
        ("layout:cpu:randm", "layout:cpu:random"),
        ("layout:xla:default", "layout:cpu:default"),
        ("tile:gpu", "tile:cpu"),
        ("zzz", "name one of these"),
    ):
        with pytest.raises(CollectionError) as caught:
            choose(["tile:cpu", asked], AVAILABLE, where="the workspace")
        assert caught.value.got == f"collection {asked!r} is not in the workspace"
        assert caught.value.expected == "layout:cpu:default, layout:cpu:random, tile:cpu"
        assert do in caught.value.do
    for some in ([], ["tile:cpu"]):
        with pytest.raises(CollectionError, match="the data root holds no collections"):
            choose(some, [])


def test_splits():
    assert choose_splits([]) == list(SPLITS) == ["train", "valid", "test"]
    assert choose_splits(["test", "train", "test"]) == ["train", "test"]
    with pytest.raises(CollectionError, match="'holdout' is not a split; expected train, valid, test"):
        choose_splits(["train", "holdout"])
