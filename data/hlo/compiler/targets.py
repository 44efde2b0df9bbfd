"""Chips that programs can be compiled for, with their clock rates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from xlarank.data.errors import CompilerError, did_you_mean


@dataclass(frozen=True)
class Target:
    """A chip to compile for, its smallest slice as libtpu calls it (empty for the CPU) and its clock."""

    name: str
    topology: str = ""
    megahertz: int = 0

    @property
    def estimated(self) -> bool:
        """Whether labels are the compiler's estimate and not a measurement."""
        return bool(self.topology)

    @property
    def source(self) -> str:
        """The middle part of a collection's name, ``layout:<source>:<search>``."""
        if self.name == DEFAULT_TARGET:  # the others name themselves
            return "tpu-estimate"
        return f"{self.name}-estimate" if self.estimated else self.name

    @property
    def labels(self) -> str:
        """What labels are, in words."""
        estimated = f"estimated by the TPU's compiler for {self.name}, not measured"
        return estimated if self.estimated else "measured on this machine's CPU"

    def nanoseconds(self, cycles: int) -> int:
        """Return the time of a number of cycles in whole nanoseconds.

        >>> TARGETS["tpu-v3"].nanoseconds(940)
        1000
        """
        return round(cycles * 1000 / self.megahertz)


#: Clocks: published for v3 (940 MHz) and v4 (1050 MHz); for v5e and v6e they follow from the published peak, 197
#: and 918 bf16 teraflop/s, over 2 x 4 matrix units of 128 x 128 and of 256 x 256. They scale labels, order nothing.
TARGETS: Final[dict[str, Target]] = {
    target.name: target
    for target in (
        Target("tpu-v3", "v3:2x2", 940),
        Target("tpu-v4", "v4:2x2x1", 1050),
        Target("tpu-v5e", "v5e:2x2", 1500),
        Target("tpu-v6e", "v6e:2x2", 1750),
        Target("cpu"),
    )
}


#: TpuGraphs was measured on it, and every shipped ranker is for it.
DEFAULT_TARGET: Final = "tpu-v3"


def target_of(name: str) -> Target:
    """Return the target of that name; raises `CompilerError` for any other."""
    try:
        return TARGETS[name]
    except KeyError:
        raise CompilerError(
            f"{name!r} is not a target", expected=", ".join(TARGETS), do=did_you_mean(name, TARGETS)
        ) from None
