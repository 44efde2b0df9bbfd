"""Chips that programs can be compiled for, with their clock rates."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from xlarank.data.errors import CompilerError, did_you_mean
from xlarank.data.hardware import DEFAULT_CHIP, is_hardware


@dataclass(frozen=True)
class Chip:
    """A chip to compile for.

    Attributes:
        topology: libtpu's name of its smallest slice; empty if programs are measured.
        megahertz: clock rate; 1000 if programs are measured, whose cycles are nanoseconds.
        device: display name, if programs are measured.
    """

    name: str
    topology: str = ""
    megahertz: int = 1000
    device: str = "CPU"

    @property
    def estimated(self) -> bool:
        """True if labels are estimated by the compiler, not measured."""
        return bool(self.topology)

    @property
    def source(self) -> str:
        """Middle part of a collection's name, ``layout:<source>:<search>``."""
        chip = "tpu" if self.name == DEFAULT_CHIP else self.name
        return f"{chip}-estimate" if self.estimated else self.name

    @property
    def labels(self) -> str:
        """Description of the labels."""
        if self.estimated:
            return f"estimated by the TPU's compiler for {self.name}"
        return f"measured on this machine's {self.device}"

    def nanoseconds(self, cycles: int) -> int:
        """Return the time of a number of cycles in whole nanoseconds.

        >>> CHIPS["tpu-v3"].nanoseconds(940)
        1000
        """
        return round(cycles * 1000 / self.megahertz)


#: Clock rates are published for v3 and v4, and derived for v5e and v6e from the published peaks,
#: 197 and 918 bf16 teraflop/s: 2 operations a cycle in each cell of 4 matrix units (v6e: an
#: assumption), of 128 x 128 and 256 x 256 cells. They scale labels without changing the order.
CHIPS: Final = {
    chip.name: chip
    for chip in (
        Chip("tpu-v3", "v3:2x2", 940),
        Chip("tpu-v4", "v4:2x2x1", 1050),
        Chip("tpu-v5e", "v5e:2x2", 1500),
        Chip("tpu-v6e", "v6e:2x2", 1750),
        Chip("cpu"),
        Chip("device", device="device"),
    )
}


def device_chip(kind: str) -> Chip:
    """Return the target of JAX's default device, by its kind.

    >>> device_chip("NVIDIA H100 80GB HBM3").name, device_chip("Tesla T4").name
    ('nvidia-h100', 'gpu-tesla-t4')
    >>> device_chip("TPU v5 lite").name, device_chip("cpu").name
    ('tpu-v5e', 'cpu')
    >>> CHIPS["tpu-v3"].source, device_chip("TPU v3").source  # estimated, measured
    ('tpu-estimate', 'tpu-v3')
    """
    words = re.sub(r"[- ]\d+gb.*", "", kind.lower()).replace(" lite", "e")
    name = re.sub(r"[^a-z0-9]+", "-", words).strip("-")
    if name == "cpu":
        return CHIPS["cpu"]
    return Chip(name if is_hardware(name) else f"gpu-{name}", device=kind)


def chip_named(name: str) -> Chip:
    """Return a target by name; raises `CompilerError` for an unknown name."""
    if name not in CHIPS:
        got = f"{name!r} is not a target"
        raise CompilerError(got, expected=", ".join(CHIPS), do=did_you_mean(name, CHIPS))
    return CHIPS[name]
