"""Layouts that compilers assign, and bytes that they relayout: fixtures of the relayout model.

    python -m benchmarks.relayout_fixtures --cache FOLDER

Compiles programs of `benchmarks.programs` with random configurations by XLA:CPU, by XLA:GPU for a
described GPU (none is needed, but ``jax-cuda12-plugin`` and ``jax-cuda12-pjrt`` are) and by the
TPU's compiler (``libtpu``). The optimised modules are kept in the cache, so that an interrupted run
can be repeated.
"""

from __future__ import annotations

import argparse
import gzip
import pickle
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import permutations
from math import prod
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from xlarank.data.errors import CompilerError
from xlarank.data.files import atomic_write
from xlarank.data.graph import LayoutGraph
from xlarank.data.hlo.encoding import encode_program
from xlarank.data.hlo.messages import HloModuleProto, HloProto, Message, instructions
from xlarank.data.hlo.reading import module_graph
from xlarank.data.schema import ELEMENT_BYTES, MAX_RANK
from xlarank.features.layout.layout_context import LayoutContext
from xlarank.pipelines.programs.candidates import (
    CandidateLayouts,
    Codes,
    distinct_codes,
    row_of,
    settable,
)
from xlarank.pipelines.programs.compiler.chips import CHIPS, Chip
from xlarank.pipelines.programs.compiler.constrain import constrain, layouts_of
from xlarank.pipelines.programs.compiler.functions import lower
from xlarank.pipelines.programs.compiler.xla import POLL, Outcome, Xla, dumped, optimised_text

PROGRAMS: Final = """
attention:llama__a attention:bert__a attention:linattn__a attention:experts__a
attention:linattn_train__d numerical:tucker__a numerical:matrixproducts__a recommenders:fieldattn__a
recommenders:towers_train__d sequences:textcnn__a vision:alexnet__a vision:yolo__a
""".split()
CONFIGURATIONS: Final = 16
BACKENDS: Final = ("cpu", "gpu", "tpu")
OUT: Final = Path("tests/features/relayout_fixtures.npz")
#: Maximum seconds of one compilation.
_LIMIT: Final = 180.0
#: Back ends whose assigned layouts are stored -> programs left out: XLA:GPU has replaced their
#: convolutions.
_ASSIGNED: Final = {
    "cpu": (),
    "gpu": ("sequences:textcnn__a", "vision:alexnet__a", "vision:yolo__a"),
}
#: Arrays that are equal in all configurations of a program.
_STRUCTURE: Final = ("node_opcode", "edge_index", "node_dot_dimensions")
#: Name, element type, sizes, layout, opcode and first operand of an instruction.
_INSTRUCTION: Final = re.compile(
    r"^\s*(?:ROOT )?%?([\w.\-]+) = (\w+)\[([\d,]*)\]\{([\d,]*)[^}]*\} "
    r"([\w\-]+)\((?:[^%)]*)%?([\w.\-]+)?"
)
_DIMENSIONS: Final = re.compile(r"dimensions=\{([\d,]*)\}")
_BYTES: Final = ELEMENT_BYTES | {"f8e4m3fn": 1, "f8e5m2": 1, "s4": 1, "u4": 1}
#: Fractions of the nodes that a random configuration may set.
_ACTIVITY: Final = (0.05, 0.15, 0.3, 0.6, 1.0)
_GPU_OPTIONS: Final = {"xla_gpu_autotune_level": "0", "xla_gpu_enable_triton_gemm": False}
#: An H200 in the format of XLA's ``GpuTargetConfigProto``.
_GPU: Final = """
gpu_device_info {
  threads_per_block_limit: 1024 threads_per_warp: 32 shared_memory_per_block: 49152
  shared_memory_per_core: 233472 threads_per_core_limit: 2048 core_count: 132 fpus_per_core: 128
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  memory_bandwidth: 4917600000000 l2_cache_size: 52428800 clock_rate_ghz: 1.98
  device_memory_size: 150000000000 shared_memory_per_block_optin: 232448
  cuda_compute_capability { major: 9 minor: 0 feature_extension: ACCELERATED_FEATURES }
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 10 }
runtime_version { major: 12 minor: 8 }
device_description_str: "NVIDIA H200"
"""


