"""Results of compiling configurations, and the journal from which an interrupted run resumes.

Configurations whose optimised modules have equal fingerprints share a label.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from xlarank.data.errors import WorkspaceError
from xlarank.data.files import read_text, regular_no_link

#: Provenance attributes; quoted text in them may contain braces.
PROVENANCE: Final = re.compile(
    r",?\s(?:metadata|frontend_attributes|original_value|origin)="
    r'\{(?:[^{}"]|"(?:[^"\\]|\\.)*"|\{[^{}]*\})*\}'
)
NAME: Final = re.compile(r"%[\w.\-]+")
_COMPUTATION: Final = re.compile(r"^(?:ENTRY )?%", re.MULTILINE)


class Status(StrEnum):
    """Status of a compilation."""

    OK = "ok"
    FAILED = "failed"
    TIMEOUT = "timeout"
    CRASHED = "crashed"


@dataclass(frozen=True)
class Outcome:
    """Result of compiling one module.

    Attributes:
        cycles: the compiler's estimate if the status is ``ok``.
        unknown_loops: number of loops without a known trip count, whose bodies count once.
        fingerprint: hash of the optimised module; empty if there is none.
        shared: whether an equal optimised module was seen before, so that no code was generated.
        text: text of the compiled program, if requested and code was generated.
    """

    status: Status
    cycles: int = 0
    unknown_loops: int = 0
    fingerprint: str = ""
    shared: bool = False
    seconds: float = 0.0
    message: str = ""
    text: str = field(default="", repr=False)

    @property
    def estimate(self) -> tuple[int, int]:
        """Cycles, and number of loops that were counted once."""
        return self.cycles, self.unknown_loops


def fingerprint(text: str) -> str:
    """Hash an HLO module's text, ignoring names and origins of instructions."""
    first = _COMPUTATION.search(text)  # after the module's name and the tables of source lines
    body = text[first.start() :] if first else text
    return hashlib.sha256(numbered(PROVENANCE.sub("", body)).encode()).hexdigest()[:24]


def numbered(text: str) -> str:
    """Return HLO text with numbers in place of names."""
    names: dict[str, str] = {}
    return NAME.sub(lambda match: names.setdefault(match[0], f"%{len(names)}"), text)


class Journal(AbstractContextManager["Journal", None]):
    """Append-only file of outcomes by configuration and rounds of measurements; a context manager.

    An incomplete last line is dropped. Raises `WorkspaceError` if the file has other ``settings``
    or is unusable.
    """

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        self.path = path
        self.outcomes: dict[str, Outcome] = {}
        self.estimates: dict[str, tuple[int, int]] = {}
        self.rounds: list[dict[str, float | str]] = []
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            text = read_text(path) if path.exists() else ""
            complete = text[: text.rfind("\n") + 1]
            lines = [json.loads(line) for line in complete.splitlines()]
            self._read(lines, json.loads(json.dumps(settings)))
            mode = "r+" if path.exists() else "w"
            self._stream = open(path, mode, encoding="utf-8", opener=regular_no_link)
            self._stream.truncate(len(complete.encode()))
            self._stream.seek(0, 2)
            if not complete:
                self._append(dict(settings))
        except (OSError, ValueError, KeyError, TypeError) as error:
            got = f"{path} cannot be used ({error})"
            raise WorkspaceError(got, do="remove it, or pass another `out`") from error

    def _read(self, lines: list[dict[str, Any]], settings: dict[str, Any]) -> None:
        first = lines[0] if lines else settings
        keys = sorted(first | settings)
        if changed := [key for key in keys if first.get(key) != settings.get(key)]:
            got = f"{self.path} was started with another {' and '.join(changed)}"
            stored = (f"{key} {first.get(key, 'of an earlier version')}" for key in changed)
            do = "use those settings, remove the file, or pass another `out`"
            raise WorkspaceError(got, expected=", ".join(stored), do=do)
        for line in lines[1:]:
            if "round" in line:
                self.rounds.append(line["round"])
                continue
            configuration = line.pop("configuration")
            outcome = Outcome(Status(line.pop("status")), line.pop("cycles"), **line)
            self._remember(configuration, outcome)

    def _remember(self, configuration: str, outcome: Outcome) -> None:
        self.outcomes[configuration] = outcome
        if outcome.status is Status.OK:
            self.estimates.setdefault(outcome.fingerprint, outcome.estimate)

    def add(self, configuration: str, outcome: Outcome) -> None:
        """Append an outcome and flush it to the file."""
        self._remember(configuration, outcome)
        line = {"configuration": configuration, **asdict(outcome)}
        line["seconds"] = round(outcome.seconds, 3)
        del line["text"]
        self._append(line)

    def add_round(self, seconds: dict[str, float | str]) -> None:
        """Append a round of measurements: seconds, or the reason for failure, by fingerprint."""
        self.rounds.append(seconds)
        self._append({"round": seconds})

    def _append(self, line: dict[str, Any]) -> None:
        self._stream.write(json.dumps(line) + "\n")
        self._stream.flush()

    def __exit__(self, *_: object) -> None:
        self._stream.close()
