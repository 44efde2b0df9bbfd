"""Names in TpuGraphs files: node columns, configuration columns, opcodes.

Source: the dataset description and opcode list of google-research-datasets/tpu_graphs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

#: The format keeps at most six dimensions of a tensor.
MAX_RANK: Final = 6


def _dims(stem: str, *totals: str, count: int = MAX_RANK) -> list[str]:
    return [f"{stem}_{i}" for i in range(count)] + [f"{stem}_{name}" for name in totals]


_ELEMENTS: Final = (
    "invalid_type pred s8 s16 s32 s64 u8 u16 u32 u64 f16 f32 f64 bf16 c64 c128 tuple "
    "opaque_type token"
)
#: Element types in the order of their one-hot columns (2-20), with their size in bytes.
#: Tuples, tokens and opaque values hold no array of their own: size 0.
ELEMENT_BYTES: Final[dict[str, int]] = {
    name: 1 if name == "pred" else int("".join(filter(str.isdigit, name)) or 0) // 8
    for name in _ELEMENTS.split()
}


def _field_dims(stem: str, fields: Iterable[str], count: int = MAX_RANK) -> list[str]:
    columns = []
    for field in fields:
        columns += _dims(f"{stem}_{field}", "sum", "product", count=count)
    return columns


WINDOW_FIELDS: Final = (
    "size",
    "stride",
    "padding_low",
    "padding_high",
    "window_dilation",
    "base_dilation",
)
SLICE_FIELDS: Final = ("start", "stride", "limit")
PADDING_FIELDS: Final = ("edge_padding_low", "edge_padding_high")
#: The 140 columns of ``node_feat``.
NODE_COLUMNS: Final[tuple[str, ...]] = (
    "is_root",
    "element_size_in_bits",
    *(f"shape_element_type_is_{name}" for name in ELEMENT_BYTES),
    *_dims("shape_dimensions", "sum", "product"),
    "shape_tuple_shapes_size",
    "parameter_number",
    *_dims("dimensions"),
    *_field_dims("window", WINDOW_FIELDS),
    *_dims("window_window_reversal", "true_count", "false_count"),
    "convolution_dim_numbers_input_batch_dim",
    "convolution_dim_numbers_input_feature_dim",
    *(f"convolution_dim_numbers_input_spatial_dims_{i}" for i in range(4)),
    "convolution_dim_numbers_kernel_input_feature_dim",
    "convolution_dim_numbers_kernel_output_feature_dim",
    *(f"convolution_dim_numbers_kernel_spatial_dims_{i}" for i in range(4)),
    "convolution_dim_numbers_output_batch_dim",
    "convolution_dim_numbers_output_feature_dim",
    "feature_group_count",
    "batch_group_count",
    *_field_dims("slice_dims", SLICE_FIELDS, count=2),
    *_dims("dynamic_slice_sizes", "sum", "product", count=2),
    *_field_dims("padding_config", PADDING_FIELDS, count=2),
    "is_stable",
    *_dims("layout_minor_to_major"),
)
NODE_COLUMN: Final[dict[str, int]] = {name: i for i, name in enumerate(NODE_COLUMNS)}

#: The three tensors of a layout row, six minor-to-major entries each, padded with -1.
LAYOUT_SLOTS: Final[tuple[str, ...]] = ("output", "input", "kernel")
#: The 18 columns of ``node_config_feat``.
LAYOUT_COLUMNS: Final = (*_dims("output_layout"), *_dims("input_layout"), *_dims("kernel_layout"))

#: Dimensions of a dot's operands, in the order of ``node_dot_dimensions``: of the left one, of the
#: right one, and so on. All other dimensions are in the output.
DOT_DIMENSIONS: Final = ("lhs_contracting", "rhs_contracting", "lhs_batch", "rhs_batch")

#: The three tensors of a tile row, in file order.
TILE_SLOTS: Final[tuple[str, ...]] = ("kernel", "output", "input")
#: The 24 columns of ``config_feat``.
TILE_COLUMNS: Final = (
    *_dims("kernel_bounds", "sum", "product"),
    *_dims("output_bounds", "sum", "product"),
    *_dims("input_bounds", "sum", "product"),
)

_OPCODE_LIST: Final = """
unknown abs add add-dependency after-all all-reduce all-to-all atan2 batch-norm-grad
batch-norm-inference batch-norm-training bitcast bitcast-convert broadcast call ceil cholesky clamp
collective-permute count-leading-zeros compare complex concatenate conditional constant convert
convolution copy copy-done copy-start cosine custom-call divide domain dot dynamic-slice
dynamic-update-slice exponential exponential-minus-one fft floor fusion gather get-dimension-size
set-dimension-size get-tuple-element imag infeed iota is-finite log log-plus-one and not or xor map
maximum minimum multiply negate outfeed pad parameter partition-id popcnt power real recv recv-done
reduce reduce-precision reduce-window remainder replica-id reshape reverse rng
rng-get-and-update-state rng-bit-generator round-nearest-afz rsqrt scatter select select-and-scatter
send send-done shift-left shift-right-arithmetic shift-right-logical sign sine slice sort sqrt
subtract tanh trace transpose triangular-solve tuple tuple-select while cbrt all-gather
collective-permute-start collective-permute-done logistic dynamic-reshape all-reduce-start
all-reduce-done reduce-scatter all-gather-start all-gather-done opt-barrier async-start async-update
async-done round-nearest-even stochastic-convert tan
"""
#: HLO opcode names by id; id 0 stands for opcodes unknown to the dataset's extractor.
OPCODES: Final[tuple[str, ...]] = tuple(_OPCODE_LIST.split())
OPCODE: Final[dict[str, int]] = {name: i for i, name in enumerate(OPCODES)}
#: Opcodes that left HLO; their ids stay reserved.
RETIRED_OPCODES: Final[frozenset[int]] = frozenset({OPCODE["trace"], OPCODE["tuple-select"]})

#: Splits of a collection.
SPLITS: Final = ("train", "valid", "test")
#: Folders of a data root from ``layout/`` or ``tile/`` down to the files.
LEVELS: Final = {"layout": "<source>/<search>/<split>", "tile": "<source>/<split>"}
