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


@pytest.mark.parametrize(
    ("name", "parts", "kind"),
    [
        ("layout:xla:random", ("layout", "xla", "random"), "layout"),
        ("layout:nlp:default", ("layout", "nlp", "default"), "layout"),
        ("tile:xla", ("tile", "xla"), "tile"),
        ("layout:my-gpu:beam_search", ("layout", "my-gpu", "beam_search"), "layout"),
        ("tile:a.b", ("tile", "a.b"), "tile"),
    ],
)
def test_parse_and_print(name, parts, kind):
    collection = Collection.parse(name)
    assert (collection.parts, collection.kind, str(collection)) == (parts, kind, name)


@pytest.mark.parametrize(
    "name",
    ["", ":", "layout", "tile", "layout:xla", "tile:xla:random", "layout:xla:random:train", "tile:",
     "layout::random", "layout:xla:", "Layout:xla:random", "fusion:xla", "layout/xla/random"],
)  # fmt: skip
def test_what_is_no_collection_name_is_refused(name):
    with pytest.raises(
        CollectionError, match=r"not a collection name; expected layout:<source>:<search>"
    ) as caught:
        Collection.parse(name)
    assert repr(name) in str(caught.value)


def test_collections_compare_by_their_parts():
    assert Collection.parse("tile:xla") == Collection(("tile", "xla"))
    assert len({Collection.parse("tile:xla"), Collection.parse("tile:xla")}) == 1
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
    assert [file.path for file in found] == [
        npz / "layout/my-gpu/annealing/valid/b.npz",
        npz / "layout/my-gpu/beam/train/a.npz",
        npz / "layout/xla/random/test/c.npz",
        npz / "tile/fpga/train/d.npz",
    ]


def test_order_is_collection_then_split_then_name(tmp_path):
    npz = plant(tmp_path, *(f"tile/x/{split}/{name}.npz" for split in ("test", "valid", "train") for name in "cab"))
    assert [(file.split, file.name) for file in discover(npz)] == [
        (split, name) for split in ("train", "valid", "test") for name in "abc"
    ]


@pytest.mark.parametrize(
    "name",
    [
        "layout/xla/random/holdout/a.npz",  # no such split
        "layout/xla/random/a.npz",
        "layout/xla/random/train/deep/a.npz",
        "layout/xla/train/a.npz",  # a layout collection names its search
        "tile/xla/random/train/a.npz",
        "fusion/xla/train/a.npz",
        "layout/xla/random/train/a.npy",
        "layout/xla/random/train/a.npz.part",
        "layout/xla/random/train/readme.txt",
    ],
)
def test_what_lies_elsewhere_is_no_graph(tmp_path, name):
    assert discover(plant(tmp_path, name)) == []


@pytest.mark.parametrize("name", [".partial-k3j2.npz", "._alexnet.npz"])
def test_hidden_files_are_no_graphs(tmp_path, name):
    """`atomic_write` leaves a .partial- file when it is killed, a Mac leaves ._ files in archives."""
    assert discover(plant(tmp_path, f"tile/xla/train/{name}")) == []


def test_an_empty_tree_holds_nothing(tmp_path):
    (tmp_path / "layout" / "xla" / "random" / "train").mkdir(parents=True)
    assert discover(tmp_path) == []
    assert discover(tmp_path / "absent") == []


def test_only_npz_is_cut_from_a_name():
    file = GraphFile(Collection.parse("layout:xla:random"), "valid", Path("x/unet_3d.4x4.bf16.npz"))
    assert (file.name, file.family) == ("unet_3d.4x4.bf16", "unet")


# Choosing -----------------------------------------------------------------------------------------------

AVAILABLE = [Collection.parse(name) for name in ("tile:cpu", "layout:cpu:random", "layout:cpu:default")]


def names(collections: list[Collection]) -> list[str]:
    return [str(collection) for collection in collections]


def test_all_are_chosen_when_none_is_named():
    assert names(choose([], AVAILABLE * 2)) == ["layout:cpu:default", "layout:cpu:random", "tile:cpu"]


def test_the_named_are_chosen_once_in_the_order_asked():
    asked = ["tile:cpu", "layout:cpu:default", "tile:cpu"]
    assert names(choose(asked, iter(AVAILABLE))) == ["tile:cpu", "layout:cpu:default"]


@pytest.mark.parametrize(
    ("asked", "close"),
    [
        ("layout:cpu:randm", "layout:cpu:random"),
        ("layout:xla:default", "layout:cpu:default"),
        ("tile:gpu", "tile:cpu"),
        ("layout:cpu", "layout:cpu:random"),
    ],
)
def test_a_misspelt_name_is_refused_with_the_close_ones(asked, close):
    with pytest.raises(CollectionError) as caught:
        choose(["tile:cpu", asked], AVAILABLE, where="the workspace")
    error = caught.value
    assert error.got == f"collection {asked!r} is not in the workspace"
    assert error.expected == "layout:cpu:default, layout:cpu:random, tile:cpu"
    assert error.do.startswith("did you mean ") and close in error.do


def test_a_name_like_none_is_refused_with_all_of_them():
    with pytest.raises(CollectionError, match="tile:cpu; name one of these"):
        choose(["zzz"], AVAILABLE)


@pytest.mark.parametrize("asked", [[], ["tile:cpu"]])
def test_nothing_to_choose_from_is_refused(asked):
    with pytest.raises(CollectionError, match="the data root holds no collections"):
        choose(asked, [])


def test_splits():
    assert choose_splits([]) == list(SPLITS) == ["train", "valid", "test"]
    assert choose_splits(["test", "train", "test"]) == ["train", "test"]
    with pytest.raises(CollectionError, match="'holdout' is not a split; expected train, valid, test"):
        choose_splits(["train", "holdout"])
