"""What came of compiling one configuration."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from xlarank.data.hlo.compiler.cycles import Estimate


class Status(StrEnum):
    """Status of a compilation."""

    OK = "ok"
    FAILED = "failed"
    TIMEOUT = "timeout"
    CRASHED = "crashed"


@dataclass(frozen=True)
class Outcome:
    """The result for one module.

    Attributes:
        status: only ``ok`` has an estimate.
        estimate: what the compiler thinks of the program it made.
        fingerprint: of the optimised module; empty when it did not come that far.
        shared: the optimised module was known, so no code was generated.
        seconds: wall time from start to answer.
        message: what went wrong.
    """

    status: Status
    estimate: Estimate = field(default_factory=Estimate)
    fingerprint: str = ""
    shared: bool = False
    seconds: float = 0.0
    message: str = ""
