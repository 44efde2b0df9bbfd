"""Data root, collections and families: accepted names, files that are read or reported."""

import itertools
import os
import pwd
import shutil
from collections.abc import Iterable
from pathlib import Path
from unittest import mock

import pytest

from xlarank.data import collection as tree
from xlarank.data.collection import ENVIRONMENT, SAMPLE, Collection, GraphFile, find_data_root
from xlarank.data.errors import CollectionError, DataRootError
from xlarank.data.families import program_family


def plant(npz: Path, names: Iterable[str]) -> Path:
    """Make empty files below an ``npz`` folder; discovery never opens them."""
    for name in names:
        (npz / name).parent.mkdir(parents=True, exist_ok=True)
        (npz / name).touch()
    return npz


def test_collection_names_are_parsed_or_refused():
    for kind, name in (("layout", "layout:my-gpu:beam_search"), ("tile", "tile:a.b")):
        assert (Collection.parse(name).kind, str(Collection.parse(name))) == (kind, name)
    wrong = ": layout tile layout:xla tile:xla:random layout:xla:random:train tile: layout::random"
    wrong += " layout:xla: Layout:xla:random fusion:xla layout/xla/random"
    said = "not a collection name; expected layout:<source>:<search>"
    for name in ("", *wrong.split()):
        with pytest.raises(CollectionError, match=said):
            Collection.parse(name)
    file = GraphFile(Collection.parse("layout:xla:random"), "valid", Path("x/unet_3d.4x4.bf16.npz"))
    assert (file.name, file.family) == ("unet_3d.4x4.bf16", "unet"), "only .npz is cut off"


def test_invented_sources_and_searches_are_found_in_order(tmp_path):
    paths = ["layout/my-gpu/annealing/valid/b.npz", "layout/my-gpu/beam/train/a.npz"]
    for split in ("train", "valid", "test"):
        paths += [f"tile/fpga/{split}/{name}.npz" for name in "abc"]
    files = tree.discover(plant(tmp_path, reversed(paths)))
    assert [file.path for file in files] == [tmp_path / path for path in paths]
    second = (str(files[1].collection), files[1].split, files[1].name)
    assert second == ("layout:my-gpu:beam", "train", "a")
    assert [tree.collection_of(file.path) for file in files] == [of.collection for of in files]
    assert tree.collection_of(tmp_path / "layout/my-gpu/train/a.npz") is None
    with pytest.raises(DataRootError, match="here has no graph files; expected npz/layout/<sour"):
        tree.graph_files(tmp_path / "absent", [], where="here")


#: npz files that are not read.
WRONG = [
    "layout/xla/random/validation/a.npz",
    "layout/xla/train/a.npz",
    "tile/xla/random/train/a.npz",
    "tile/xla/test/a.NPZ",
]
#: Files that are no graphs; .partial- is left by a killed `atomic_write`, ._ by a Mac in archives.
OTHER = [
    f"layout/xla/random/train/{n}"
    for n in (".partial-k3j2.npz", "._a.npz", "a.npy", "a.npz.part", "b.txt")
]
OTHER += ["fusion/xla/train/a.npz", "elsewhere/a.npz", "tile/.cache/a.npz"]


def test_files_elsewhere_are_no_graphs_and_reported(tmp_path):
    plant(tmp_path, (*WRONG, *OTHER))
    assert tree.discover(tmp_path) == []
    skipped, _ = tree.skipped_files(tmp_path)
    assert skipped.keys() == {(tmp_path / path).parent for path in WRONG}
    expected = "1 file not read: expected tile/<source>/<split>/*.npz, <split> one of train, valid"
    assert skipped[tmp_path / "tile/xla/test"].startswith(expected)


def test_folders_that_cannot_be_listed_are_named(tmp_path, monkeypatch):
    """Permissions do not bind root, so the answer about a locked folder is simulated."""
    locked = plant(tmp_path, ["tile/xla/train/a.npz"]) / "tile" / "xla" / "train"
    scandir = os.scandir

    def denied(path):
        if Path(path) == locked:
            raise PermissionError(13, "Permission denied", str(locked))
        return scandir(path)

    monkeypatch.setattr("os.scandir", denied)
    assert tree.skipped_files(tmp_path) == ({}, {locked: "cannot be read (Permission denied)"})


