"""Encoding of HLO modules and of TpuGraphs' own protobufs as the dataset's arrays.

The formulas are taken from Google's extractor (google-research-datasets/tpu_graphs,
``process_data/xla``): numbers are 64-bit integers, rounded to float32 once; sequences are cut to 2,
4 or 6 entries, some followed by the sum and product of all entries (1 for an empty sequence). Nodes
are numbered across computations in the module's order. All ids in a file are checked before use.
Runs of tuning data are selected as in Google's ``tuning_data_iterator.cc``.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from xlarank.data import schema
from xlarank.data.errors import HloError
from xlarank.data.graph import MAX_NODES
from xlarank.data.hlo.messages import Message, instructions
from xlarank.data.schema import ELEMENT_BYTES, MAX_RANK, NODE_COLUMN, OPCODE, TILE_SLOTS
from xlarank.data.structure import has_cycle

#: Arrays by name in the dataset's files.
Arrays = dict[str, NDArray[Any]]

#: Operations with configurable layouts; the compiler derives all other layouts.
_CONFIGURABLE: Final = frozenset({"convolution", "dot", "reshape"})
_OPCODE: Final = re.compile(r"[a-z][a-z0-9-]{0,63}")

_INT64: Final = np.iinfo(np.int64)
#: Element types by XLA's PrimitiveType number; the one-hot columns have another order.
ELEMENT_TYPES: Final = dict(zip((*range(13), 16, 15, 18, 13, 14, 17), ELEMENT_BYTES, strict=True))
#: Those that the dataset does not have, from number 19 on.
_OTHER_NAMES: Final = (
    "f8e5m2 f8e4m3fn s4 u4 f8e4m3b11fnuz f8e5m2fnuz f8e4m3fnuz s2 u2 f8e4m3 f8e3m4 s1 u1 "
    "f4e2m1fn f8e8m0fnu"
)
_OTHER_TYPES: Final = dict(enumerate(_OTHER_NAMES.split(), start=19))
#: Column of integers that the dataset does not have: the narrowest one with the sign.
_SUBSTITUTES: Final = {"s1": "s8", "s2": "s8", "s4": "s8", "u1": "u8", "u2": "u8", "u4": "u8"}
#: A computation ends a split if its name contains one of these, as in the extractor.
_MAJOR: Final = re.compile("cluster|while|cond")
#: Roles of a convolution's dimensions: ``<role>_dim`` in columns, ``<role>_dimension`` in messages.
_ROLES: Final = (
    *("input_batch", "input_feature", "output_batch", "output_feature"),
    *("kernel_input_feature", "kernel_output_feature"),
)
#: Runs of kernels with at most this runtime in nanoseconds were not measured.
_UNMEASURED: Final = 1


def encode_kernel(module: Message) -> Arrays:
    """Encode an ``HloModuleProto`` as the arrays that tile and layout files share.

    ``node_feat (nodes, 140)`` float32, ``node_opcode (nodes,)`` uint8, ``edge_index (edges, 2)``
    int64: ``[u, v]`` if u consumes v, or calls the computation whose root is v.

    Raises `HloError` if the module is inconsistent or exceeds the limits of the format.
    """
    edges = _edges(module)
    opcodes = [OPCODE.get(instruction.opcode, 0) for _, instruction in instructions(module)]
    if has_cycle(edges, len(opcodes)):
        raise HloError("the program holds a cycle", expected="operands before their consumers")
    return {
        "node_feat": np.stack([_node_row(*pair) for pair in instructions(module)]),
        "node_opcode": np.array(opcodes, np.uint8),
        "edge_index": edges,
    }


def encode_program(module: Message) -> Arrays:
    """Encode a module as in `encode_kernel`, and add the arrays specific to layout files.

    These are ``node_splits (1, k)`` and ``node_config_ids (configurable nodes,)``, both int64.
    Every convolution, dot and reshape outside fusion bodies is configurable if its rank fits the
    format, as in all of Google's files that were checked. Also adds
    ``node_dot_operands`` and ``node_dot_dimensions``, which Google's files do not have.
    """
    arrays = encode_kernel(module)
    fused = fused_computations(module)
    configurable = []
    for node, (computation, instruction) in enumerate(instructions(module)):
        fits = len(instruction.shape.dimensions) <= MAX_RANK
        if instruction.opcode in _CONFIGURABLE and computation.id not in fused and fits:
            configurable.append(node)
    ends = np.cumsum([len(computation.instructions) for computation in module.computations])
    major = [bool(_MAJOR.search(computation.name)) for computation in module.computations]
    operands, dimensions = _dots(module)
    return arrays | {
        "node_splits": np.unique([0, *ends[major], ends[-1]])[None],
        "node_config_ids": np.array(configurable, np.int64),
        "node_dot_operands": operands,
        "node_dot_dimensions": dimensions.astype(np.int8),
    }


def _dots(module: Message) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return operands and dimensions of dots, -1 if the format or the module has none.

    TpuGraphs' own protobufs lack the dimension numbers.
    """
    node_of, _ = _index_nodes(module)
    nodes = [instruction for _, instruction in instructions(module)]
    dots = [pair for pair in instructions(module) if pair[1].opcode == "dot"]
    operands = np.full((len(dots), 2), -1, np.int64)
    dimensions = np.full((len(dots), len(schema.DOT_DIMENSIONS), MAX_RANK), -1, np.int64)
    for number, (computation, dot) in enumerate(dots):
        numbers = dot.dot_dimension_numbers
        lists = [getattr(numbers, f"{name}_dimensions") for name in schema.DOT_DIMENSIONS]
        read = [node_of[computation.id][operand] for operand in dot.operand_ids]
        ranks = [len(nodes[node].shape.dimensions) for node in read]
        contracted, _, batch, _ = map(len, lists)
        if len(read) != 2 or max(ranks) > MAX_RANK:
            continue
        if len(dot.shape.dimensions) != sum(ranks) - 2 * contracted - batch:
            continue
        operands[number] = read
        for side, listed in enumerate(lists):
            dimensions[number, side, : len(listed)] = listed
    return operands, dimensions


