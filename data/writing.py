"""Writing of graph files, for imported and collected programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xlarank.data.errors import GraphFileError, naming
from xlarank.data.files import atomic_write
from xlarank.data.graph import LayoutGraph, TileGraph, read_archive
from xlarank.data.hardware import require_hardware
from xlarank.data.npz import NpzReader


def write_graph(
    path: str | Path, *, target: str = "", **arrays: NDArray[Any]
) -> LayoutGraph | TileGraph:
    """Write arrays to ``path`` in the TpuGraphs format and return the graph, as it is read.

    Both kinds of graphs have ``node_feat, node_opcode, edge_index, config_runtime``. Layout graphs
    add ``node_splits, node_config_ids, node_config_feat``, tile graphs ``config_feat,
    config_runtime_normalizers``. Configurations that were not measured have ``config_runtime`` 0.
    Layout graphs may add ``node_dot_operands, node_dot_dimensions``. The hardware ``target``
    (`xlarank.data.hardware`) is written as a text, which other readers ignore.

    Raises `GraphFileError` for arrays outside the format; ``path`` is then left as it was.

    Examples:
        >>> import tempfile, xlarank
        >>> arrays = dict(np.load(xlarank.SAMPLE / "npz/tile/cpu/valid/bmm_tb__a.npz"))
        >>> graph = xlarank.write_graph(tempfile.mkdtemp() + "/bmm__z.npz", target="cpu", **arrays)
        >>> graph.name, graph.target, graph.configs
        ('bmm__z', 'cpu', 64)
    """
    path = Path(path)
    contiguous: dict[str, Any] = {}
    if target:
        contiguous["target"] = np.array(require_hardware(target))
    for name, array in arrays.items():
        if array.dtype.hasobject:
            got = f"{path.name}: array {name} holds Python objects"
            raise GraphFileError(got, expected="plain numbers")
        contiguous[name] = np.ascontiguousarray(array)
    with atomic_write(path) as partial:
        with partial.open("wb") as stream:
            np.savez_compressed(stream, **contiguous)
        with NpzReader(partial) as archive, naming(path.name, "mend the arrays"):
            return read_archive(archive, path.name)
