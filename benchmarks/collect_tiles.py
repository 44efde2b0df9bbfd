"""Tiles of a program's kernels with the estimates of the TPU's compiler, without a TPU.

XLA:TPU writes the tile of every fusion, convolution, reduction, ... into its backend configuration:
window bounds ``kernel``, ``output`` and ``input``, with the two minor dimensions in hardware tiles
as in TpuGraphs, and the estimated cycles of the whole operation.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

import numpy as np

from xlarank.data.errors import HloError
from xlarank.data.files import atomic_write, write_json
from xlarank.data.hlo.encoding import Arrays, encode_kernel, fused_computations, tile_row
from xlarank.data.hlo.messages import HloModuleProto, Message
from xlarank.data.schema import OPCODE
from xlarank.data.writing import write_graph
from xlarank.pipelines.programs.collect import existing_manifest, label_settings
from xlarank.pipelines.programs.compiler.chips import Chip
from xlarank.pipelines.programs.compiler.session import Compiler
from xlarank.pipelines.programs.compiler.xla import Outcome, Program, Xla
from xlarank.pipelines.programs.sources import default_error, load_program
from xlarank.pipelines.support.progress import steps_of

MIN_TILES: Final = 5
#: Arrays of a kernel that its digest is made from.
_HASHED: Final = ("node_feat", "node_opcode", "edge_index")
#: Minimum cycles that mean no estimate: the compiler writes 2^63 - 1, or adds 2^60 to a sum.
NO_ESTIMATE: Final = 2**60
#: Limit that stands for the compiler's default.
_DEFAULT: Final = 0
#: Limits in KiB: below the minimum little compiles; the maximum is the default of v3 and v4.
_MIN_LIMIT = 512
_MAX_LIMIT = 16384
_USED: Final = re.compile(
    rb'"used_scoped_memory_configs":\[\{"memory_space":"1","offset":"\d+","size":"(\d+)"'
)
#: A limit does not change the tile of a kernel that uses less than this share of it.
_UNTOUCHED: Final = 0.8


@dataclass(eq=False)
class CollectedKernel:
    """An operation of a compiled program, encoded as a ``program`` with hash ``digest``.

    Attributes:
        tiles: estimated cycles by (kernel bounds, output bounds).
        unknown: number of operations without an estimate, summed over the limits.
    """

    opcode: str
    program: Arrays
    digest: str
    tiles: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = field(default_factory=dict)
    unknown: int = 0


@dataclass(frozen=True)
class CollectedTiles:
    """Manifest of a program's tiles; ``fresh``: whether they were collected now."""

    path: Path
    manifest: dict[str, Any]
    fresh: bool

    @property
    def statuses(self) -> dict[str, int]:
        """Number of kernels by status."""
        return dict(Counter(kernel["status"] for kernel in self.manifest["kernels"]))

    @property
    def files(self) -> dict[str, int]:
        """Number of tiles of each kernel written for this program, by file."""
        written = [kernel for kernel in self.manifest["kernels"] if kernel["status"] == "written"]
        return {kernel["file"]: kernel["tiles"] for kernel in written}


