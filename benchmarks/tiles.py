"""Collect tiles of many programs' kernels, estimated by the TPU's compiler.

    python -m benchmarks.tiles OUT [--seconds 240] [--limits 24]

Programs of `benchmarks.programs` and `benchmarks.programs.kernels`, families in turn; one whose
manifest is there is skipped, so that the command may be ended and run again. Reserved families are
never compiled. A sweep may take ``--seconds``; programs that cannot be compiled are listed in
``OUT/failed.txt``.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks import adopt
from benchmarks.collect_tiles import collect_tiles
from benchmarks.programs import MODULES, PROGRAMS, kernels
from xlarank.data.errors import XlarankError
from xlarank.data.families import program_family
from xlarank.data.hardware import DEFAULT_CHIP
from xlarank.pipelines.programs.compiler.session import Compiler

#: Never collected: their kernels are held out.
RESERVED = adopt.RESERVED | adopt.MEASURED
#: Families of the valid split.
VALID = frozenset(
    "tucker textcnn yolo multiquery towers separable generator squeezexcite conformer "
    "experts fcn retention steps "
    "otherconvolutions".split()
)


def programs() -> Iterator[tuple[str, str]]:
    """Yield names and ``module:function``: two single operations, then a network, in turn."""
    single = [(name, f"{kernels.__name__}:{name}") for name in kernels.PROGRAMS]
    places = {name: module.__name__ for module in MODULES for name in module.PROGRAMS}
    networks = [(name, f"{places[name]}:{name}") for name in PROGRAMS]
    # b is a with another batch size.
    networks.sort(key=lambda network: not network[0].endswith(("__a", "__c")))
    for turn in itertools.zip_longest(single[::2], single[1::2], networks):
        yield from (
            program for program in turn if program and program_family(program[0]) not in RESERVED
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=240.0)
    parser.add_argument("--limits", type=int, default=24)
    args = parser.parse_args()
    limit = args.seconds / (args.limits + 1)
    args.out.mkdir(parents=True, exist_ok=True)
    failed = args.out / "failed.txt"
    known = set(failed.read_text(encoding="utf-8").split("\n")) if failed.exists() else set()
    with Compiler(DEFAULT_CHIP, limit=args.seconds / 2) as compiler:
        for name, source in programs():
            if name in known:
                continue
            begun = time.monotonic()
            split = "valid" if program_family(name) in VALID else "train"
            try:
                found = collect_tiles(
                    source, args.out, compiler, limits=args.limits, limit=limit, split=split
                )
            except XlarankError as error:
                print(f"{name}: {error}", flush=True)
                with failed.open("a", encoding="utf-8") as stream:
                    stream.write(f"{name}\n")
                continue
            if found.fresh:
                seconds = time.monotonic() - begun
                print(
                    f"{name} {seconds:.0f} s: {found.statuses}, {sum(found.files.values())} tiles",
                    flush=True,
                )


if __name__ == "__main__":
    main()