def fused_computations(module: Message) -> set[int]:
    """Return the ids of fusion bodies; their operations have no layouts of their own."""
    fused = {part.id for part in module.computations if part.is_fusion_computation}
    for _, instruction in instructions(module):
        if instruction.opcode == "fusion":
            fused.update(instruction.called_computation_ids)
    return fused


def _edges(module: Message) -> NDArray[np.int64]:
    """Return distinct edges ``(edges, 2)``, sorted by consumer and operand."""
    node_of, root = _index_nodes(module)
    pairs: set[tuple[int, int]] = set()
    for node, (computation, instruction) in enumerate(instructions(module)):
        for role, ids, nodes in (
            ("operand", instruction.operand_ids, node_of[computation.id]),
            ("called computation", instruction.called_computation_ids, root),
        ):
            if unknown := [number for number in ids if number not in nodes]:
                got = f"{_label(instruction)} names {role} {unknown[0]}, which does not exist"
                raise HloError(got, expected="a known id")
            pairs.update((node, nodes[number]) for number in ids)
    return np.array(sorted(pairs), np.int64).reshape(-1, 2)


def _index_nodes(module: Message) -> tuple[dict[int, dict[int, int]], dict[int, int]]:
    """Return ``{computation id: {instruction id: node}}`` and ``{computation id: root's node}``."""
    nodes = sum(len(computation.instructions) for computation in module.computations)
    if not 0 < nodes <= MAX_NODES:
        got = f"the module has {nodes or 'no'} instructions"
        raise HloError(got, expected=f"1 to {MAX_NODES:,}")
    node_of: dict[int, dict[int, int]] = {}
    root: dict[int, int] = {}
    for node, (computation, instruction) in enumerate(instructions(module)):
        if not _OPCODE.fullmatch(instruction.opcode):
            got = f"{_label(instruction)} has the opcode {instruction.opcode[:80]!r}"
            raise HloError(got, expected="a name like dot")
        if node_of.setdefault(computation.id, {}).setdefault(instruction.id, node) != node:
            got = f"two instructions of {_label(computation)} have the id {instruction.id}"
            raise HloError(got, expected="unique ids")
    for computation in module.computations:
        numbers = node_of.get(computation.id, {})
        if computation.id in root or len(numbers) != len(computation.instructions):
            raise HloError(f"two computations have the id {computation.id}", expected="unique ids")
        if computation.root_id not in numbers:
            root_id = computation.root_id
            got = f"the root of {_label(computation)} is instruction {root_id}, which is not in it"
            raise HloError(got, expected="the id of one of its instructions")
        root[computation.id] = numbers[computation.root_id]
    return node_of, root


def _label(part: Message) -> str:
    """Return a display name of an instruction or computation: cut, and printable."""
    if part.name and part.name.isprintable():
        return f"%{part.name[:80]}"
    return f"the one with id {part.id}"


def _node_row(computation: Message, instruction: Message) -> NDArray[np.float32]:
    row = np.zeros(len(schema.NODE_COLUMNS), np.int64)
    row[NODE_COLUMN["is_root"]] = instruction.id == computation.root_id
    try:
        for column, values in _node_values(instruction):
            first = NODE_COLUMN[column]
            row[first : first + len(values)] = values
    except (OverflowError, ValueError) as error:
        got = f"{_label(instruction)}: {error}"
        raise HloError(got, expected="sizes that fit 64 signed bits") from error
    return row.astype(np.float32)