class _DescribedGpu(Xla):
    """XLA:GPU for a described device; there is no device to load a program on."""

    def __init__(self) -> None:
        super().__init__(CHIPS["cpu"])
        from jax.experimental import topologies

        topology = topologies.get_topology_desc("", "cuda", target_config=_GPU, topology="1x1x1")
        self.__dict__["device"] = topology.devices[0]
        self.target = Chip("cpu", "1x1x1")  # a client of a topology compiles without loading


def _start(backend: str) -> Xla:
    if backend == "gpu":
        return _DescribedGpu()
    return Xla(CHIPS["cpu" if backend == "cpu" else "tpu-v3"])


def _in_child(work: Any, early: Any) -> Any:
    """Run ``work(folder)`` in a forked child until ``early(folder)`` gives a result; return it."""
    folder = Path(tempfile.mkdtemp(prefix="relayouts-"))
    child = get_context("fork").Process(target=work, args=(folder,))
    child.start()
    started = time.monotonic()
    try:
        while time.monotonic() - started < _LIMIT:
            running = child.is_alive()
            if (result := early(folder)) is not None:
                return result
            if not running:
                return None
            time.sleep(POLL)
        return None
    finally:
        child.kill()
        child.join()
        shutil.rmtree(folder, ignore_errors=True)


def _lowered(xla: Xla, program: str, path: Path) -> bytes:
    """Return the program's module before layout assignment, from the cache if it is there."""
    if not path.exists():
        work = partial(lower, xla, function=f"benchmarks.programs.{program}", module=b"")
        result = _in_child(work, dumped)
        if result is None or isinstance(result, Outcome):
            raise CompilerError(f"{program} cannot be lowered")
        path.write_bytes(result.serialized)
    return path.read_bytes()


def _text(xla: Xla, backend: str, module: bytes, path: Path) -> str | None:
    """Return the optimised module as text, from the cache if there; None if it does not compile."""
    if not path.exists():
        dump = {"xla_dump_hlo_as_text": True} | (_GPU_OPTIONS if backend == "gpu" else {})
        # the optimised module is dumped under another name for chips that are estimated
        target = CHIPS["tpu-v3" if backend == "tpu" else "cpu"]

        def work(folder: Path) -> None:
            xla.compile(module, {"xla_dump_to": str(folder), **dump})

        text = _in_child(work, partial(optimised_text, target=target))
        path.write_bytes(gzip.compress((text or "").encode()))
    return gzip.decompress(path.read_bytes()).decode() or None


@dataclass(frozen=True)
class Assigned:
    """A module before layout assignment, and the layouts that it chose, by instruction name."""

    serialized: bytes
    chosen: dict[str, tuple[int, ...]]


def _assigned_dumps(folder: Path) -> Assigned | None:
    """Return the dumps around the first layout assignment; None until both files are complete."""
    after = sorted(folder.glob("*after_layout-assignment*.pb"))
    before = dumped(folder)
    if before is None or not (content := after[0].read_bytes()):
        return None
    try:
        module = HloProto.FromString(content).hlo_module
    except DecodeError:  # still being written
        return None
    orders = {op.name: tuple(op.shape.layout.minor_to_major) for _, op in instructions(module)}
    return Assigned(before.serialized, orders)


def _assigned(xla: Xla, module: bytes, path: Path) -> Assigned:
    """Return the module and the layouts that are assigned, from the cache if there."""
    if not path.exists():

        def work(folder: Path) -> None:
            dumps = {"xla_dump_hlo_pass_re": "layout-assignment", "xla_dump_hlo_as_proto": True}
            options = _GPU_OPTIONS if isinstance(xla, _DescribedGpu) else {}
            xla.compile(module, {"xla_dump_to": str(folder), **dumps, **options})

        path.write_bytes(pickle.dumps(_in_child(work, _assigned_dumps)))
    assigned: Assigned = pickle.loads(path.read_bytes())
    return assigned


