"""Graphs and their files, which are checked while they are read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Final, Literal

import numpy as np
from numpy.typing import NDArray

from xlarank.data.config_table import ConfigTable, group_codes
from xlarank.data.errors import GraphFileError, counted, naming
from xlarank.data.hardware import WORDS, collection_parts, hardware_of, is_hardware
from xlarank.data.npz import NpzReader
from xlarank.data.schema import (
    DOT_DIMENSIONS,
    LAYOUT_COLUMNS,
    MAX_RANK,
    NODE_COLUMNS,
    OPCODE,
    OPCODES,
    TILE_COLUMNS,
)
from xlarank.data.structure import DEFAULT_LAYOUT, SIZES, check_layouts, has_cycle

Kind = Literal["layout", "tile"]

#: Limits, far above the dataset's maxima (43,615 nodes, 100,040 configurations). A few compressed
#: megabytes can unpack to more; such files are refused before they are decompressed.
MAX_NODES = 1_000_000
MAX_EDGES = 8_000_000
MAX_CONFIGS = 1 << 24
#: Maximum elements of a tensor: larger ones cannot be addressed, and their costs would overflow
#: float32.
MAX_ELEMENTS = float(1 << 48)
#: Largest magnitude in other node and tile columns.
MAX_FEATURE = 1e18
#: Longest runtime, a day; tuners write more for a run that failed.
MAX_RUNTIME = 24 * 3600 * 10**9
_RUNTIME_UNIT = "write whole nanoseconds (milliseconds times 1,000,000, rounded to int64)"
_NOT_MEASURED = "write 0 for a configuration without a runtime"
_MEND = "mend or remove the file"
#: Longest name of hardware in a file, 4 bytes a character.
_MAX_TARGET_BYTES = 4 * 64

_CONVOLUTION = [i for i, name in enumerate(NODE_COLUMNS) if name.startswith("convolution_dim")]
#: Columns of ``node_feat`` that must be whole numbers, and their maximum, if any.
_INTEGER_COLUMNS: Final[tuple[tuple[str, Any, int | None], ...]] = (
    ("the dimensions", SIZES, None),
    ("the default layouts", DEFAULT_LAYOUT, MAX_RANK - 1),
    ("the convolution's dimension numbers", _CONVOLUTION, MAX_RANK - 1),
)


@dataclass(frozen=True, eq=False, repr=False)
class Graph(ABC):
    """Base class of layout and tile graphs.

    Attributes:
        name: file name without ``.npz``.
        node_feat: ``(nodes, 140)``, columns as in `xlarank.data.schema.NODE_COLUMNS`.
        opcode: ``(nodes,)`` ids as in `xlarank.data.schema.OPCODES`.
        edges: ``(edges, 2)``; ``[u, v]`` means that u consumes the output of v.
        runtime: ``(configs,)`` nanoseconds; 0 if not measured (not compiled, or withheld).
        target: hardware that the configurations are for (`xlarank.data.hardware`): as named by
            the collection whose folder holds the file, else by the file's array ``target``; empty
            if neither is known.
    """

    kind: ClassVar[Kind]
    name: str
    node_feat: NDArray[np.float32]
    opcode: NDArray[np.int64]
    edges: NDArray[np.int64]
    runtime: NDArray[np.int64]
    target: str = field(default="", kw_only=True)

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} {self.name!r}: {counted(self.nodes, 'node')}, "
            f"{counted(len(self.edges), 'edge')}, {counted(self.configs, 'configuration')} "
            f"({len(self.first):,} distinct, {np.count_nonzero(self.runtime):,} measured)>"
        )

    @property
    def nodes(self) -> int:
        return len(self.node_feat)

    @property
    def configs(self) -> int:
        return len(self.runtime)

    @abstractmethod
    def _codes(self) -> NDArray[np.integer]:
        """Return whole numbers that are equal for identical configurations, ``(configs, n)``."""

    @cached_property
    def group(self) -> NDArray[np.int64]:
        """``(configs,)`` group of identical configurations that each one belongs to."""
        return group_codes(self._codes())[1]

    @cached_property
    def first(self) -> NDArray[np.int64]:
        """``(distinct,)`` the distinct configurations: the first of each `group`."""
        return np.unique(self.group, return_index=True)[1]

    @property
    def measured(self) -> NDArray[np.bool_]:
        """``(configs,)`` whether each configuration was measured."""
        return self.runtime > 0

    @property
    def labelled(self) -> bool:
        return bool(self.measured.any())

    @property
    def cost(self) -> NDArray[np.float64]:
        """``(configs,)`` ground truth of a ranking, in nanoseconds; inf if not measured."""
        return np.where(self.measured, self.runtime.astype(np.float64), np.inf)


@dataclass(frozen=True, eq=False, repr=False)
class LayoutGraph(Graph):
    """A program; configurations choose the layouts of its nodes.

    Attributes:
        splits: ``(k,)``; nodes ``splits[i]:splits[i + 1]`` are one or more whole computations.
        configurable: ``(configurable nodes,)`` node ids, ascending.
        dot_operands: ``(dots, 2)`` left and right operand of each dot node, in the order of the
            nodes; -1 if unknown, as in TpuGraphs' files.
        dot_dimensions: ``(dots, 4, 6)`` dimensions as in `xlarank.data.schema.DOT_DIMENSIONS`,
            padded with -1.
    """

    kind = "layout"
    splits: NDArray[np.int64]
    configurable: NDArray[np.int64]
    table: ConfigTable
    dot_operands: NDArray[np.int64]
    dot_dimensions: NDArray[np.int64]

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}, {counted(len(self.configurable), 'configurable node')}>"

    def _codes(self) -> NDArray[np.integer]:
        return self.table.codes

    @property
    def unset(self) -> NDArray[np.intp]:
        """Configurations that set no layout, as the compiler's default."""
        unset = np.all(self.table.rows < 0, axis=1)
        return np.flatnonzero(unset[self.table.codes].all(axis=1))