def _node_values(instruction: Message) -> Iterator[tuple[str, Sequence[int]]]:
    """Yield a column's name with the values of this column and those that follow it."""
    shape = instruction.shape
    sizes = instruction.shape.dimensions
    window = instruction.window.dimensions
    element = element_type(shape.element_type)
    element = _SUBSTITUTES.get(element, element)
    if element in ELEMENT_BYTES:
        yield f"shape_element_type_is_{element}", [1]
    if any(size < 0 for size in sizes):
        reason = "unbounded dynamic shapes have no fixed size"
        raise ValueError(f"a dimension has size {min(sizes)} ({reason})")
    yield "shape_dimensions_0", _with_totals("shape_dimensions", sizes)
    yield "shape_tuple_shapes_size", [len(shape.tuple_shapes)]
    if layout := shape.layout.minor_to_major:
        if sorted(layout) != list(range(len(sizes))):
            raise ValueError(f"the layout {_shown(layout)} is no order of {len(sizes)} dimensions")
        if len(layout) <= MAX_RANK:
            yield "layout_minor_to_major_0", layout
    yield "dimensions_0", instruction.dimensions[:MAX_RANK]
    for stem, fields, parts, keep in (
        ("window", schema.WINDOW_FIELDS, window, MAX_RANK),
        ("slice_dims", schema.SLICE_FIELDS, instruction.slice_dimensions, 2),
        ("padding_config", schema.PADDING_FIELDS, instruction.padding_config.dimensions, 2),
    ):
        for field in fields:
            name = f"{stem}_{field}"
            values = [getattr(part, field) for part in parts]
            yield f"{name}_0", _with_totals(name, values, keep)
    dynamic_sizes = instruction.dynamic_slice_sizes
    yield "dynamic_slice_sizes_0", _with_totals("dynamic_slice_sizes", dynamic_sizes, 2)
    reversals = [dimension.window_reversal for dimension in window]
    yield "window_window_reversal_0", reversals[:MAX_RANK]
    yield "window_window_reversal_true_count", [reversals.count(True), reversals.count(False)]
    numbers = instruction.convolution_dimension_numbers
    for role in _ROLES:
        yield f"convolution_dim_numbers_{role}_dim", [getattr(numbers, f"{role}_dimension")]
    for side in ("input", "kernel"):
        spatial = getattr(numbers, f"{side}_spatial_dimensions")
        yield f"convolution_dim_numbers_{side}_spatial_dims_0", spatial[:4]
    for column in ("parameter_number", "feature_group_count", "batch_group_count", "is_stable"):
        yield column, [getattr(instruction, column)]


def _with_totals(name: str, values: Sequence[int], keep: int = MAX_RANK) -> list[int]:
    """Return ``keep`` padded values, the sum and product of all; raises `OverflowError`."""
    total = sum(values)
    product = 0 if 0 in values else 1
    # stops at the first overflow: a malicious list could make a number of a million digits
    for value in values:
        product *= value
        if not all(_INT64.min <= number <= _INT64.max for number in (total, product)):
            raise OverflowError(f"{name} {_shown(values)} have a sum or product that overflows")
    return [*values[:keep], *[0] * (keep - len(values)), total, product]


def _shown(values: Sequence[int]) -> str:
    return f"({', '.join(map(str, values[:8]))}{', ...' if len(values) > 8 else ''})"


def element_type(number: int) -> str:
    """Return XLA's name of an element type.

    >>> element_type(11), element_type(21)
    ('f32', 's4')
    """
    return ELEMENT_TYPES.get(number) or _OTHER_TYPES.get(number, f"type{number}")


def shape_text(shape: Message) -> str:
    """Return a shape as XLA writes it, such as ``f32[8,128]``."""
    return f"{element_type(shape.element_type)}[{','.join(map(str, shape.dimensions))}]"


def unexpressed(module: Message) -> tuple[str, ...]:
    """Describe the parts of a module that the format cannot express, with counts by name."""
    nodes = [node for _, node in instructions(module)]
    types = [element_type(node.shape.element_type) for node in nodes]
    ranks = [len(node.shape.dimensions) for node in nodes]
    lost = "written without the others and without a layout"
    unknown = {
        "opcodes that the format does not know, written as unknown": [
            node.opcode for node in nodes if node.opcode not in OPCODE
        ],
        "element types that the format does not know, written as none": [
            name for name in types if name not in ELEMENT_BYTES and name not in _SUBSTITUTES
        ],
        "integers of less than 8 bits, written as s8 or u8 with their bytes": [
            name for name in types if name in _SUBSTITUTES
        ],
        f"tensors of more than {MAX_RANK} dimensions, {lost}": [
            str(rank) for rank in ranks if rank > MAX_RANK
        ],
    }
    notes = []
    devices = max(math.prod(node.sharding.tile_assignment_dimensions) for node in nodes)
    if devices > 1:
        notes.append(f"the program is sharded over {devices} devices, and taken whole on one chip")
    for phrase, values in unknown.items():
        counts = Counter(sorted(values)).most_common(20)
        if counts:
            names = ", ".join(f"{name} ({times})" for name, times in counts)
            notes.append(f"{phrase}: {names}")
    return tuple(notes)