def _without_constraints(module: Message) -> dict[str, tuple[int, ...]]:
    """Remove constraints from a module; return the layouts that they set, by instruction name."""
    layouts = {}
    for computation in module.computations:
        operations = {operation.id: operation for operation in computation.instructions}
        replaced: dict[int, int] = {}
        kept = []
        for operation in computation.instructions:
            operands = [replaced.get(number, number) for number in operation.operand_ids]
            operation.operand_ids[:] = operands
            if operation.custom_call_target == "LayoutConstraint":
                replaced[operation.id] = operands[0]
                order = tuple(operation.shape.layout.minor_to_major)
                layouts.setdefault(operations[operands[0]].name, order)
            else:
                kept.append(operation.SerializeToString())
        computation.root_id = replaced.get(computation.root_id, computation.root_id)
        del computation.instructions[:]
        for serialized in kept:
            computation.instructions.add().MergeFromString(serialized)
    return layouts


def assigned_layouts(assigned: Sequence[Assigned]) -> dict[str, NDArray[Any]]:
    """Return a program's graph with the layouts set and those that a compiler assigns.

    Layouts are ``(configs, nodes, 6)``, -1 past the rank and for unknown ones. Configurations in
    which the compiler made another graph are left out.
    """
    arrays = dict[str, NDArray[Any]]()
    set_layouts = []
    layouts = []
    for lowered in assigned:
        module = HloModuleProto.FromString(lowered.serialized)
        constrained = _without_constraints(module)
        program = encode_program(module)
        names = [operation.name for _, operation in instructions(module)]
        arrays = arrays or program
        if not all(np.array_equal(arrays[key], program[key]) for key in _STRUCTURE):
            continue
        set_layouts.append([row_of(constrained.get(name, ())) for name in names])
        chosen = [lowered.chosen.get(name, ()) for name in names]
        layouts.append([(*order, *[-1] * (MAX_RANK - len(order))) for order in chosen])
    rows = np.array(set_layouts, np.int8)
    nodes = np.flatnonzero((rows >= 0).any(axis=(0, 2)))
    arrays["node_dot_operands"] = arrays["node_dot_operands"].astype(np.int32)
    return arrays | {
        "edge_index": arrays["edge_index"].astype(np.int32),
        "node_config_ids": nodes.astype(np.int32),
        "node_config_feat": rows[:, nodes],
        "assigned": np.array(layouts, np.int8),
    }


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",") if part]


def relayout_bytes(text: str) -> int:
    """Return the bytes read and written by copies and transposes, without padding.

    Instructions within fusions count as well. A copy to the same order, or a transpose that only
    renames dimensions, moves nothing; dimensions of size 1 have no order.
    """
    total = 0
    layouts: dict[str, tuple[list[int], list[int]]] = {}
    for line in text.splitlines():
        match = _INSTRUCTION.match(line)
        if not match:
            continue
        name, element, sizes, order, opcode, operand = match.groups()
        dims = _numbers(sizes)
        layout = _numbers(order)
        layouts[name] = dims, layout
        if opcode not in ("copy", "transpose") or operand not in layouts:
            continue
        operand_dims, operand_layout = layouts[operand]
        if opcode == "transpose":
            listed = _DIMENSIONS.search(line)
            permutation = _numbers(listed[1]) if listed else []
            layout = [permutation[dimension] for dimension in layout]
        before, after = (
            [d for d in order if operand_dims[d] != 1] for order in (operand_layout, layout)
        )
        if before != after:
            total += 2 * prod(dims) * _BYTES.get(element, 4)
    return total


def candidate_rows(
    graph: LayoutGraph, rng: np.random.Generator, *, per_node: int = 8
) -> CandidateLayouts:
    """Draw candidate rows for every configurable node of ``graph``.

    The compiler's choice comes first, then orders of the output's dimensions: the default order,
    the default order with one dimension made minor-most, and random ones. Small outputs are left to
    the compiler.
    """
    context = LayoutContext(graph)
    rows = []
    for node, is_settable in zip(graph.configurable, settable(context), strict=True):
        choices: dict[tuple[int, ...], None] = {(): None}
        if is_settable:
            default = tuple(context.default_layout[node, : context.rank[node]].tolist())
            for order in _orders(default, rng):
                if len(choices) >= per_node:
                    break
                choices[order] = None
        rows.append(np.array(list(map(row_of, choices)), np.int8))
    nodes = np.arange(len(rows))
    return CandidateLayouts(rows, nodes, np.zeros(len(rows), np.int64))