@dataclass(frozen=True, eq=False, repr=False)
class TileGraph(Graph):
    """One kernel; configurations choose its tile sizes.

    Attributes:
        config_feat: ``(configs, 24)``, columns as in `xlarank.data.schema.TILE_COLUMNS`.
        normalizers: ``(configs,)`` runtime of the compiler's default, measured in the same run.
    """

    kind = "tile"
    config_feat: NDArray[np.float32]
    normalizers: NDArray[np.int64]

    def _codes(self) -> NDArray[np.integer]:
        return (self.config_feat + np.float32(0.0)).view(np.int32)  # the sum makes -0.0 equal 0.0

    @property
    def cost(self) -> NDArray[np.float64]:
        """``(configs,)`` ground truth: runtime divided by normalizer; inf if not measured."""
        return np.where(self.measured, self.runtime / self.normalizers, np.inf)

    def bounds(self, slot: str) -> NDArray[np.float32]:
        """Return the bounds of a slot, ``(configs, 6)``; 0 for the input in files of TPUs."""
        first = TILE_COLUMNS.index(f"{slot}_bounds_0")
        return self.config_feat[:, first : first + MAX_RANK]


#: A graph, or the path of its npz file.
GraphLike = LayoutGraph | TileGraph | str | Path


def read_graph(path: str | Path, kind: Kind | None = None) -> LayoutGraph | TileGraph:
    """Read and check an npz file in TpuGraphs format.

    ``kind`` ("layout" or "tile") rejects files of the other kind; by default it is inferred from
    the arrays. Raises `GraphFileError`, which names the file, for invalid files.

    Examples:
        >>> import xlarank
        >>> from xlarank.data.collection import SAMPLE
        >>> graph = xlarank.read_graph(SAMPLE / "npz" / "tile" / "cpu" / "valid" / "bmm_tb__a.npz")
        >>> graph.name, graph.nodes, graph.configs, int(graph.runtime.min())
        ('bmm_tb__a', 3, 64, 566255)
    """
    path = Path(path)
    with NpzReader(path) as archive, naming(path.name, _MEND):
        graph = read_archive(archive, path.name, kind)
    parts = collection_parts(path)
    if parts is not None and (hardware := hardware_of(parts[1])):
        graph = replace(graph, target=hardware)
    return graph


def read_archive(
    archive: NpzReader, file_name: str, kind: Kind | None = None
) -> LayoutGraph | TileGraph:
    """Read and check the arrays of a graph that is named by ``file_name``, as `read_graph`."""
    name = file_name.removesuffix(".npz")
    kind = kind or ("layout" if "node_config_feat" in archive.names else "tile")
    _check_headers(archive, kind)
    return _read_layout(archive, name) if kind == "layout" else _read_tile(archive, name)