def layout_arrays(data: Message) -> Arrays:
    """Convert the measured runs of a ``ModuleTuningData``, in order, to a layout file's arrays.

    Raises `HloError` if no run is usable or a configuration does not fit the program.
    """
    arrays = encode_program(data.module)
    last = len(arrays["node_feat"]) - 1
    ids = np.array(data.config_index_to_node, np.uint64)
    if (ids > last).any():
        got = f"config_index_to_node names node {ids[ids > last][0]}"
        raise HloError(got, expected=f"0 to {last}")
    successful = [run for run in data.runs if not run.error]
    configured = [run for run in successful if run.HasField("module_config")]
    runs = [run for run in configured if run.profile.compute_time_ns > 0]
    if not runs:
        got = f"none of {len(data.runs)} runs has layouts and a runtime"
        raise HloError(got, expected="at least one")
    rows = np.full((len(runs), len(ids), len(schema.LAYOUT_SLOTS), MAX_RANK), -1, np.float32)
    for number, run in enumerate(runs):
        nodes = run.module_config.layout_config.nodes
        if len(nodes) != len(ids):
            raise HloError(f"run {number} configures {len(nodes)} nodes", expected=f"{len(ids)}")
        for column, node in enumerate(nodes):
            if len(node.tensors) > len(schema.LAYOUT_SLOTS):
                got = f"run {number} configures {len(node.tensors)} tensors of a node"
                raise HloError(got, expected="at most 3")
            for slot, tensor in enumerate(node.tensors):
                rows[number, column, slot, : len(tensor.dims)] = tensor.dims[:MAX_RANK]
    return arrays | {
        "node_config_ids": ids.astype(np.int64),
        "node_config_feat": rows.reshape(*rows.shape[:2], len(schema.LAYOUT_COLUMNS)),
        "config_runtime": _runtimes(runs),
    }


def _runtimes(runs: Sequence[Message]) -> NDArray[np.int64]:
    return np.array([run.profile.compute_time_ns for run in runs], np.int64)


def kernel_name(stem: str, fingerprint: int) -> str:
    """Return a kernel's name in the dataset: the program's and the signed fingerprint in hex.

    >>> kernel_name("alexnet", 0x579E7B2C540F0929), kernel_name("alexnet", 0xF758AA847A9184C5)
    ('alexnet_579e7b2c540f0929', 'alexnet_-8a7557b856e7b3b')
    """
    signed = fingerprint - 2**64 if fingerprint >= 2**63 else fingerprint
    return f"{stem}_{signed:x}"


def tile_arrays(kernel: Message) -> Arrays:
    """Convert a kernel of a ``TuningData`` to a tile file's arrays, normalized by its default.

    Raises `HloError` for a kernel without a measured default.
    """
    tiled = [run for run in kernel.runs if run.op_config.HasField("tile_size_config")]
    successful = [run for run in tiled if not run.error]
    runs = [run for run in successful if run.profile.compute_time_ns > _UNMEASURED]
    default = next((run for run in runs if run.is_default), None)
    if default is None:
        got = "the kernel has no measured default run with tile sizes"
        raise HloError(got, expected="a runtime to divide the others by")
    tiles = [run.op_config.tile_size_config for run in runs]
    rows = [tile_row(tile.kernel_bounds, tile.output_bounds, tile.input_bounds) for tile in tiles]
    normalizers = np.full(len(runs), default.profile.compute_time_ns, np.int64)
    return encode_kernel(kernel.module) | {
        "config_feat": np.array(rows, np.int64).astype(np.float32),
        "config_runtime": _runtimes(runs),
        "config_runtime_normalizers": normalizers,
    }


def tile_row(
    kernel: Sequence[int] = (), output: Sequence[int] = (), input: Sequence[int] = ()
) -> list[int]:
    """Return the 24 columns of a tile's bounds; here the product of no bounds is 0.

    >>> tile_row(output=(2, 8))[8:16]
    [2, 8, 0, 0, 0, 0, 10, 16]
    """
    row = list[int]()
    try:
        for slot, bounds in zip(TILE_SLOTS, (kernel, output, input), strict=True):
            row += _with_totals(f"{slot}_bounds", bounds) if bounds else [0] * (MAX_RANK + 2)
    except OverflowError as error:
        raise HloError(f"a tile's {error}", expected="bounds that fit 64 signed bits") from error
    return row