def collect_tiles(
    program: str,
    out: Path,
    compiler: Compiler,
    *,
    limits: int = 24,
    limit: float = 120.0,
    split: str = "train",
) -> CollectedTiles:
    """Write ``npz/tile/<source>/<split>/NAME_DIGEST.npz`` of every kernel, in ``out``.

    ``program`` is a file of HLO or ``module:function`` as for
    `xlarank.pipelines.programs.collect.collect`. A kernel's tiles are those that the compiler
    chooses under ``limits`` limits of vector memory, besides the default; a compilation takes at
    most ``limit`` seconds on average. The first row is the choice under the default
    or else the largest limit with this kernel, whose estimate (ns) is the normalizer; other rows
    are shuffled. A kernel with a file from another program or split, or with fewer than
    `MIN_TILES`, is not written. An interrupted run resumes when repeated. Raises `CompilerError`
    if the first compilation fails.
    """
    target = compiler.target
    loaded = load_program(program, compiler)
    identity = label_settings(loaded, compiler, limits=limits, limit=limit)
    folder = out / "npz" / "tile" / target.source / split
    path = folder / f"{loaded.name}.json"
    if (stored := existing_manifest(path, identity)) is not None:
        return CollectedTiles(path, stored, fresh=False)
    # after the default, the longest compilations last
    smaller = np.geomspace(_MIN_LIMIT, _MAX_LIMIT, limits + 1)[:-1]
    all_limits = [_DEFAULT, *map(round, smaller.tolist())]
    scratch = folder / f".{loaded.name}.{_digest_of(identity)}.sweep"
    _sweep(compiler, loaded, scratch, all_limits, limit * len(all_limits))
    if (result := _result(scratch, _DEFAULT)) != "ok":
        default = Outcome("failed", message=result)
        raise default_error(loaded.module, default, target.name)
    kernels: dict[str, CollectedKernel] = {}
    for kib in [_DEFAULT, *reversed(all_limits[1:])]:  # from the largest down
        if (file := scratch / f"{kib}.pb").exists():
            add_tiles(kernels, HloModuleProto.FromString(file.read_bytes()))
    records = [_write_kernel(kernel, loaded.name, folder, target) for kernel in kernels.values()]
    manifest = identity | {
        "source": target.labels,
        "limits_kib": {str(kib): _result(scratch, kib) for kib in all_limits},
        "kernels": records,
    }
    write_json(path, manifest)
    shutil.rmtree(scratch)
    return CollectedTiles(path, manifest, fresh=True)


def _sweep(
    compiler: Compiler, program: Program, folder: Path, limits: list[int], seconds: float
) -> None:
    """Compile under `remaining` limits; write ``LIMIT.pb``, or the error to ``LIMIT.txt``."""
    end = time.monotonic() + seconds
    waiting = remaining(folder, limits)
    title = f"compiling {program.name} under limits of memory"
    with steps_of(title, len(waiting)) as step:
        while waiting:
            limit = waiting[0]
            result: bytes | str = f"not compiled within {seconds:.3g} s in all"
            if (seconds_left := end - time.monotonic()) > 0:
                result = _under_limit(compiler, program.module, limit, seconds_left)
            path = folder / f"{limit}.pb"
            if isinstance(result, str):
                path = path.with_suffix(".txt")
                result = result.encode()
            with atomic_write(path) as partial:
                partial.write_bytes(result)
            planned = len(waiting) - 1
            waiting = remaining(folder, limits)
            step(f"{limit} KiB" if limit else "default", more=len(waiting) - planned)


def _under_limit(compiler: Compiler, module: Message, kib: int, seconds: float) -> bytes | str:
    """Return the module compiled under a limit of vector memory (0: the default), or the error."""
    work = partial(compile_under_limit, module=module.SerializeToString(), kib=kib)
    answer = compiler.ask(work, seconds)
    return answer if isinstance(answer, bytes) else answer.message


def compile_under_limit(xla: Xla, folder: Path, *, module: bytes, kib: int) -> bytes:
    """Return the serialized module compiled under a limit of vector memory (0: the default)."""
    compiled = xla.compile(module, {"xla_tpu_scoped_vmem_limit_kib": str(kib)} if kib else {})
    return cast(bytes, compiled.hlo_modules()[0].as_serialized_hlo_module_proto())


def _digest_of(settings: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:8]


def remaining(folder: Path, limits: list[int]) -> list[int]:
    """Return the limits without a file that may change the choice of a tile; first the default."""
    default = folder / f"{_DEFAULT}.pb"
    tried = {path.stem for path in folder.glob("*.*")}
    if not default.exists():  # nothing follows a default that does not compile
        return [_DEFAULT] if str(_DEFAULT) not in tried else []
    used = max(map(int, _USED.findall(default.read_bytes())), default=0) / 1024
    low_enough = [limit for limit in limits if limit * _UNTOUCHED <= used]
    return [limit for limit in low_enough if str(limit) not in tried]


def _result(folder: Path, limit: int) -> str:
    """Return "ok", "as the default" or the compiler's message."""
    if (folder / f"{limit}.pb").exists():
        return "ok"
    error = folder / f"{limit}.txt"
    return error.read_text(encoding="utf-8") if error.exists() else "as the default"