def as_graph(graph: GraphLike) -> LayoutGraph | TileGraph:
    """Return a graph, read from its npz file if it is a path; raises `GraphFileError`."""
    return read_graph(graph) if isinstance(graph, str | Path) else graph


def config_count(path: Path, kind: Kind) -> int:
    """Return the number of configurations of a graph, duplicates included, from its headers alone.

    Raises `GraphFileError` for a file that is not a graph of this kind.
    """
    with NpzReader(path) as archive, naming(path.name, _MEND):
        _check_headers(archive, kind)
        return archive.header("config_runtime").size


def _check_headers(archive: NpzReader, kind: Kind) -> None:
    """Check all shapes and types for consistency before any array is decompressed."""
    nodes, _ = _shape(archive, "node_feat", (None, len(NODE_COLUMNS)), "fiu")
    _shape(archive, "node_opcode", (nodes,))
    edges, _ = _shape(archive, "edge_index", (None, 2))
    (configs,) = _shape(archive, "config_runtime", (None,), do=_RUNTIME_UNIT)
    configurable = 0
    splits = 0
    if kind == "tile":
        _shape(archive, "config_feat", (configs, len(TILE_COLUMNS)), "fiu")
        _shape(archive, "config_runtime_normalizers", (configs,))
    else:
        (configurable,) = _shape(archive, "node_config_ids", (None,))
        splits = archive.header("node_splits").size
        _shape(archive, "node_splits", archive.header("node_splits").shape)
        _shape(archive, "node_config_feat", (configs, configurable, len(LAYOUT_COLUMNS)), "fiu")
    for noun, count, low, high in (
        ("nodes", nodes, 1, MAX_NODES),
        ("edges", edges, 0, MAX_EDGES),
        ("configurations", configs, 1, MAX_CONFIGS),
        ("configurable nodes", configurable, 0, nodes),
        ("entries of node_splits", splits, 0, MAX_NODES),
    ):
        if not low <= count <= high:
            raise GraphFileError(f"the file has {count:,} {noun}", expected=f"{low} to {high:,}")


def _shape(
    archive: NpzReader, name: str, shape: Sequence[int | None], kinds: str = "iu", do: str = ""
) -> tuple[int, ...]:
    """Return an array's shape; raise unless its shape (None: any extent) and type are right."""
    header = archive.header(name)
    if header.dtype.kind not in kinds:
        expected = "integers or floats" if "f" in kinds else "integers"
        raise GraphFileError(f"{name} has type {header.dtype}", expected=expected, do=do)
    pairs = zip(shape, header.shape, strict=False)
    fits = all(extent in (None, actual) for extent, actual in pairs)
    if not fits or len(header.shape) != len(shape):
        extents = ", ".join("any" if extent is None else str(extent) for extent in shape)
        raise GraphFileError(f"{name} has shape {header.shape}", expected=f"({extents})")
    return header.shape


def _read_layout(archive: NpzReader, name: str) -> LayoutGraph:
    program = _read_program(archive, name)
    nodes = len(program["node_feat"])
    ids = _integers(archive, "node_config_ids", 0, nodes - 1)
    if len(np.unique(ids)) != len(ids):
        got = "node_config_ids names a node twice"
        raise GraphFileError(got, expected="every node at most once")
    splits = _integers(archive, "node_splits", 0, nodes).reshape(-1)
    if (np.diff(splits) < 0).any():
        raise GraphFileError("node_splits goes down", expected="starts of computations in order")
    order = np.argsort(ids)  # features must not depend on the order in the file
    in_order = (np.diff(order) > 0).all()
    with closing(archive.stream("node_config_feat")) as blocks:  # closes the file after errors
        rows = (block if in_order else block[:, order] for block in blocks)
        table = ConfigTable.from_blocks(rows, configs=len(program["runtime"]), nodes=len(order))
    check_layouts(program["node_feat"], program["edges"], ids[order][table.node], table.rows)
    operands, dimensions = _read_dots(archive, program)
    return LayoutGraph(
        **program,
        splits=splits,
        configurable=ids[order],
        table=table,
        dot_operands=operands,
        dot_dimensions=dimensions,
    )


