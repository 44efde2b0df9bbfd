"""Collected graphs that join the sample."""

import numpy as np

from benchmarks.adopt import adopt
from tests.graphs import save_npz
from xlarank.data.collection import SAMPLE


def test_layout_graphs_are_adopted_or_left_out_with_a_reason(tmp_path):
    collected = tmp_path / "collected"
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
        save_npz(collected / f"npz/layout/{name}.npz", mixer | arrays)
    taken, left_out = adopt(collected, sample, 8)
    assert sorted(taken) == [f"layout:tpu-estimate:{name} new__a" for name in ("evolve", "random")]
    assert left_out == {
        "layout:tpu-estimate:evolve level__a": "7 distinct labels",
        "layout:tpu-estimate:random gru__a": "its family is reserved",
        "layout:cpu:random measured__a": "not estimated by the TPU's compiler",
    }
    files = sorted(sample.rglob("*.npz"))
    folder = sample / "npz/layout/tpu-estimate"
    assert files == [folder / f"{name}/train/new__a.npz" for name in ("default", "random")]
    with np.load(files[1]) as arrays:
        assert set(arrays) == set(mixer), "cycles of operations are left out"
    assert adopt(collected, sample, 8)[0] == [], "graphs of the sample stay"


def test_a_kernel_is_adopted_once(tmp_path):
    folder = tmp_path / "collected"
    sample = tmp_path / "sample"
    kernel = min(SAMPLE.glob("npz/tile/tpu-estimate/train/*.npz"))
    first = "one__a_0123456789ab"
    for name in (first, "two__a_0123456789ab", "gru__a_aaaaaaaaaaaa", "alexnet__a_bbbbbbbbbbbb"):
        save_npz(folder / f"npz/tile/tpu-estimate/train/{name}.npz", np.load(kernel))
    taken, left_out = adopt(folder, sample, 8)
    assert taken == [f"tile:tpu-estimate {first}"]
    assert [*left_out.values()] == [*["its family is reserved"] * 2, "it is there"]
