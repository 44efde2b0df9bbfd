"""Arrays of npz files encoded from programs, kernels and TpuGraphs' protobufs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.data.hlo.programs import instruction, kernels, matmul_module, tuning_data
from tests.graphs import DOT_KEYS, LAYOUT_KEYS, TILE_KEYS
from xlarank.data.errors import HloError
from xlarank.data.hlo.encoding import (
    Arrays,
    encode_program,
    layout_arrays,
    tile_arrays,
    unexpressed,
)
from xlarank.data.hlo.messages import HloModuleProto, Message, ModuleTuningData
from xlarank.data.schema import NODE_COLUMN, NODE_COLUMNS, OPCODE


def check_columns(program: Arrays, node: int, expected: dict[str, list[int]]) -> None:
    """Compare the values of all columns by the beginnings of their names."""
    for stem, values in expected.items():
        at = [NODE_COLUMN[name] for name in NODE_COLUMNS if name.startswith(stem)]
        assert program["node_feat"][node, at].tolist() == values, stem


def one_instruction(**fields: object) -> tuple[Message, Message]:
    module = HloModuleProto(name="m", entry_computation_id=1)
    main = module.computations.add(name="main", id=1)
    return module, instruction(main, "parameter", **{"id": 1, **fields})


def test_edges_splits_and_configurable_nodes_of_a_program_written_by_hand() -> None:
    program = encode_program(matmul_module())
    # reshape<-parameter; dot<-two parameters; reshape<-dot; while<-parameter and the body's root;
    # fusion<-the fused root (1), parameter (6) and, once though named twice, the while (7).
    edges = [(1, 0), (4, 2), (4, 3), (5, 4), (7, 5), (7, 6), (8, 1), (8, 6), (8, 7)]
    assert np.array_equal(program["edge_index"], edges)
    # One split ends with the computation called while_..., one with the program.
    assert program["node_splits"].tolist() == [[0, 6, 9]]
    # The dot and the reshape of the loop's body; the reshape inside the fusion has no layout.
    assert program["node_config_ids"].tolist() == [4, 5]
    (marked := matmul_module()).computations[1].is_fusion_computation = True
    assert not len(encode_program(marked)["node_config_ids"]), "marked, or called by a fusion"
    opcodes = "parameter reshape parameter parameter dot reshape parameter while fusion".split()
    assert program["node_opcode"].tolist() == [OPCODE[name] for name in opcodes]
    assert program["node_feat"][:, NODE_COLUMN["is_root"]].tolist() == [0, 1, 0, 0, 0, 1, 0, 0, 1]
    assert unexpressed(matmul_module()) == ()
    columns = {"layout_minor_to_major": [0, 1, 0, 0, 0, 0], "parameter_number": [1]}
    columns["shape_dimensions"] = [64, 128, 0, 0, 0, 0, 64 + 128, 64 * 128]
    check_columns(program, 3, columns)


def test_absent_columns_are_0_their_products_1_and_large_numbers_are_rounded_once() -> None:
    row = encode_program(one_instruction(dims=())[0])["node_feat"][0]
    ones = {name for name in NODE_COLUMNS if name.endswith("_product")}
    ones |= {"is_root", "shape_element_type_is_f32"}
    assert row.tolist() == [float(name in ones) for name in NODE_COLUMNS]
    # 2**54 + 2**30 + 1 lies just above the middle of two float32 (2**54 and 2**54 + 2**31); through
    # float64 it would first become the middle itself and then the even neighbour 2**54.
    module, _ = one_instruction(dims=(2**54 + 2**30 + 1,))
    check_columns(encode_program(module), 0, {"shape_dimensions_0": [2**54 + 2**31]})


def test_dots_keep_their_operands_and_dimension_numbers() -> None:
    module = HloModuleProto(name="m", entry_computation_id=1)
    main = module.computations.add(name="main", id=1)
    instruction(main, "parameter", (16, 8, 4), id=1)
    instruction(main, "parameter", (8, 4, 32), id=2)
    numbers = {"lhs_contracting_dimensions": [2], "rhs_contracting_dimensions": [1]}
    numbers |= {"lhs_batch_dimensions": [1], "rhs_batch_dimensions": [0]}
    instruction(main, "dot", (8, 32, 16), (2, 1), id=3)
    instruction(main, "dot", (8, 16, 32), (1, 2), id=4, dot_dimension_numbers=numbers)
    # without numbers that fit, as those of node 2, a dot is unknown
    arrays = encode_program(module)
    assert arrays["node_dot_operands"].tolist() == [[-1, -1], [0, 1]]
    first = arrays["node_dot_dimensions"][:, :, 0]
    assert first.tolist() == [[-1] * 4, [2, 1, 1, 0]]
    assert (arrays["node_dot_dimensions"][:, :, 1:] == -1).all()


def test_the_columns_of_convolutions_slices_and_padding() -> None:
    common = {"stride": 2, "padding_low": -1, "window_dilation": 1, "base_dilation": 3}
    sizes = [
        {"size": i + 1, "padding_high": i, "window_reversal": i == 2, **common} for i in (1, 2, 3)
    ]
    padding = [
        {"edge_padding_low": -2, "edge_padding_high": 3, "interior_padding": 1},
        {"edge_padding_high": 5},
    ]
    numbers = {
        "input_batch_dimension": 4,
        "input_feature_dimension": 3,
        "input_spatial_dimensions": [1, 2, 0],
        "kernel_input_feature_dimension": 2,
        "kernel_output_feature_dimension": 1,
        "kernel_spatial_dimensions": [0, 3, 4],
        "output_batch_dimension": 5,
        "output_feature_dimension": 6,
    }
    module, _ = one_instruction(
        dims=(1, 2),
        feature_group_count=3,
        batch_group_count=2,
        dimensions=[7, 5],
        dynamic_slice_sizes=[3, 4, 5],
        is_stable=True,
        window={"dimensions": sizes},
        convolution_dimension_numbers=numbers,
        slice_dimensions=[{"start": 1, "limit": 9, "stride": 2}],
        padding_config={"dimensions": padding},
    )
    check_columns(
        encode_program(module),
        0,
        {
            "window_size": [2, 3, 4, 0, 0, 0, 9, 24],
            "window_stride": [2, 2, 2, 0, 0, 0, 6, 8],
            "window_padding_low": [-1, -1, -1, 0, 0, 0, -3, -1],
            "window_padding_high": [1, 2, 3, 0, 0, 0, 6, 6],
            "window_window_dilation": [1, 1, 1, 0, 0, 0, 3, 1],
            "window_base_dilation": [3, 3, 3, 0, 0, 0, 9, 27],
            "window_window_reversal": [0, 1, 0, 0, 0, 0, 1, 2],
            "convolution_dim_numbers_input": [4, 3, 1, 2, 0, 0],
            "convolution_dim_numbers_kernel": [2, 1, 0, 3, 4, 0],
            "convolution_dim_numbers_output": [5, 6],
            "feature_group_count": [3],
            "batch_group_count": [2],
            "is_stable": [1],
            "dimensions_": [7, 5, 0, 0, 0, 0],
            "slice_dims_start": [1, 0, 1, 1],
            "slice_dims_stride": [2, 0, 2, 2],
            "slice_dims_limit": [9, 0, 9, 9],
            "dynamic_slice_sizes": [3, 4, 12, 60],
            "padding_config_edge_padding_low": [-2, 0, -2, 0],
            "padding_config_edge_padding_high": [3, 5, 8, 15],
        },
    )


def test_values_that_the_format_cannot_express_are_named() -> None:
    module, _ = one_instruction(dims=(2,) * 6, layout=range(6))  # the most dimensions it has
    check_columns(encode_program(module), 0, {"layout_minor_to_major": [0, 1, 2, 3, 4, 5]})
    module, added = one_instruction(dims=(2,) * 7, layout=range(7), element=20)  # F8E4M3FN
    added.opcode = "ragged-dot"
    program = encode_program(module)
    assert program["node_opcode"].tolist() == [OPCODE["unknown"]]
    expected = {"shape_dimensions": [2, 2, 2, 2, 2, 2, 14, 128], "layout_minor_to_major": [0] * 6}
    check_columns(program, 0, expected)
    text = " / ".join(unexpressed(module))
    for words in ("ragged-dot (1)", "f8e4m3fn (1)", "more than 6 dimensions", "7 (1)"):
        assert words in text
    added.opcode = "dot"
    assert encode_program(module)["node_config_ids"].tolist() == []


def test_ids_are_unique_within_a_computation_and_the_last_split_is_not_repeated() -> None:
    module = HloModuleProto(name="m", entry_computation_id=2)
    for number in (1, 2):
        computation = module.computations.add(name=f"while_{number}", id=number)
        instruction(computation, "parameter", (4,), id=0)
        instruction(computation, "negate", (4,), (0,), id=1)
    program = encode_program(module)
    assert program["edge_index"].tolist() == [[1, 0], [3, 2]]
    assert program["node_splits"].tolist() == [[0, 2, 4]]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"dims": (2**40, 2**40)}, "overflows"),
        ({"dims": (2**62, 2**62, 0)}, "overflows"),  # the product is 0, the sum is not
        ({"dims": (-1, 8)}, "has size -1"),
        ({"dims": (4, 4), "layout": (0, 0)}, "no order of 2 dimensions"),
        ({"dims": (4, 4), "layout": (1,)}, "no order of 2 dimensions"),
        ({"operands": (99,)}, "operand 99, which does not exist"),
        ({"calls": (7,)}, "called computation 7"),
        ({"operands": (1,)}, "cycle"),
        ({"calls": (1,)}, "cycle"),
        (lambda m: setattr(m[1].instructions[1], "id", 20), "two .* %while_body have the id 20"),
        (lambda m: setattr(m[2], "id", 1), "two computations have the id 1"),
        (lambda m: setattr(m[0], "root_id", 30), "root of %fused_computation is instruction 30"),
        (lambda m: setattr(m[0].instructions[0], "opcode", "no opcode\n"), "has the opcode"),
        (lambda m: [part.ClearField("instructions") for part in m], "no instructions"),
    ],
)
def test_inconsistent_modules_are_refused(fields: Any, words: str) -> None:
    """Fields of a single instruction, or a change of the computations of `matmul_module`."""
    module = matmul_module() if callable(fields) else one_instruction(**{"dims": (4,), **fields})[0]
    if callable(fields):
        fields(module.computations)
    with pytest.raises(HloError, match=words):
        encode_program(module)


def layouts() -> ModuleTuningData:
    """Return four runs of two nodes; the second failed and the third has no time."""
    data = tuning_data()
    del data.runs[:]
    for time, error in ((50, False), (40, True), (0, False), (60, False)):
        run = data.runs.add(error=error, is_default=time == 50)
        run.profile.compute_time_ns = time
        nodes = run.module_config.layout_config.nodes
        for layouts in ([0, 1], [], [1]), ([2, 0, 1],):  # of the dot and of the reshape
            nodes.add(tensors=[{"dims": layout} for layout in layouts])
    return data


def test_usable_runs_become_configurations_in_their_order() -> None:
    arrays = layout_arrays(layouts())
    assert set(arrays) == {*LAYOUT_KEYS, *DOT_KEYS}
    assert arrays["config_runtime"].tolist() == [50, 60]
    assert arrays["node_config_ids"].tolist() == [4, 5]
    none = [-1] * 6
    dot = [0, 1, -1, -1, -1, -1, *none, 1, -1, -1, -1, -1, -1]
    assert arrays["node_config_feat"].tolist() == [[dot, [2, 0, 1, -1, -1, -1, *none, *none]]] * 2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda data: data.config_index_to_node.append(9), "names node 9; expected 0 to 8"),
        (
            lambda data: data.runs[3].module_config.layout_config.nodes.pop(),
            "run 1 configures 1 nodes; expected 2",
        ),
        (lambda data: data.runs[0].module_config.layout_config.nodes[0].tensors.add(), "4 tensors"),
        (lambda data: [data.runs.pop(at) for at in (3, 0)], "none of 2 runs"),
    ],
)
def test_layouts_that_do_not_fit_the_program_are_refused(
    change: Callable[[Any], Any], words: str
) -> None:
    data = layouts()
    change(data)
    with pytest.raises(HloError, match=words):
        layout_arrays(data)


def test_the_columns_and_the_normalizer_of_a_kernel() -> None:
    kernel = kernels().modules[0]
    del kernel.runs[:]
    tile = {"output_bounds": [2, 3], "kernel_bounds": [1, 2, 3, 4, 5, 6, 7]}
    for time, bounds in ((300, {"output_bounds": [4]}), (100, tile), (1, tile)):
        run = kernel.runs.add(is_default=time < 300, op_config={"tile_size_config": bounds})
        run.profile.compute_time_ns = time  # 1: not measured
    arrays = tile_arrays(kernel)
    assert set(arrays) == set(TILE_KEYS) and arrays["config_runtime"].tolist() == [300, 100]
    assert arrays["config_runtime_normalizers"].tolist() == [100, 100]
    none = [0] * 8  # here the product over no bounds is 0
    second = [1, 2, 3, 4, 5, 6, 28, 5040, 2, 3, 0, 0, 0, 0, 5, 6, *none]
    assert arrays["config_feat"].tolist() == [[*none, 4, 0, 0, 0, 0, 0, 4, 4, *none], second]
    unmeasured, large = (kernels().modules[0] for _ in range(2))
    large.runs[0].profile.compute_time_ns = 100
    large.runs[0].op_config.tile_size_config.output_bounds.extend([2**40, 2**40])
    words = "no measured default", r"output_bounds .* overflows"
    for kernel, problem in zip((unmeasured, large), words, strict=True):
        with pytest.raises(HloError, match=problem):
            tile_arrays(kernel)


def test_a_real_program_is_encoded_as_in_google_s_file(real_data: Path) -> None:
    """The protobuf has 112 of 1965 configurations. Kernels: tests of `import_hlo`."""
    data = ModuleTuningData.FromString((real_data / "pb/module_tuning_data_layout.pb").read_bytes())
    ours = layout_arrays(data)
    program = encode_program(data.module)
    with np.load(real_data / "npz/layout/xla/default/valid/unet_3d.4x4.bf16.npz") as theirs:
        assert set(ours) == {*theirs.files, *DOT_KEYS}
        for name in set(program) - set(DOT_KEYS):
            arrays = (source[name] for source in (program, theirs, ours))
            assert len({(array.dtype, array.shape, array.tobytes()) for array in arrays}) == 1, name
        labels = []
        for arrays in (ours, theirs):
            pairs = zip(arrays["node_config_feat"], arrays["config_runtime"], strict=True)
            labels.append({(row.tobytes(), int(time)) for row, time in pairs})
    assert len(ours["config_runtime"]) == 112 and labels[0] <= labels[1]
