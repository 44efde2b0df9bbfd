"""Which collected graphs join the sample, and a short run of the fuzzer."""

import numpy as np
import pytest

from benchmarks.adopt import adopt
from benchmarks.fuzz_models import fuzz
from xlarank.data.collection import SAMPLE

_FILE = SAMPLE / "npz" / "layout" / "tpu-estimate" / "random" / "train" / "mixer__a.npz"


def _collected(folder, search, name, source="tpu-estimate", **more):
    place = folder / "npz" / "layout" / source / search / "train" / f"{name}.npz"
    place.parent.mkdir(parents=True, exist_ok=True)
    with np.load(_FILE) as arrays:
        np.savez(place, **{**arrays, **more})


def test_what_is_taken(tmp_path):
    folder, sample = tmp_path / "collected", tmp_path / "sample"
    configs = len(np.load(_FILE)["config_runtime"])
    _collected(folder, "random", "new__a", cycles_start=np.arange(3))
    _collected(folder, "evolve", "new__a")
    _collected(folder, "evolve", "level__a", config_runtime=np.arange(configs, dtype=np.int64) // 6 + 1)
    _collected(folder, "random", "gru__a")
    _collected(folder, "random", "measured__a", "cpu")
    taken, left_out = adopt(folder, sample, 8)
    assert sorted(taken) == [f"layout:tpu-estimate:{search} new__a" for search in ("evolve", "random")]
    assert left_out == {
        "layout:tpu-estimate:evolve level__a": "7 distinct labels",
        "layout:tpu-estimate:random gru__a": "its family is reserved",
        "layout:cpu:random measured__a": "not estimated by the TPU's compiler",
    }
    files = sorted(str(path.relative_to(sample)) for path in sample.rglob("*.npz"))
    assert files == [f"npz/layout/tpu-estimate/{search}/train/new__a.npz" for search in ("default", "random")]
    with np.load(sample / files[1]) as arrays, np.load(_FILE) as given:
        assert set(arrays) == set(given), "cycles of operations stay out"
    assert adopt(folder, sample, 8)[0] == [], "what is there stays"


def test_a_kernel_is_taken_once(tmp_path):
    folder, sample = tmp_path / "collected", tmp_path / "sample"
    kernel = sorted(SAMPLE.glob("npz/tile/tpu-estimate/train/*.npz"))[0]
    names = ("one__a_0123456789ab", "two__a_0123456789ab", "gru__a_aaaaaaaaaaaa", "alexnet__a_bbbbbbbbbbbb")
    for name in names:
        place = folder / "npz" / "tile" / "tpu-estimate" / "train" / f"{name}.npz"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(kernel.read_bytes())
    taken, left_out = adopt(folder, sample, 8)
    assert taken == [f"tile:tpu-estimate {names[0]}"]
    assert [*left_out.values()] == ["its family is reserved", "its family is reserved", "it is there"]


@pytest.mark.slow
def test_no_edited_booster_ends_the_process(tmp_path):
    for model, counts in fuzz(tmp_path, 120).items():
        assert set(counts) <= {"refused", "ranked", "no numbers"}, (model, counts)
        assert counts["refused"] > 24, "most edits are seen"
