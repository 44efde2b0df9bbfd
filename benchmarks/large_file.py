"""Time and memory of building features from a huge layout file, against the number of configurations.

    python -m benchmarks.large_file [--configs 25000 50000 100000] [--configurable 1000] [--nodes 10000]
                                    [--folder D] [--tier full] [--json FILE]

Generates layout files (kept in the folder, not made again), builds the rows of each with ``build-features`` in a
process of its own, and prints seconds, seconds per 1000 configurations, peak memory and how much the file unpacks
to. The program is made of identical layers of convolutions, dots, reshapes and elementwise nodes with a few layouts
a node, as in the real collections; every configuration is different. With the defaults the largest file unpacks to
7.2 GB.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from xlarank.data.schema import LAYOUT_COLUMNS, NODE_COLUMN, NODE_COLUMNS, OPCODE

_OPCODES = ("parameter", "dot", "add", "reshape", "multiply", "dot", "tanh", "convolution", "add", "maximum")
_SHAPES = ((32, 128, 256), (128, 32, 64), (16, 256, 128))
_CHOICES = 6
_CHUNK = 500


def write_large_file(path: Path, *, configs: int, configurable: int, nodes: int, seed: int = 0) -> None:
    """A layout file in TpuGraphs' format, written configuration by configuration."""
    rng = np.random.default_rng(seed)
    kinds = np.array([OPCODE[name] for name in _OPCODES])[np.arange(nodes) % len(_OPCODES)]
    layer = np.arange(nodes) // len(_OPCODES)
    feat = np.zeros((nodes, len(NODE_COLUMNS)), np.float32)
    dims = np.array(_SHAPES)[layer % len(_SHAPES)]
    at = NODE_COLUMN["shape_dimensions_0"]
    feat[:, at : at + 3] = dims
    feat[:, NODE_COLUMN["shape_element_type_is_f32"]] = 1.0
    at = NODE_COLUMN["layout_minor_to_major_0"]
    feat[:, at : at + 3] = (2, 1, 0)
    first = np.maximum(np.arange(nodes) - 1, 0)
    second = np.maximum(np.arange(nodes) - rng.integers(2, 12, nodes), 0)
    edges = np.stack([np.repeat(np.arange(nodes), 2), np.stack([first, second], axis=1).reshape(-1)], axis=1)
    edges = edges[edges[:, 0] > edges[:, 1]]
    chooses = np.flatnonzero(np.isin(kinds, [OPCODE[name] for name in ("convolution", "dot", "reshape")]))
    ids = np.sort(rng.choice(chooses, min(configurable, len(chooses)), replace=False))
    orders = np.array([[0, 1, 2], [2, 1, 0], [1, 0, 2], [2, 0, 1], [0, 2, 1], [1, 2, 0]])
    rows = np.full((len(ids), _CHOICES, len(LAYOUT_COLUMNS)), -1.0, np.float32)
    for slot in range(3):
        rows[:, 1:, 6 * slot : 6 * slot + 3] = orders[rng.integers(0, len(orders), (len(ids), _CHOICES - 1))]
    rows[kinds[ids] == OPCODE["reshape"], :, 12:] = -1.0
    runtime = rng.integers(10**6, 10**8, configs)
    small: dict[str, NDArray[Any]] = {
        "node_feat": feat,
        "node_opcode": kinds.astype(np.uint8),
        "edge_index": edges.astype(np.int64),
        "node_config_ids": ids.astype(np.int64),
        "node_splits": np.array([[0, nodes]], np.int64),
        "config_runtime": runtime.astype(np.int64),
    }
    partial = path.with_suffix(".partial")
    with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, array in small.items():
            with archive.open(f"{name}.npy", "w") as out:
                npy_format.write_array(out, np.ascontiguousarray(array))
        with archive.open("node_config_feat.npy", "w", force_zip64=True) as out:
            header = {"descr": "<f4", "fortran_order": False, "shape": (configs, len(ids), len(LAYOUT_COLUMNS))}
            npy_format.write_array_header_1_0(out, header)
            for start in range(0, configs, _CHUNK):
                count = min(_CHUNK, configs - start)
                choice = rng.integers(0, _CHOICES, (count, len(ids)))
                out.write(rows[np.arange(len(ids)), choice].tobytes())
    partial.rename(path)


def build(root: Path, tier: str) -> dict[str, float]:
    """Build all rows below ``root``; seconds and peak memory of this process."""
    from xlarank.data.root import find_data_root
    from xlarank.data.workspace import Workspace
    from xlarank.features.block import Tier
    from xlarank.features.recipe import FeatureSettings
    from xlarank.pipelines.build_features import build_features

    with tempfile.TemporaryDirectory() as work:
        started = time.perf_counter()
        build_features(find_data_root(root), Workspace(Path(work)), settings=FeatureSettings(Tier(tier)), jobs=1)
        seconds = time.perf_counter() - started
    return {"seconds": seconds, "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--configs", type=int, nargs="+", default=[25_000, 50_000, 100_000])
    parser.add_argument("--configurable", type=int, default=1000)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "xlarank-large")
    parser.add_argument("--tier", default="full", choices=["fast", "full"])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(build(asked.one, asked.tier)))
        return
    entries = []
    for configs in asked.configs:
        root = asked.folder / f"{configs}x{asked.configurable}x{asked.nodes}"
        path = root / "npz" / "layout" / "made" / "random" / "train" / "large.npz"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            print(f"generating {configs:,} configurations", file=sys.stderr, flush=True)
            write_large_file(path, configs=configs, configurable=asked.configurable, nodes=asked.nodes)
        command = [sys.executable, "-m", "benchmarks.large_file", "--one", str(root), "--tier", asked.tier]
        measured = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(info.file_size for info in archive.infolist())
        entry = {
            "configs": configs,
            "unpacked_gb": round(unpacked / 1e9, 2),
            "seconds": round(measured["seconds"], 2),
            "seconds_per_1000": round(1000 * measured["seconds"] / configs, 4),
            "peak_rss_mb": round(measured["peak_mb"], 1),
        }
        entries.append(entry)
        print(json.dumps(entry), file=sys.stderr, flush=True)
    text = json.dumps(entries, indent=2)
    print(text)
    if asked.json:
        asked.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