def _read_dots(
    archive: NpzReader, program: dict[str, Any]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the operands and the dimensions of the dots, -1 if the file does not have them."""
    nodes = np.flatnonzero(program["opcode"] == OPCODE["dot"])
    shapes = (len(nodes), 2), (len(nodes), len(DOT_DIMENSIONS), MAX_RANK)
    if "node_dot_operands" not in archive.names:
        return np.full(shapes[0], -1), np.full(shapes[1], -1)
    for name, shape in zip(("node_dot_operands", "node_dot_dimensions"), shapes, strict=True):
        _shape(archive, name, shape)
    operands = _integers(archive, "node_dot_operands", -1, len(program["node_feat"]) - 1)
    return operands, _integers(archive, "node_dot_dimensions", -1, MAX_RANK - 1)


def _read_tile(archive: NpzReader, name: str) -> TileGraph:
    program = _read_program(archive, name)
    config_feat = _float32(archive, "config_feat")
    _check_range("config_feat", config_feat, 0)
    normalizers = _integers(archive, "config_runtime_normalizers", 1)
    return TileGraph(**program, config_feat=config_feat, normalizers=normalizers)


def _read_program(archive: NpzReader, name: str) -> dict[str, Any]:
    node_feat = _float32(archive, "node_feat")
    nodes = len(node_feat)
    for title, columns, high in _INTEGER_COLUMNS:
        if high is not None:  # re-packed files are padded with -1, the dataset's with 0
            node_feat[:, columns] = np.where(node_feat[:, columns] == -1, 0, node_feat[:, columns])
        values = node_feat[:, columns]
        _check_range(f"{title} in node_feat", values, 0, high)
        if len(fractions := values[values % 1 != 0]):
            got = f"{title} in node_feat hold {fractions[0]}"
            raise GraphFileError(got, expected="whole numbers")
    elements = np.maximum(node_feat[:, SIZES], 1).prod(axis=1, dtype=np.float64)
    if elements.max() > MAX_ELEMENTS:
        got = f"node {int(elements.argmax())} in node_feat has {elements.max():.3g} elements"
        raise GraphFileError(got, expected=f"at most {MAX_ELEMENTS:.3g}")
    opcode = _integers(archive, "node_opcode", 0, len(OPCODES) - 1)
    edges = _integers(archive, "edge_index", 0, nodes - 1)
    if has_cycle(edges, nodes):
        raise GraphFileError("edge_index holds a cycle", expected="operands before their consumers")
    return {
        "name": name,
        "node_feat": node_feat,
        "opcode": opcode,
        "edges": edges,
        "runtime": _integers(archive, "config_runtime", 0, MAX_RUNTIME, do=_NOT_MEASURED),
        "target": _read_target(archive),
    }


def _read_target(archive: NpzReader) -> str:
    """Return the name of hardware in an array of text; empty without the array."""
    if "target" not in archive.names:
        return ""
    header = archive.header("target")
    if header.dtype.kind != "U" or header.size != 1 or header.dtype.itemsize > _MAX_TARGET_BYTES:
        raise GraphFileError(f"target has type {header.dtype}", expected="one short text")
    target = str(archive.read("target").reshape(-1)[0])
    if not is_hardware(target):
        raise GraphFileError(f"target holds {target!r}", expected=WORDS)
    return target


def _integers(
    archive: NpzReader, name: str, low: int, high: int | None = None, do: str = ""
) -> NDArray[np.int64]:
    values = archive.read(name).astype(np.int64)
    _check_range(name, values, low, high, do)
    return values


def _float32(archive: NpzReader, name: str) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):  # overflow gives inf, which is refused
        values: NDArray[np.float32] = archive.read(name).astype(np.float32, copy=False)
    _check_range(name, values, -MAX_FEATURE, MAX_FEATURE)
    return values


def _check_range(
    name: str, values: NDArray[Any], low: float, high: float | None = None, do: str = ""
) -> None:
    """Raise `GraphFileError` unless all values are in a range; NaN is not."""
    bad = values[~((values >= low) & (values <= (np.inf if high is None else high)))]
    if bad.size:
        expected = f"{low} or more" if high is None else f"{low} to {high}"
        raise GraphFileError(f"{name} holds {bad.flat[0]}", expected=expected, do=do)
