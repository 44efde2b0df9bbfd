"""The result of compiling one configuration; equal fingerprints of optimised modules have equal labels."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from xlarank.data.hlo.compiler.cycles import Estimate

#: An attribute that says where something came from; quoted text in it may hold braces.
_ORIGIN: Final = re.compile(
    r',?\s(?:metadata|frontend_attributes|original_value|origin)=\{(?:[^{}"]|"(?:[^"\\]|\\.)*"|\{[^{}]*\})*\}'
)
_NAME: Final = re.compile(r"%[\w.\-]+")


class Status(StrEnum):
    """Status of a compilation: given up where it took much longer than the program as it is, screened out where its
    optimised module promised nothing and no code was generated."""

    OK = "ok"
    FAILED = "failed"
    TIMEOUT = "timeout"
    GIVEN_UP = "given up"
    SCREENED = "screened"
    CRASHED = "crashed"


@dataclass(frozen=True)
class Outcome:
    """The result for one module.

    Attributes:
        status: only ``ok`` has an estimate.
        estimate: what the compiler thinks of the program it made; a prediction where it was screened out.
        fingerprint: of the optimised module; empty when it did not come that far.
        shared: the optimised module was known, so no code was generated.
        seconds: wall time from start to answer.
        message: what went wrong.
        text: the compiled program, where it was asked for and code was generated.
    """

    status: Status
    estimate: Estimate = field(default_factory=Estimate)
    fingerprint: str = ""
    shared: bool = False
    seconds: float = 0.0
    message: str = ""
    text: str = field(default="", repr=False)


def fingerprint(text: str) -> str:
    """A hash of an HLO module's text that does not change with names and origins of instructions.

    >>> one = "HloModule a\\nENTRY %m {\\n  ROOT %x.1 = f32[8] parameter(0), metadata={op_name=\\"x{\\"}\\n}"
    >>> fingerprint(one) == fingerprint(one.replace("x.1", "y.2").replace("Module a", "Module b"))
    True
    >>> fingerprint(one) == fingerprint(one.replace("[8]", "[9]"))
    False
    """
    body = "\n".join(line for line in text.splitlines() if not line.startswith("HloModule "))
    names: dict[str, str] = {}
    plain = _NAME.sub(lambda found: names.setdefault(found[0], f"%{len(names)}"), without_origins(body))
    return hashlib.sha256(plain.encode()).hexdigest()[:24]


def without_origins(text: str) -> str:
    """Return HLO text without the attributes that say where something came from."""
    return _ORIGIN.sub("", text)
