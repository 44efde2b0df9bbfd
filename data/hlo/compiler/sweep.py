"""One module compiled under many limits of vector memory, in a child of `xlarank.data.hlo.compiler.service`.

The public option ``xla_tpu_scoped_vmem_limit_kib`` makes the compiler choose other tiles. Every outcome is a file
of its own in one folder: ``LIMIT.pb``, the compiled module, or ``LIMIT.txt``, why there is none.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from xlarank.data.hlo.compiler.xla import Xla

#: Stands for no limit but the compiler's own.
DEFAULT: Final = 0
#: KiB: below, nearly nothing compiles; above, the default of v3 and v4 begins.
_LEAST, _MOST = 512, 16384
_OPTION: Final = "xla_tpu_scoped_vmem_limit_kib"
_USED: Final = re.compile(rb'"used_scoped_memory_configs":\[\{"memory_space":"1","offset":"\d+","size":"(\d+)"')
#: Kernels that use less than this share of a limit would choose no other tile under it.
_UNTOUCHED: Final = 0.8
#: Which limit is being compiled: what a crash is blamed on.
RUNNING: Final = "running"


def sweep_limits(count: int) -> list[int]:
    """The default, then ``count`` limits in KiB, growing geometrically: what takes longest comes last.

    >>> sweep_limits(5)
    [0, 512, 1024, 2048, 4096, 8192]
    """
    return [DEFAULT, *(round(limit) for limit in np.geomspace(_LEAST, _MOST, count + 1)[:-1])]


def remaining(folder: Path, limits: list[int]) -> list[int]:
    """Limits without an outcome that may change something, by what the kernels use at the default."""
    first = folder / f"{DEFAULT}.pb"
    used = max(map(int, _USED.findall(first.read_bytes())), default=0) / 1024 if first.exists() else _MOST
    return [limit for limit in limits if limit * _UNTOUCHED <= used and not outcome(folder, limit)]


def outcome(folder: Path, limit: int) -> Path | None:
    """The file that says what came of a limit."""
    return next((path for end in ("pb", "txt") if (path := folder / f"{limit}.{end}").exists()), None)


def sweep(xla: Xla, module: bytes, folder: Path, limits: list[int]) -> None:
    """Compile a serialized module under each limit that has no outcome yet."""
    from xlarank.data.hlo.compiler.xla import first_line

    while left := remaining(folder, limits):
        (folder / RUNNING).write_text(str(left[0]), encoding="utf-8")
        options = {_OPTION: str(left[0])} if left[0] != DEFAULT else {}
        try:
            compiled = xla.compile(module, overrides=options).hlo_modules()[0].as_serialized_hlo_module_proto()
        except Exception as error:  # whatever it is, it concerns this limit alone
            fail(folder, left[0], first_line(error))
        else:
            partial = folder / "partial"
            partial.write_bytes(compiled)
            partial.replace(folder / f"{left[0]}.pb")


def fail(folder: Path, limit: int, message: str) -> None:
    """Keep why a limit has no module."""
    (folder / f"{limit}.txt").write_text(message, encoding="utf-8")