def test_all_or_the_named_collections_are_chosen_and_unknown_ones_refused_with_a_hint():
    names = ("tile:cpu", "layout:cpu:random", "layout:cpu:default")
    tile, random, default = available = [*map(Collection.parse, names)]
    assert tree.choose([], available * 2) == [default, random, tile]
    chosen = tree.choose(["tile:cpu", "layout:cpu:default", "tile:cpu"], iter(available))
    assert chosen == [tile, default]
    assert tree.choose(["layout:*"], available) == [default, random]
    assert tree.choose(["tile:c?u"], available) == [tile]
    assert tree.choose_splits([]) == list(tree.SPLITS) == ["train", "valid", "test"]
    assert tree.choose_splits(["test", "train", "test"]) == ["train", "test"]
    with pytest.raises(CollectionError, match=r"'layout:xla:\*' is not in the data root"):
        tree.choose(["layout:xla:*"], available)
    names = "layout:cpu:default, layout:cpu:random, tile:cpu"
    hints = {"layout:cpu:randm": "did you mean layout:cpu:random", "zzz": "name one of these"}
    for name, hint in hints.items():
        message = f"^collection {name!r} is not in the workspace; expected {names}; {hint}"
        with pytest.raises(CollectionError, match=message):
            tree.choose(["tile:cpu", name], available, where="the workspace")
    with pytest.raises(CollectionError, match="the data root holds no collections"):
        tree.choose(["tile:cpu"], [])
    with pytest.raises(CollectionError, match="'holdout' is not a split; expected train, valid"):
        tree.choose_splits(["train", "holdout"])


@pytest.fixture
def roots(tmp_path, monkeypatch) -> list[tuple[str, Path]]:
    """Return the paths that precede the sample, with the reason of the choice; none exists yet."""
    monkeypatch.setattr(tree, "KAGGLE", tmp_path / "kaggle")
    monkeypatch.setattr(tree, "HOME", tmp_path / "home")
    return [
        ("named by `data_root`", tmp_path / "named"),
        (f"named by {ENVIRONMENT}", tmp_path / "environment"),
        ("Kaggle's mount", tmp_path / "kaggle"),
        ("Kaggle's mount", tmp_path / "competitions/kaggle"),
        ("Kaggle's mount", tmp_path / "datasets/b/copy"),
        ("the default place", tmp_path / "home"),
    ]


@pytest.mark.parametrize("below", ["", "npz", "npz_all/npz"])
def test_the_first_path_with_a_tree_is_the_data_root_and_says_why(
    roots, tmp_path, monkeypatch, below
):
    """The tree is the root, ``npz/`` or Kaggle's ``npz_all/npz/``; the nearest is taken."""
    (_, named), (_, environment), *_ = roots
    monkeypatch.setenv(ENVIRONMENT, str(environment))
    (tmp_path / "datasets/a/code").mkdir(parents=True)
    for _, path in roots:
        (path / below / "tile").mkdir(parents=True)
        (path / "npz_all" / "npz" / "layout").mkdir(parents=True, exist_ok=True)
    for reason, path in roots:
        data = find_data_root(named if path == named else None)
        assert (data.path, data.npz) == (path, path / below) and reason in data.why
        if path == environment:
            monkeypatch.delenv(ENVIRONMENT)
        shutil.rmtree(path)
    assert find_data_root().path == SAMPLE


def test_the_sample_is_the_last_data_root(roots, monkeypatch, tmp_path):
    """Also if permission is denied, and for a user id without a home, as in containers."""
    monkeypatch.setenv(ENVIRONMENT, "")
    monkeypatch.setattr(tree, "HOME", Path("~/data/tpugraphs"))
    monkeypatch.setenv("HOME", str(tmp_path))
    data = find_data_root()
    assert (data.path, data.npz) == (SAMPLE, SAMPLE / "npz") and "the embedded sample" in data.why
    (tmp_path / "data/tpugraphs/tile").mkdir(parents=True)
    assert find_data_root().path == tmp_path / "data/tpugraphs"
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)
    denied = mock.Mock(side_effect=PermissionError(13, "Permission denied"))  # unlike os.path.isdir
    monkeypatch.setattr(Path, "is_dir", denied)
    assert find_data_root().path == SAMPLE


