"""Graph files of any size made from the structure of small real ones.

A layout graph is a chain of copies of one template's program, each the consumer of the one before, the first nodes
of its configurable ones as many as asked for. A configuration is put together from pieces of the template's own
configurations, drawn for each stretch of configurable nodes, so that a node takes exactly the rows it takes there
(5 to 9 in Google's files) and neighbours go together as they do there; some are measured repeatedly. Runtimes are
sums of a random cost for each piece: they can be ranked, but a score on them means nothing.
"""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from benchmarks.full_size_shapes import Shape
from xlarank.data.collection import discover
from xlarank.data.graph import LayoutGraph, TileGraph, read_graph

#: Configurable nodes that take their rows from one configuration of the template.
STRETCH: Final = 12
#: Configurations of a layout file that are different; AlexNet's real file has 0.63.
DISTINCT: Final = 0.65
_CHUNK_CELLS: Final = 1 << 18
#: As small as real files (1 to 2 bytes a cell) at twice the speed of numpy's own level 6.
_LEVEL: Final = 3
#: About as many nodes as the largest real programs have.
_MOST_NODES: Final = 45_000


@dataclass(frozen=True)
class Templates:
    """The graphs whose structure is copied, by source for layouts."""

    layout: dict[str, list[LayoutGraph]]
    tile: list[TileGraph]

    @classmethod
    def below(cls, npz: Path) -> Templates:
        """Read all files below an ``npz`` folder that have two configurations or more.

        Raises `ValueError` unless there are layout and tile graphs.
        """
        layout: dict[str, list[LayoutGraph]] = {}
        tile: list[TileGraph] = []
        for file in discover(npz):
            graph = read_graph(file.path, file.collection.kind)
            if graph.duplicates.distinct < 2:
                continue
            if isinstance(graph, LayoutGraph):
                layout.setdefault(file.collection.parts[1], []).append(graph)
            else:
                tile.append(graph)
        if not layout or not tile:
            raise ValueError(f"{npz} lacks layout or tile graphs to copy the structure of")
        return cls(layout, tile)

    def of(self, source: str) -> Sequence[LayoutGraph]:
        """Layout templates of a source, or of all sources where it has none."""
        return self.layout.get(source) or [graph for graphs in self.layout.values() for graph in graphs]


