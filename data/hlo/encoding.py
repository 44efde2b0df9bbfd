"""Encoding of an HLO module as the dataset's arrays: 140 node columns, opcodes, edges, splits, configurable nodes.

The formulas are those of Google's extractor (google-research-datasets/tpu_graphs, ``process_data/xla``): numbers
are 64-bit integers, rounded to float32 once; sequences are cut to 2, 4 or 6 entries, some followed by their sum and
product (1 for an empty sequence). Nodes are numbered across computations in the module's order. All ids in a file
are checked before use.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from xlarank.data.errors import HloError
from xlarank.data.graph import MAX_NODES, has_cycle
from xlarank.data.hlo.messages import Message, instructions
from xlarank.data.schema import (
    ELEMENT_BYTES,
    MAX_RANK,
    NODE_COLUMN,
    NODE_COLUMNS,
    OPCODE,
    PADDING_FIELDS,
    SLICE_FIELDS,
    WINDOW_FIELDS,
)

#: Arrays by name in the dataset's files.
Arrays = dict[str, NDArray[Any]]

#: Operations with configurable layouts; the layouts of others follow from them.
_CONFIGURABLE: Final = frozenset({"convolution", "dot", "reshape"})
_OPCODE: Final = re.compile(r"[a-z][a-z0-9-]{0,63}")

_INT64: Final = np.iinfo(np.int64)
#: Element types by XLA's PrimitiveType number, in the order of the dataset's one-hot columns.
_NUMBERS: Final = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 16, 15, 18, 13, 14, 17)
ELEMENT_TYPES: Final = dict(zip(_NUMBERS, ELEMENT_BYTES, strict=True))
_ELEMENT_COLUMN: Final = {at: NODE_COLUMN[f"shape_element_type_is_{name}"] for at, name in ELEMENT_TYPES.items()}
#: Parts of names of computations that end a split, as in the extractor.
_MAJOR: Final = ("cluster", "while", "cond")

#: Roles of a convolution's dimensions: ``<role>_dim`` in columns, ``<role>_dimension`` in messages.
_ROLES: Final = (
    *("input_batch", "input_feature", "output_batch", "output_feature"),
    *("kernel_input_feature", "kernel_output_feature"),
)


def encode_kernel(module: Message) -> Arrays:
    """Encode an ``HloModuleProto`` as the arrays that tile and layout files share.

    ``node_feat (nodes, 140)`` float32, ``node_opcode (nodes,)`` uint8, ``edge_index (edges, 2)`` int64: ``[u, v]``
    if u consumes v, or calls the computation whose root is v.

    Raises `HloError` if the module is inconsistent or exceeds the limits of the format.
    """
    edges = _edges(module)
    opcodes = [OPCODE.get(instruction.opcode, 0) for _, instruction in instructions(module)]
    if has_cycle(edges, len(opcodes)):
        raise HloError("the program holds a cycle", expected="operands before their consumers, and no recursion")
    return {
        "node_feat": np.stack([_node_row(*pair) for pair in instructions(module)]),
        "node_opcode": np.array(opcodes, np.uint8),
        "edge_index": edges,
    }


def encode_program(module: Message) -> Arrays:
    """Encode an ``HloModuleProto`` as in `encode_kernel`, and add the arrays specific to layout files.

    ``node_splits (1, k)`` and ``node_config_ids (configurable nodes,)``, both int64. Every convolution,
    dot and reshape outside fusion bodies is configurable if its rank fits the format. The rule holds in all of
    Google's files that were checked.
    """
    fused = fused_computations(module)
    configurable = [
        node
        for node, (computation, instruction) in enumerate(instructions(module))
        if instruction.opcode in _CONFIGURABLE
        and computation.id not in fused
        and len(instruction.shape.dimensions) <= MAX_RANK
    ]
    splits = {"node_splits": _splits(module), "node_config_ids": np.array(configurable, np.int64)}
    return encode_kernel(module) | splits


def fused_computations(module: Message) -> set[int]:
    """Return the ids of fusion bodies; their operations have no layouts of their own."""
    fused = {computation.id for computation in module.computations if computation.is_fusion_computation}
    fusions = (instruction for _, instruction in instructions(module) if instruction.opcode == "fusion")
    return fused.union(*(fusion.called_computation_ids for fusion in fusions))


def _edges(module: Message) -> NDArray[np.int64]:
    """Return distinct edges ``(edges, 2)``, sorted by consumer and operand."""
    node_of, root = _numbered(module)
    pairs: set[tuple[int, int]] = set()
    for node, (computation, instruction) in enumerate(instructions(module)):
        own = node_of[computation.id]
        for what, ids, known in (
            ("operand", instruction.operand_ids, own),
            ("control predecessor", instruction.control_predecessor_ids, own),
            ("called computation", instruction.called_computation_ids, root),
        ):
            if unknown := [number for number in ids if number not in known]:
                got = f"{_label(instruction)} names {what} {unknown[0]}, which does not exist"
                raise HloError(got, expected="a known id")
            if what != "control predecessor":
                pairs.update((node, known[number]) for number in ids)
    return np.array(sorted(pairs), np.int64).reshape(-1, 2)


def _numbered(module: Message) -> tuple[dict[int, dict[int, int]], dict[int, int]]:
    """Return ``{computation id: {instruction id: node}}`` and ``{computation id: node of its root}``."""
    nodes = sum(len(computation.instructions) for computation in module.computations)
    if not 0 < nodes <= MAX_NODES:
        raise HloError(f"the module has {nodes or 'no'} instructions", expected=f"1 to {MAX_NODES:,}")
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
            got = f"the root of {_label(computation)} is instruction {computation.root_id}, which is not in it"
            raise HloError(got, expected="the id of one of its instructions")
        root[computation.id] = numbers[computation.root_id]
    return node_of, root


def _label(part: Message) -> str:
    """Return a display name of an instruction or computation; long names are cut, unprintable ones replaced."""
    return f"%{part.name[:80]}" if part.name.isprintable() and part.name else f"the one with id {part.id}"


def _node_row(computation: Message, instruction: Message) -> NDArray[np.float32]:
    row = np.zeros(len(NODE_COLUMNS), np.int64)
    row[NODE_COLUMN["is_root"]] = instruction.id == computation.root_id
    try:
        _fill(row, instruction)
    except (OverflowError, ValueError) as error:
        raise HloError(f"{_label(instruction)}: {error}", expected="sizes that fit 64 signed bits") from error
    return row.astype(np.float32)


def _fill(row: NDArray[np.int64], instruction: Message) -> None:
    _fill_shape(row, instruction.shape)
    row[NODE_COLUMN["parameter_number"]] = instruction.parameter_number
    _sequence(row, "dimensions", instruction.dimensions)
    window = instruction.window.dimensions
    for field in WINDOW_FIELDS:
        _sequence(row, f"window_{field}", [getattr(dimension, field) for dimension in window], totals=True)
    reversals = [int(dimension.window_reversal) for dimension in window]
    _sequence(row, "window_window_reversal", reversals)
    row[NODE_COLUMN["window_window_reversal_true_count"]] = sum(reversals)
    row[NODE_COLUMN["window_window_reversal_false_count"]] = len(reversals) - sum(reversals)
    if instruction.HasField("convolution_dimension_numbers"):
        numbers = instruction.convolution_dimension_numbers
        for role in _ROLES:
            row[NODE_COLUMN[f"convolution_dim_numbers_{role}_dim"]] = getattr(numbers, f"{role}_dimension")
        for side in ("input", "kernel"):
            spatial = getattr(numbers, f"{side}_spatial_dimensions")
            _sequence(row, f"convolution_dim_numbers_{side}_spatial_dims", spatial, keep=4)
    row[NODE_COLUMN["feature_group_count"]] = instruction.feature_group_count
    row[NODE_COLUMN["batch_group_count"]] = instruction.batch_group_count
    for field in SLICE_FIELDS:
        values = [getattr(dimension, field) for dimension in instruction.slice_dimensions]
        _sequence(row, f"slice_dims_{field}", values, keep=2, totals=True)
    _sequence(row, "dynamic_slice_sizes", instruction.dynamic_slice_sizes, keep=2, totals=True)
    for field in PADDING_FIELDS:
        values = [getattr(dimension, field) for dimension in instruction.padding_config.dimensions]
        _sequence(row, f"padding_config_{field}", values, keep=2, totals=True)
    row[NODE_COLUMN["is_stable"]] = instruction.is_stable


def _fill_shape(row: NDArray[np.int64], shape: Message) -> None:
    if shape.element_type in _ELEMENT_COLUMN:
        row[_ELEMENT_COLUMN[shape.element_type]] = 1
    sizes = shape.dimensions
    if any(size < 0 for size in sizes):
        raise ValueError(f"a dimension has size {min(sizes)} (unbounded dynamic shapes have no fixed size)")
    _sequence(row, "shape_dimensions", sizes, totals=True)
    row[NODE_COLUMN["shape_tuple_shapes_size"]] = len(shape.tuple_shapes)
    if layout := shape.layout.minor_to_major:
        if sorted(layout) != list(range(len(sizes))):
            raise ValueError(f"the layout {_shown(layout)} is no order of {len(sizes)} dimensions")
        if len(layout) <= MAX_RANK:
            _sequence(row, "layout_minor_to_major", layout)


def _sequence(
    row: NDArray[np.int64], stem: str, values: Sequence[int], *, keep: int = MAX_RANK, totals: bool = False
) -> None:
    """Write the first ``keep`` values into columns ``stem_0``..., then, with ``totals``, their sum and product."""
    first = NODE_COLUMN[f"{stem}_0"]
    row[first : first + min(keep, len(values))] = values[:keep]
    if totals:
        row[first + keep : first + keep + 2] = sum_and_product(stem, values)


def sum_and_product(what: str, values: Sequence[int]) -> tuple[int, int]:
    """Return sum and product, 0 and 1 without values; raises `OverflowError` beyond 64 signed bits."""
    total = _fits(sum(values), what, values)
    if 0 in values:
        return total, 0
    product = 1
    for value in values:  # stop at the first overflow: a malicious list could make a number of a million digits
        product = _fits(product * value, what, values)
    return total, product


def _fits(number: int, stem: str, values: Sequence[int]) -> int:
    if not _INT64.min <= number <= _INT64.max:
        raise OverflowError(f"{stem} {_shown(values)} have a sum or product that overflows")
    return number


def _shown(values: Sequence[int]) -> str:
    return f"({', '.join(map(str, values[:8]))}{', ...' if len(values) > 8 else ''})"


def _splits(module: Message) -> NDArray[np.int64]:
    """Return split boundaries, ``(1, k)``; a split ends after each computation in `_MAJOR` and after the last."""
    ends, done = [0], 0
    for computation in module.computations:
        done += len(computation.instructions)
        if any(word in computation.name for word in _MAJOR):
            ends.append(done)
    return np.array([ends + [done] * (ends[-1] < done)], np.int64)


def unexpressed(module: Message) -> tuple[str, ...]:
    """Describe what the format cannot express of a module, with counts by name."""
    opcodes = [instruction.opcode for _, instruction in instructions(module) if instruction.opcode not in OPCODE]
    types = (instruction.shape.element_type for _, instruction in instructions(module))
    ranks = (len(instruction.shape.dimensions) for _, instruction in instructions(module))
    unknown = {
        "opcodes that the format does not know, written as unknown": opcodes,
        "element types that the format does not know (XLA's PrimitiveType), written as none":
            [str(number) for number in types if number not in _ELEMENT_COLUMN],
        f"tensors of more than {MAX_RANK} dimensions, written without the others and without a layout":
            [str(rank) for rank in ranks if rank > MAX_RANK],
    }  # fmt: skip
    notes = []
    for phrase, names in unknown.items():
        counts = sorted(Counter(names).items(), key=lambda item: (-item[1], item[0]))
        if counts:
            notes.append(f"{phrase}: {', '.join(f'{name} ({times})' for name, times in counts[:20])}")
    return tuple(notes)