def test_a_named_root_without_a_tree_is_refused_although_a_later_path_has_one(
    roots, monkeypatch, tmp_path
):
    (tmp_path / "kaggle/npz/layout").mkdir(parents=True)
    home = tmp_path / "home"
    (home / "npz_all/layout").mkdir(parents=True)
    (home / "layout").write_text("")
    for path, problem in (
        (home, "is not a TpuGraphs root: found no layout/ or tile/"),
        (home / "layout", "is not a folder"),
        (home / ("x" * 300), "does not exist"),
    ):
        monkeypatch.setenv(ENVIRONMENT, str(path))
        for origin, named in (("`data_root`", path), (ENVIRONMENT, None)):
            said = f"pass `data_root` or set {ENVIRONMENT}"
            with pytest.raises(DataRootError, match=said) as caught:
                find_data_root(named)
            assert caught.value.got.startswith(f"{path} ({origin}) {problem}")


#: Names of TpuGraphs files by family. The first rule: one program at another batch size, precision,
#: topology or in training and inference is one family; if a name is ambiguous, families are joined.
#: electra and TensorFlow Hub's experts/bert/* are BERT with other weights, so the same program.
REAL_FAMILIES = """
bert bert_pretraining.8x8.fp32.performance bert_en_cased_L-12_H-768_A-12_batch_size_16_test
bert electra_small_batch_size_64_test experts_wiki_books_batch_size_16_test mlperf_bert_batch_24_2x2
bert small_bert_bert_en_uncased_L-10_H-768_A-12_batch_size_32_test
bert tf2_bert_pretrain_dynamic_sequence_length
efficientnet efficientnet_b7_eval_batch_1
inception inception_v2_batch_128_train inception_v3_batch_128_train_426e203f19335d17
maskrcnn mask_rcnn_batch_4_bf16_img1408 mask_rcnn_resnet50.4x4.bf16 mlperf_maskrcnn_1_shard_batch_4
openai openai_v0_rnn_natural
resnet inference_mlperf_resnet_batch_16 mlperf_resnet_batch_128_1_shard resnet50.8x16.fp16
resnet resnet50_3d.2x2.bf16 resnet_v1_50_official_batch_128_bf16
retinanet retinanet.4x4.bf16.performance retinanet.2x2.fp32_-342c949e14733d96
ssd inference_mlperf_ssd_1200_batch_128 mlperf_ssd_2_shard_batch_8_fast_epoch
talking_heads talking-heads_large_batch_size_16_train
transformer mlperf_transformer transformer.4x4.fp32.performance transformer_tf2_dynamic_shape
unet unet3d unet_3d.4x4.bf16
brax_es brax_es
ncf ncf
trax_lsh_attention trax_lsh_attention
"""
#: The second rule: family__variant, with _train for the training step of the same program; the
#: third: a hash.
SPELLED = {
    name: name for name in ("__a", "_train__a", "_", ".npz", "7", "_8x8", "größe", "tf2_", "0" * 32)
}
SPELLED |= {"cnn__nchw_a": "cnn", "cnn_train__a": "cnn", "bert_like__x__y": "bert_like"}
SPELLED["resnet_bn__d"] = "resnet_bn"  # a family that is spelled out is kept


def test_names_and_their_families():
    """A tile kernel belongs to its program, which must be on one side of a fold."""
    expected = {}
    for line in REAL_FAMILIES.strip().splitlines():
        family, *names = line.split()
        expected |= dict.fromkeys(names, family)
    for kernel in ("", "_-3006cd0d02fa72c4", "_426e203f19335d17", "_-d35a43855de59c9"):
        assert {name: program_family(name + kernel) for name in expected} == expected
    assert {name: program_family(name) for name in SPELLED} == SPELLED
    settings = "_batch_32 _train .4x4.bf16 _bf16_batch_8 _v2_eval _batch_size_16_train".split()
    stems = ("lenet", "deepspeech", "wide_and_deep", "my-net")  # unknown programs at any setting
    for stem, setting, suite in itertools.product(stems, settings, ("", "mlperf_", "tf2_")):
        families = {program_family(suite + stem + setting), program_family(stem)}
        assert families == {stem.replace("-", "_")}