def _orders(default: tuple[int, ...], rng: np.random.Generator) -> Iterator[tuple[int, ...]]:
    """Yield the default order, those with another dimension minor-most, then all, shuffled."""
    yield default
    for dimension in rng.permutation(len(default)).tolist():
        yield (dimension, *(other for other in default if other != dimension))
    orders = list(permutations(range(len(default))))  # at most 6! = 720
    for at in rng.permutation(len(orders)).tolist():
        yield orders[at]


def random_configurations(
    candidates: CandidateLayouts, count: int, rng: np.random.Generator
) -> Codes:
    """Return up to ``count`` distinct codes ``(configs, nodes)``, the compiler's choice first.

    Each configuration draws from `_ACTIVITY` the share of nodes that it sets, then their rows.
    """

    def draw() -> NDArray[np.int32]:
        code = np.zeros(len(candidates.rows), np.int32)
        if len(candidates.free):
            active = candidates.free[rng.random(len(candidates.free)) < rng.choice(_ACTIVITY)]
            code[active] = rng.integers(1, candidates.choices[active])
        return code

    return distinct_codes(candidates, count, draw)


def collect(backend: str, cache: Path) -> dict[str, NDArray[Any]]:
    """Return the graphs of the programs for one back end, and bytes that it relayouts."""
    # XLA:GPU replaces convolutions before layout assignment.
    lowering = "tpu" if backend == "tpu" else "cpu"
    xla = _start(backend)
    arrays = dict[str, NDArray[Any]]()
    lowerer = xla if backend != "gpu" else _start("cpu")
    for program in PROGRAMS:
        name = program.partition(":")[2]
        serialized = _lowered(lowerer, program, cache / f"{name}.{lowering}.pb")
        module = HloModuleProto.FromString(serialized)
        graph = module_graph(module, Path(f"{name}.pb"))
        rng = np.random.default_rng(0)
        candidates = candidate_rows(graph, rng)
        rows = candidates.expand(random_configurations(candidates, CONFIGURATIONS, rng))
        started = time.monotonic()
        volumes = []
        assigned = []
        for number, row in enumerate(rows):
            edited = constrain(module, layouts_of(module, graph.configurable, row))
            path = cache / f"{name}.{backend}.{number}.txt.gz"
            text = _text(xla, backend, edited.SerializeToString(), path)
            volumes.append(-1 if text is None else relayout_bytes(text))
            if backend in _ASSIGNED and program not in _ASSIGNED[backend]:
                path = cache / f"{name}.{backend}.{number}.pickle"
                assigned.append(_assigned(xla, edited.SerializeToString(), path))
        print(f"{backend} {name} {time.monotonic() - started:.0f} s {volumes}", flush=True)
        arrays[f"volume/{backend}/{name}"] = np.array(volumes, np.int64)
        stored = {
            "node_feat": graph.node_feat,
            "node_opcode": graph.opcode.astype(np.uint8),
            "edge_index": graph.edges.astype(np.int32),
            "node_splits": graph.splits[None],
            "node_config_ids": graph.configurable.astype(np.int32),
            "node_config_feat": rows,
            "node_dot_operands": graph.dot_operands.astype(np.int32),
            "node_dot_dimensions": graph.dot_dimensions.astype(np.int8),
        }
        arrays |= {f"graph/{lowering}/{name}/{key}": array for key, array in stored.items()}
        for key, array in (assigned_layouts(assigned) if assigned else {}).items():
            arrays[f"layouts/{backend}/{name}/{key}"] = array
    return arrays


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cache", type=Path, required=True)
    args = parser.parse_args()
    args.cache.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, NDArray[Any]] = {}
    for backend in BACKENDS:
        arrays |= collect(backend, args.cache)
    with atomic_write(OUT) as path, path.open("wb") as stream:
        np.savez_compressed(stream, **arrays)  # type: ignore[arg-type]
    print(f"{OUT}: {OUT.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
