"""Collected graphs that join the sample, and a short run of the fuzzer of models."""

import numpy as np
import pytest

from benchmarks.adopt import adopt
from benchmarks.fuzz_models import fuzz
from tests.graphs import save_npz
from xlarank.data.collection import SAMPLE


def test_layout_graphs_are_adopted_or_left_out_with_a_reason(tmp_path):
    folder = tmp_path / "collected"
    sample = tmp_path / "sample"
    mixer = dict(np.load(SAMPLE / "npz/layout/tpu-estimate/random/train/mixer__a.npz"))
    level = np.arange(len(mixer["config_runtime"])) // 6 + 1
    for name, arrays in (
        ("tpu-estimate/random/train/new__a", {"cycles_start": np.arange(3)}),
        ("tpu-estimate/evolve/train/new__a", {}),
        ("tpu-estimate/evolve/train/level__a", {"config_runtime": level}),
        ("tpu-estimate/random/train/gru__a", {}),
        ("cpu/random/train/measured__a", {}),
    ):
        save_npz(folder / f"npz/layout/{name}.npz", mixer | arrays)
    taken, left_out = adopt(folder, sample, 8)
    assert sorted(taken) == [
        f"layout:tpu-estimate:{search} new__a" for search in ("evolve", "random")
    ]
    assert left_out == {
        "layout:tpu-estimate:evolve level__a": "7 distinct labels",
        "layout:tpu-estimate:random gru__a": "its family is reserved",
        "layout:cpu:random measured__a": "not estimated by the TPU's compiler",
    }
    files = sorted(str(path.relative_to(sample)) for path in sample.rglob("*.npz"))
    assert files == [
        f"npz/layout/tpu-estimate/{search}/train/new__a.npz" for search in ("default", "random")
    ]
    with np.load(sample / files[1]) as arrays:
        assert set(arrays) == set(mixer), "cycles of operations are left out"
    assert adopt(folder, sample, 8)[0] == [], "graphs of the sample stay"


def test_a_kernel_is_adopted_once(tmp_path):
    folder = tmp_path / "collected"
    sample = tmp_path / "sample"
    kernel = min(SAMPLE.glob("npz/tile/tpu-estimate/train/*.npz"))
    names = (
        "one__a_0123456789ab",
        "two__a_0123456789ab",
        "gru__a_aaaaaaaaaaaa",
        "alexnet__a_bbbbbbbbbbbb",
    )
    for name in names:
        save_npz(folder / f"npz/tile/tpu-estimate/train/{name}.npz", np.load(kernel))
    taken, left_out = adopt(folder, sample, 8)
    assert taken == [f"tile:tpu-estimate {names[0]}"]
    assert [*left_out.values()] == [
        "its family is reserved",
        "its family is reserved",
        "it is there",
    ]


@pytest.mark.slow
def test_no_edited_booster_ends_the_process(tmp_path):
    for model, counts in fuzz(tmp_path, 120).items():
        assert set(counts) <= {"refused", "ranked", "no numbers"}, (model, counts)
        assert counts["refused"] > 24, "most edits are seen"
