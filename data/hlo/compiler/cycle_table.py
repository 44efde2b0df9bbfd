"""Cycles per operation beside the labels of a graph file: extra arrays, which readers of the format pass over.

Configurations with the same optimised module share one program; programs share their operations. ``P`` programs and
``K`` distinct operations:

    cycles_program    (configs,) int32   which program a configuration became
    cycles_start      (P + 1,) int64     entries of program p are start[p]:start[p + 1], in program order
    cycles_operation  (entries,) int32   which operation
    cycles_value      (entries,) int64   its estimated cycles, all its runs together
    operation_name, operation_opcode, operation_shape, operation_source  (K,) bytes, UTF-8
    operation_node    (K,) int32         node that it stands for, -1 where not known; not in older files
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from xlarank.data.errors import GraphFileError
from xlarank.data.hlo.compiler.cycles import Estimate, Operation
from xlarank.data.npz import NpzReader

_TEXTS: Final = ("name", "opcode", "shape", "source")


def cycle_arrays(fingerprints: Sequence[str], estimates: Sequence[Estimate]) -> dict[str, NDArray[Any]]:
    """The arrays for configurations with these fingerprints and estimates, one each."""
    programs: dict[str, int] = {}
    operations: dict[tuple[str, str, str, str, int], int] = {}
    start, entries, values = [0], [], []
    for fingerprint, estimate in zip(fingerprints, estimates, strict=True):
        if fingerprint in programs:
            continue
        programs[fingerprint] = len(programs)
        for one in estimate.operations:
            key = (one.name, one.opcode, one.shape, one.source, one.node)
            entries.append(operations.setdefault(key, len(operations)))
            values.append(one.cycles)
        start.append(len(entries))
    arrays: dict[str, NDArray[Any]] = {
        "cycles_program": np.array([programs[fingerprint] for fingerprint in fingerprints], np.int32),
        "cycles_start": np.array(start, np.int64),
        "cycles_operation": np.array(entries, np.int32),
        "cycles_value": np.array(values, np.int64),
    }
    for place, text in enumerate(_TEXTS):
        arrays[f"operation_{text}"] = np.array([str(key[place]).encode() for key in operations], np.bytes_)
    arrays["operation_node"] = np.array([key[-1] for key in operations], np.int32)
    return arrays


@dataclass(frozen=True, eq=False)
class CycleTable:
    """Cycles per operation of every configuration of a file.

    Attributes:
        program: ``(configs,)`` which program a configuration became.
        estimates: one per program.
    """

    program: NDArray[np.int64]
    estimates: tuple[Estimate, ...]

    def of(self, config: int) -> Estimate:
        """The estimate of one configuration."""
        return self.estimates[int(self.program[config])]


def read_cycles(path: Path) -> CycleTable | None:
    """Cycles per operation in an npz file, or None when it has none.

    Raises `GraphFileError` for a file that cannot be read or whose arrays contradict one another.
    """
    with NpzReader(path) as archive:
        if "cycles_program" not in archive.names:
            return None
        texts = [[text.decode() for text in archive.read(f"operation_{name}").tolist()] for name in _TEXTS]
        program = archive.read("cycles_program").astype(np.int64)
        start, entries = archive.read("cycles_start").tolist(), archive.read("cycles_operation").tolist()
        values = archive.read("cycles_value").tolist()
        known = "operation_node" in archive.names
        nodes = archive.read("operation_node").tolist() if known else [-1] * len(texts[0])
    if (
        len({len(text) for text in (*texts, nodes)}) != 1
        or start[-1:] != [len(entries)]
        or len(values) != len(entries)
        or any(not 0 <= entry < len(texts[0]) for entry in entries)
        or any(not 0 <= one < len(start) - 1 for one in program.tolist())
    ):
        raise GraphFileError(
            f"{path.name}: the cycles per operation contradict one another", do="collect the file again"
        )
    name, opcode, shape, source = texts
    operations = [
        Operation(name[one], opcode[one], shape[one], source[one], value, nodes[one])
        for one, value in zip(entries, values, strict=True)
    ]
    pairs = pairwise(start)
    return CycleTable(program, tuple(Estimate(tuple(operations[low:high])) for low, high in pairs))
