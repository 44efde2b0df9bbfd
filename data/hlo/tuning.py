"""Conversion of TpuGraphs' own protobufs (program, configurations, runtimes) into the dataset's arrays.

Which runs count, and how, is taken from Google's reader (``tuning_data_iterator.cc`` of
google-research-datasets/tpu_graphs).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from xlarank.data.errors import HloError
from xlarank.data.hlo.encoding import Arrays, encode_kernel, encode_program, sum_and_product
from xlarank.data.hlo.messages import Message
from xlarank.data.schema import LAYOUT_COLUMNS, LAYOUT_SLOTS, MAX_RANK, TILE_COLUMNS, TILE_SLOTS

#: Up to this many nanoseconds, a kernel's runtime means that it was not measured.
_NO_TIME: Final = 1


def layout_arrays(data: Message) -> Arrays:
    """Convert a ``ModuleTuningData`` to the arrays of a layout file with the measured runs in their order.

    Raises `HloError` if no run is usable or a configuration does not fit the program.
    """
    arrays = encode_program(data.module)
    last = len(arrays["node_feat"]) - 1
    ids = np.array(data.config_index_to_node, np.uint64)
    if (ids > last).any():
        raise HloError(f"config_index_to_node names node {ids[ids > last][0]}", expected=f"0 to {last}")
    done = [run for run in data.runs if run.HasField("module_config") and not run.error]
    runs = [run for run in done if run.profile.compute_time_ns > 0]
    if not runs:
        raise HloError(f"none of {len(data.runs)} runs has layouts and a runtime", expected="at least one")
    rows = np.full((len(runs), len(ids), len(LAYOUT_COLUMNS)), -1, np.float32)
    for number, run in enumerate(runs):
        _layout_rows(rows[number], run.module_config.layout_config, number)
    arrays["node_config_ids"] = ids.astype(np.int64)
    arrays["node_config_feat"] = rows
    arrays["config_runtime"] = np.array([run.profile.compute_time_ns for run in runs], np.int64)
    return arrays


def _layout_rows(rows: NDArray[np.float32], config: Message, number: int) -> None:
    if len(config.nodes) != len(rows):
        raise HloError(f"run {number} configures {len(config.nodes)} nodes", expected=f"{len(rows)}")
    for row, node in zip(rows, config.nodes, strict=True):
        if len(node.tensors) > len(LAYOUT_SLOTS):
            raise HloError(f"run {number} configures {len(node.tensors)} tensors of a node", expected="at most 3")
        for slot, tensor in enumerate(node.tensors):
            dims = tensor.dims[:MAX_RANK]
            row[MAX_RANK * slot : MAX_RANK * slot + len(dims)] = dims


def kernel_name(stem: str, fingerprint: int) -> str:
    """Return a kernel's name in the dataset: the program's, then the fingerprint as a signed 64-bit number in hex.

    >>> kernel_name("alexnet", 0x579E7B2C540F0929), kernel_name("alexnet", 0xF758AA847A9184C5)
    ('alexnet_579e7b2c540f0929', 'alexnet_-8a7557b856e7b3b')
    """
    signed = fingerprint - 2**64 if fingerprint >= 2**63 else fingerprint
    return f"{stem}_{signed:x}"


def tile_arrays(kernel: Message) -> Arrays:
    """Convert one kernel of a ``TuningData`` to the arrays of a tile file; its default run is the normalizer.

    Raises `HloError` for a kernel without tile sizes or without a measured default.
    """
    if not kernel.runs or any(not run.op_config.HasField("tile_size_config") for run in kernel.runs):
        raise HloError("the kernel has runs without tile sizes, or none", expected="tile sizes in every run")
    runs = [run for run in kernel.runs if not run.error and run.profile.compute_time_ns > _NO_TIME]
    default = next((run for run in runs if run.is_default), None)
    if default is None:
        raise HloError("the kernel has no measured default run", expected="a runtime to divide the others by")
    arrays = encode_kernel(kernel.module)
    tiles = [run.op_config.tile_size_config for run in runs]
    rows = [tile_row(**{slot: getattr(tile, f"{slot}_bounds") for slot in TILE_SLOTS}) for tile in tiles]
    arrays["config_feat"] = np.array(rows, np.int64).astype(np.float32)
    arrays["config_runtime"] = np.array([run.profile.compute_time_ns for run in runs], np.int64)
    arrays["config_runtime_normalizers"] = np.full(len(runs), default.profile.compute_time_ns, np.int64)
    return arrays


def tile_row(kernel: Sequence[int] = (), output: Sequence[int] = (), input: Sequence[int] = ()) -> list[int]:
    """Return the 24 columns of a tile's bounds; unlike in the node columns, the product over no bounds is 0.

    >>> tile_row(output=(2, 8))[8:16]
    [2, 8, 0, 0, 0, 0, 10, 16]
    """
    row: list[int] = []
    for slot, bounds in zip(TILE_SLOTS, (kernel, output, input), strict=True):
        try:
            total, product = sum_and_product(f"{slot}_bounds", bounds)
        except OverflowError as error:
            raise HloError(f"a tile's {error}", expected="bounds that fit 64 signed bits") from error
        row += [*bounds[:MAX_RANK], *[0] * (MAX_RANK - len(bounds)), total, product if bounds else 0]
    assert len(row) == len(TILE_COLUMNS)
    return row
