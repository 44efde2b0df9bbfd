"""TpuGraphs' protobufs as its npz files: configurations, runtimes and normalizers, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.data.hlo.programs import kernels, tuning_data
from tests.graphs import LAYOUT_KEYS, TILE_KEYS
from xlarank.data.errors import HloError
from xlarank.data.hlo.encoding import Arrays, encode_program
from xlarank.data.hlo.messages import ModuleTuningData, TuningData
from xlarank.data.hlo.tuning import kernel_name, layout_arrays, tile_arrays


def layouts() -> ModuleTuningData:
    """Four runs of two nodes; the second failed and the third has no time."""
    data = tuning_data()
    del data.runs[:]
    for time, error in ((50, False), (40, True), (0, False), (60, False)):
        run = data.runs.add(error=error, is_default=time == 50)
        run.profile.compute_time_ns = time
        dot, reshape = run.module_config.layout_config.nodes.add(), run.module_config.layout_config.nodes.add()
        dot.tensors.add(dims=[0, 1])
        dot.tensors.add()
        dot.tensors.add(dims=[1])
        reshape.tensors.add(dims=[2, 0, 1])
    return data


def test_usable_runs_become_configurations_in_their_order() -> None:
    arrays = layout_arrays(layouts())
    assert set(arrays) == set(LAYOUT_KEYS)
    assert arrays["config_runtime"].tolist() == [50, 60]
    none = [-1] * 6
    dot = [0, 1, -1, -1, -1, -1, *none, 1, -1, -1, -1, -1, -1]
    assert arrays["node_config_feat"].tolist() == [[dot, [2, 0, 1, -1, -1, -1, *none, *none]]] * 2
    assert arrays["node_config_ids"].tolist() == [4, 5]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda data: data.config_index_to_node.append(9), "names node 9; expected 0 to 8"),
        (lambda data: data.runs[3].module_config.layout_config.nodes.pop(), "run 1 configures 1 nodes; expected 2"),
        (lambda data: data.runs[0].module_config.layout_config.nodes[0].tensors.add(), "4 tensors"),
        (lambda data: [data.runs.pop(at) for at in (3, 0)], "none of 2 runs"),
    ],
)
def test_layouts_that_do_not_fit_the_program_are_refused(change: Callable[[Any], Any], words: str) -> None:
    data = layouts()
    change(data)
    with pytest.raises(HloError, match=words):
        layout_arrays(data)


def test_a_kernel_s_columns_and_normalizer() -> None:
    kernel = kernels().modules[0]
    kernel.runs[0].profile.compute_time_ns = 300
    kernel.runs[0].is_default = False
    default, unmeasured = kernel.runs.add(is_default=True), kernel.runs.add()
    default.op_config.tile_size_config.output_bounds.extend([2, 3])
    default.op_config.tile_size_config.kernel_bounds.extend([1, 2, 3, 4, 5, 6, 7])
    default.profile.compute_time_ns = 100
    unmeasured.CopyFrom(default)
    unmeasured.profile.compute_time_ns = 1
    arrays = tile_arrays(kernel)
    assert set(arrays) == set(TILE_KEYS)
    assert arrays["config_runtime"].tolist() == [300, 100]
    assert arrays["config_runtime_normalizers"].tolist() == [100, 100]
    nothing = [0] * 8  # here the product over no bounds is 0
    assert arrays["config_feat"].tolist() == [
        [*nothing, 4, 0, 0, 0, 0, 0, 4, 4, *nothing],
        [1, 2, 3, 4, 5, 6, 28, 5040, 2, 3, 0, 0, 0, 0, 5, 6, *nothing],
    ]


def test_kernels_without_a_measured_default_or_tile_sizes_are_refused() -> None:
    unmeasured, without, large = (kernels().modules[0] for _ in range(3))
    without.runs.add()
    large.runs[0].profile.compute_time_ns = 100
    large.runs[0].op_config.tile_size_config.output_bounds.extend([2**40, 2**40])
    said = "no measured default", "without tile sizes", r"output_bounds .* overflows"
    for kernel, words in zip((unmeasured, without, large), said, strict=True):
        with pytest.raises(HloError, match=words):
            tile_arrays(kernel)


def check_bits(ours: Arrays, theirs: Any) -> None:
    for key, array in ours.items():
        assert (array.dtype, array.shape) == (theirs[key].dtype, theirs[key].shape), key
        assert array.tobytes() == theirs[key].tobytes(), key


def test_the_arrays_of_real_kernels_and_of_a_real_program_are_google_s_bit_for_bit(real_data: Path) -> None:
    """Of 754 runs of 15 kernels two failed; the program's protobuf has 112 of 1965 configurations."""
    data = TuningData.FromString((real_data / "pb" / "op_tuning_data.pb").read_bytes())
    configs = 0
    for kernel in data.modules:
        ours, name = tile_arrays(kernel), kernel_name("alexnet_train_batch_32", kernel.fingerprint)
        with np.load(real_data / "npz" / "tile" / "xla" / "train" / f"{name}.npz") as theirs:
            assert set(ours) == set(theirs.files)
            check_bits(ours, theirs)
        configs += len(ours["config_runtime"])
    assert configs == 752
    data = ModuleTuningData.FromString((real_data / "pb" / "module_tuning_data_layout.pb").read_bytes())
    ours = layout_arrays(data)
    with np.load(real_data / "npz" / "layout" / "xla" / "default" / "valid" / "unet_3d.4x4.bf16.npz") as theirs:
        check_bits(encode_program(data.module), theirs)
        check_bits(encode_program(data.module), ours)
        assert set(ours) == set(theirs.files)
        mine, there = (
            [(row.tobytes(), int(time)) for row, time in zip(*pair, strict=True)]
            for pair in ((one["node_config_feat"], one["config_runtime"]) for one in (ours, theirs))
        )
    assert len(mine) == 112 and set(mine) <= set(there)