def add_tiles(kernels: dict[str, CollectedKernel], module: Message) -> None:
    """Add the tiles of a compiled program to ``kernels``, keyed by digest, in program order.

    Operations on arrays in vector memory are skipped: they cost less, which no column shows.
    """
    fused = fused_computations(module)
    for computation in module.computations:
        if computation.id in fused:
            continue
        shapes = {instruction.id: instruction.shape for instruction in computation.instructions}
        for instruction in computation.instructions:
            arrays = [instruction.shape, *(shapes[operand] for operand in instruction.operand_ids)]
            if (window := _window(instruction)) is None or any(map(_in_vector_memory, arrays)):
                continue
            with suppress(HloError):  # the format cannot express it
                program = encode_kernel(_cut_out(module, computation, instruction))
                content = b"".join(program[name].tobytes() for name in _HASHED)
                digest = hashlib.sha256(content).hexdigest()[:12]
                new = CollectedKernel(instruction.opcode, program, digest)
                kernel = kernels.setdefault(digest, new)
                kernel_bounds = tuple(map(int, window.get("kernel_window_bounds", ())))
                output_bounds = tuple(map(int, window.get("output_window_bounds", ())))
                if (cycles := int(window["estimated_cycles"])) >= NO_ESTIMATE:
                    kernel.unknown += 1
                else:
                    kernel.tiles.setdefault((kernel_bounds, output_bounds), cycles)


def _cut_out(module: Message, computation: Message, instruction: Message) -> Message:
    """Return a module with one instruction, what it calls, and a parameter per operand."""
    computations = {computation.id: computation for computation in module.computations}
    needed = list(instruction.called_computation_ids)
    for number in needed:  # extended by the computations that each one calls
        for inner in computations[number].instructions:
            needed += [id for id in inner.called_computation_ids if id not in needed]
    cut = HloModuleProto(name=instruction.name)
    cut.computations.extend(computations[number] for number in computations if number in needed)
    entry_id = 1 + max(computations, default=0)
    entry = cut.computations.add(name="main", id=entry_id, root_id=instruction.id)
    operands = {operand.id: operand for operand in computation.instructions}
    for number, operand in enumerate(dict.fromkeys(instruction.operand_ids)):
        entry.instructions.add(
            name=f"parameter.{number}",
            opcode="parameter",
            id=operand,
            parameter_number=number,
            shape=operands[operand].shape,
        )
    entry.instructions.append(instruction)
    entry.instructions[-1].ClearField("control_predecessor_ids")
    return cut


def _window(instruction: Message) -> dict[str, Any] | None:
    """Return the tile and its cycles from the backend configuration; None if there are none."""
    if instruction.opcode not in OPCODE or b"estimated_cycles" not in instruction.backend_config:
        return None
    try:
        window: dict[str, Any] = json.loads(instruction.backend_config)["window_config"]
        has_estimate = int(window["estimated_cycles"]) > 0
        return window if has_estimate and window.get("output_window_bounds") else None
    except (ValueError, KeyError):
        return None


def _in_vector_memory(shape: Message) -> bool:
    return shape.layout.memory_space != 0 or any(map(_in_vector_memory, shape.tuple_shapes))


def _write_kernel(
    kernel: CollectedKernel, program: str, folder: Path, target: Chip
) -> dict[str, Any]:
    """Write the file of a kernel with enough tiles, and return its entry in the manifest."""
    tiles = list(kernel.tiles)
    entry = {
        "digest": kernel.digest,
        "opcode": kernel.opcode,
        "tiles": len(tiles),
        "tiles_without_estimate": kernel.unknown,
    }
    if len(tiles) < MIN_TILES:
        return entry | {"status": "fewer than 5 tiles", "file": None}
    path = folder / f"{program}_{kernel.digest}.npz"
    existing = sorted(folder.parent.glob(f"*/*_{kernel.digest}.npz"))
    if existing and path not in existing:
        return entry | {"status": "of another program", "file": existing[0].stem}
    rng = np.random.default_rng(int(kernel.digest, 16))
    order = [tiles[at] for at in (0, *rng.permutation(np.arange(1, len(tiles))).tolist())]
    labels = np.array([target.nanoseconds(kernel.tiles[tile]) for tile in order], np.int64)
    write_graph(
        path,
        target=target.name,
        **kernel.program,
        config_feat=np.array([tile_row(*tile) for tile in order], np.int64).astype(np.float32),
        config_runtime=labels,
        config_runtime_normalizers=np.full(len(labels), labels[0], np.int64),
    )
    return entry | {"status": "written", "file": path.stem}
