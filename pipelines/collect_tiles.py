"""Tiles of a program's kernels with the estimates of the TPU's compiler, without a TPU."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from xlarank.data.collection import SPLITS
from xlarank.data.errors import CompilerError
from xlarank.data.files import write_json
from xlarank.data.hlo.compiler.session import Compiler
from xlarank.data.hlo.compiler.sweep import DEFAULT, outcome, sweep_limits
from xlarank.data.hlo.compiler.targets import DEFAULT_TARGET, Target, target_of
from xlarank.data.hlo.kernels import NO_ESTIMATE, Kernel, cut_kernels
from xlarank.data.hlo.messages import HloModuleProto
from xlarank.data.hlo.tuning import tile_row
from xlarank.data.writing import write_graph
from xlarank.pipelines.programs.sources import (
    Collected,
    existing_manifest,
    label_settings,
    label_words,
    load_module,
)

#: Kernels with fewer tiles order little.
LEAST_TILES: Final = 5


@dataclass(frozen=True)
class TileSettings:
    """What labels depend on, beside the program and the compiler's version.

    Attributes:
        target: a name of `xlarank.data.hlo.compiler.targets.TARGETS` that is a TPU.
        limits: how many limits of vector memory the program is compiled under, beside the default.
        limit: seconds of one compilation on average; all of them may take ``limits`` times as long.
    """

    target: str = DEFAULT_TARGET
    limits: int = 24
    limit: float = 120.0


@dataclass
class _Found:
    """A kernel with the tiles it was given; the first estimate is that under the largest limit."""

    kernel: Kernel
    cycles: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = field(default_factory=dict)
    unknown: int = 0


def collect_tiles(
    program: str,
    out: Path,
    settings: TileSettings,
    *,
    split: str = "train",
    name: str | None = None,
    compiler: Compiler | None = None,
) -> Collected:
    """Write ``npz/tile/<source>/<split>/NAME_DIGEST.npz`` below ``out`` for every kernel, and a manifest.

    ``program`` is a file of HLO or ``module:function`` as for `xlarank.pipelines.collect.collect`. It is compiled
    under limits of vector memory; a kernel's tiles are those met, the first row being the compiler's default
    under the largest limit, whose estimate (ns) is the normalizer, the others in shuffled order. A kernel that is
    there already, from another program or split, stays as it is; one with fewer than `LEAST_TILES` is left out.
    Run again after a kill, it goes on where it was and gives the same files.
    Raises `CompilerError` where the compiler is missing, or the program does not compile at its default.
    """
    target = target_of(settings.target)
    if not target.estimated or split not in SPLITS:
        raise CompilerError(
            f"there are no tiles for {target.name} or no split {split}", expected="a TPU; train, valid or test"
        )
    if compiler is None:
        with Compiler(target, limit=settings.limit) as compiler:
            return collect_tiles(program, out, settings, split=split, name=name, compiler=compiler)
    name, lowered = load_module(program, compiler, name)
    module = HloModuleProto.FromString(lowered.module)
    about = label_settings(name, module, compiler, settings)
    folder = out / "npz" / "tile" / target.source / split
    path = folder / f"{name}.json"
    done = existing_manifest(path, about)
    if done is not None:
        return Collected(path, done, fresh=False)
    limits = sweep_limits(settings.limits)
    scratch = folder / f".{name}.sweep"
    _begin(scratch, about)
    compiler.sweep(module, scratch, limits, settings.limit * len(limits))
    if not (scratch / f"{DEFAULT}.pb").exists():
        why = scratch / f"{DEFAULT}.txt"
        raise CompilerError(
            f"the program does not compile for {target.name} ({why.read_text(encoding='utf-8')})",
            do=f"try another --target, or more seconds; to begin anew remove {scratch}",
        )
    manifest = about | {
        "source": label_words(target),
        "limits_kib": {str(limit): _said(scratch, limit) for limit in limits},
        "kernels": [_write(one, name, folder, target) for one in _kernels(scratch, limits)],
    }
    write_json(path, manifest)
    shutil.rmtree(scratch)
    return Collected(path, manifest, fresh=True)


def _begin(scratch: Path, about: dict[str, Any]) -> None:
    """Keep what a sweep was begun with; outcomes of another one are no use."""
    scratch.mkdir(parents=True, exist_ok=True)
    note = scratch / "about.json"
    if note.exists() and json.loads(note.read_text(encoding="utf-8")) != json.loads(json.dumps(about)):
        shutil.rmtree(scratch)
        scratch.mkdir()
    write_json(note, about)


def _said(scratch: Path, limit: int) -> str:
    """What came of a limit, in a word or in the compiler's words."""
    file = outcome(scratch, limit)
    if file is None:
        return "as the default"
    return "ok" if file.suffix == ".pb" else file.read_text(encoding="utf-8")


def _kernels(scratch: Path, limits: list[int]) -> list[_Found]:
    """Kernels in the order in which they are met, from the largest limit down."""
    found: dict[str, _Found] = {}
    for limit in [limits[0], *reversed(limits[1:])]:
        file = scratch / f"{limit}.pb"
        if not file.exists():
            continue
        for kernel in cut_kernels(HloModuleProto.FromString(file.read_bytes())):
            one = found.setdefault(kernel.digest, _Found(kernel))
            if kernel.cycles >= NO_ESTIMATE:
                one.unknown += 1
            else:
                one.cycles.setdefault((kernel.kernel, kernel.output), kernel.cycles)
    return list(found.values())


def _write(found: _Found, program: str, folder: Path, target: Target) -> dict[str, Any]:
    """Write a kernel's file where it is worth one; its entry in the manifest."""
    kernel, tiles = found.kernel, list(found.cycles)
    entry = {
        "digest": kernel.digest,
        "opcode": kernel.opcode,
        "tiles": len(tiles),
        "tiles_without_estimate": found.unknown,
    }
    if len(tiles) < LEAST_TILES:
        return entry | {"status": "fewer than 5 tiles", "file": None}
    own = folder / f"{program}_{kernel.digest}.npz"
    there = sorted(folder.parent.glob(f"*/*_{kernel.digest}.npz"))
    if there and own not in there:
        return entry | {"status": "of another program", "file": there[0].stem}
    rng = np.random.default_rng(int(kernel.digest, 16))
    order = [tiles[at] for at in (0, *rng.permutation(np.arange(1, len(tiles))).tolist())]
    labels = np.array([target.nanoseconds(found.cycles[tile]) for tile in order], np.int64)
    write_graph(
        own,
        **kernel.program,
        config_feat=np.array([tile_row(*tile) for tile in order], np.int64).astype(np.float32),
        config_runtime=labels,
        config_runtime_normalizers=np.full(len(labels), labels[0], np.int64),
    )
    return entry | {"status": "written", "file": own.stem}