def write_layout(path: Path, shape: Shape, templates: Sequence[LayoutGraph], seed: int = 0) -> int:
    """Write one layout file; the bytes it unpacks to.

    The template is a random one of those that reach the configurable nodes with few enough nodes.
    """
    rng = np.random.default_rng([seed, *shape.name.encode()])
    template = _template(shape.configurable, templates, rng)
    each = len(template.configurable)
    copies = -(-shape.configurable // each)
    small = _program(template, copies)
    small["node_config_ids"] = small["node_config_ids"][: shape.configurable]
    stretch = np.arange(shape.configurable) // STRETCH
    drawn = max(2, round(DISTINCT * shape.configs))
    picks = rng.integers(0, template.configs, (drawn, int(stretch[-1]) + 1), dtype=np.int32)
    which = np.concatenate([np.arange(drawn), rng.integers(0, drawn, max(0, shape.configs - drawn))])
    which = rng.permutation(which[: shape.configs])
    cost = rng.gamma(2.0, 1.0, (picks.shape[1], template.configs))
    runtime = np.zeros(drawn)
    for number in range(picks.shape[1]):
        runtime += cost[number, picks[:, number]]
    runtime = (1e6 * runtime[which] * (1 + 1e-4 * rng.standard_normal(shape.configs))).astype(np.int64) + 1
    small["config_runtime"] = runtime * (shape.split != "test")
    own = np.arange(shape.configurable) % each
    rows = np.ascontiguousarray(template.table.rows, np.float32).view(f"V{template.table.rows.shape[1] * 4}")[:, 0]
    with _archive(path) as archive:
        for name, array in small.items():
            with archive.open(f"{name}.npy", "w") as out:
                npy_format.write_array(out, np.ascontiguousarray(array))
        with archive.open("node_config_feat.npy", "w", force_zip64=True) as out:
            shape_of = (shape.configs, shape.configurable, template.table.rows.shape[1])
            header = {"descr": "<f4", "fortran_order": False, "shape": shape_of}
            npy_format.write_array_header_1_0(out, header)
            step = max(1, _CHUNK_CELLS // shape.configurable)
            for start in range(0, shape.configs, step):
                chosen = picks[which[start : start + step]]
                out.write(rows[template.table.codes[chosen[:, stretch], own]].tobytes())
        unpacked = sum(info.file_size for info in archive.infolist())
    path.with_suffix(".partial").rename(path)
    return unpacked


def write_tile(path: Path, shape: Shape, templates: Sequence[TileGraph], seed: int = 0) -> int:
    """Write one tile file; the bytes it unpacks to.

    The program is that of a random template; each bound is drawn from the values that it takes there and the powers
    of two below them, and sum and product go with the bounds.
    """
    rng = np.random.default_rng([seed, *shape.name.encode()])
    template = templates[int(rng.integers(len(templates)))]
    config_feat = np.zeros((shape.configs, template.config_feat.shape[1]), np.float32)
    for first in range(0, config_feat.shape[1], 8):
        for column in range(first, first + 6):
            there = np.unique(template.config_feat[:, column])
            powers = 2.0 ** np.arange(int(np.log2(max(1.0, there.max()))) + 1)
            choice = np.union1d(there, powers) if there.max() > 0 else there
            config_feat[:, column] = rng.choice(choice, shape.configs)
        bounds = config_feat[:, first : first + 6]
        config_feat[:, first + 6], config_feat[:, first + 7] = bounds.sum(axis=1), bounds.prod(axis=1)
    runtime = rng.integers(10**4, 10**6, shape.configs) * (shape.split != "test")
    arrays: dict[str, NDArray[Any]] = {
        "node_feat": template.node_feat,
        "node_opcode": template.opcode.astype(np.uint8),
        "edge_index": template.edges,
        "config_feat": config_feat,
        "config_runtime": runtime.astype(np.int64),
        "config_runtime_normalizers": np.full(shape.configs, 10**5, np.int64),
    }
    with _archive(path) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w") as out:
                npy_format.write_array(out, np.ascontiguousarray(array))
        unpacked = sum(info.file_size for info in archive.infolist())
    path.with_suffix(".partial").rename(path)
    return unpacked


def _archive(path: Path) -> zipfile.ZipFile:
    path.parent.mkdir(parents=True, exist_ok=True)
    return zipfile.ZipFile(path.with_suffix(".partial"), "w", zipfile.ZIP_DEFLATED, compresslevel=_LEVEL)


def _template(configurable: int, templates: Sequence[LayoutGraph], rng: np.random.Generator) -> LayoutGraph:
    nodes = [t.nodes * -(-configurable // len(t.configurable)) for t in templates]
    fitting = [i for i, count in enumerate(nodes) if count <= _MOST_NODES]
    return templates[fitting[rng.integers(len(fitting))] if fitting else int(np.argmin(nodes))]


def _program(template: LayoutGraph, copies: int) -> dict[str, NDArray[Any]]:
    """Everything but the configurations: the template's program several times, one behind the other."""
    nodes, offsets = template.nodes, np.arange(copies) * template.nodes
    edges = (template.edges[None] + offsets[:, None, None]).reshape(-1, 2)
    sources = np.setdiff1d(np.arange(nodes), template.edges[:, 0])
    entry = int(sources[0]) if len(sources) else 0  # a node without operands takes the result of the copy before
    chain = np.stack([offsets[1:] + entry, offsets[:-1] + nodes - 1], axis=1)
    splits = np.append((template.splits[:-1][None] + offsets[:, None]).reshape(-1), copies * nodes)
    return {
        "node_feat": np.tile(template.node_feat, (copies, 1)),
        "node_opcode": np.tile(template.opcode, copies).astype(np.uint8),
        "edge_index": np.concatenate([edges, chain]).astype(np.int64),
        "node_splits": splits[None].astype(np.int64),
        "node_config_ids": (template.configurable[None] + offsets[:, None]).reshape(-1).astype(np.int64),
    }
