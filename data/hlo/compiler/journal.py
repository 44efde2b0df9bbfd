"""Journal of compiled configurations, one line of JSON each, from which a killed run is resumed."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Self

from xlarank.data.errors import WorkspaceError
from xlarank.data.files import read_text, regular_no_link
from xlarank.data.hlo.compiler.cycles import Estimate
from xlarank.data.hlo.compiler.outcome import Outcome, Status


class Journal:
    """Outcomes by configuration in a file that only grows; use as a context.

    ``settings`` are what labels depend on. Raises `WorkspaceError` when the file was begun with others or cannot be
    written. A last line that was cut off is dropped.
    """

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        self.path = path
        self.outcomes: dict[str, Outcome] = {}
        self.estimates: dict[str, Estimate] = {}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            text = read_text(path) if path.exists() else ""
            whole = text[: text.rfind("\n") + 1]
            self._read(whole, settings)
            self._stream: IO[str] = open(
                path, "r+" if path.exists() else "w", encoding="utf-8", opener=regular_no_link
            )
            self._stream.truncate(len(whole.encode()))
            self._stream.seek(0, 2)
            if not whole:
                self._append(dict(settings))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise WorkspaceError(
                f"{path} cannot be used ({error})", do="remove it, or pass another --out"
            ) from error

    def _read(self, text: str, settings: Mapping[str, Any]) -> None:
        lines = [json.loads(line) for line in text.splitlines()]
        if lines and lines[0] != json.loads(json.dumps(settings)):
            begun = lines[0]
            other = sorted(key for key in begun.keys() | settings.keys() if begun.get(key) != settings.get(key))
            raise WorkspaceError(
                f"{self.path} was started with another {' and '.join(other)}",
                expected=", ".join(f"{key} {begun.get(key, 'of an earlier version')}" for key in other),
                do="use those settings, remove the file, or pass another --out",
            )
        for line in lines[1:]:
            if "cycles" in line:
                self.estimates[line["fingerprint"]] = Estimate(int(line["cycles"]), int(line["unknown_loops"]))
            status, key = Status(line["status"]), line["fingerprint"]
            estimate = self.estimates[key] if status is Status.OK else Estimate(line.get("predicted", 0))
            text = zlib.decompress(base64.b64decode(line["text"])).decode() if "text" in line else ""
            outcome = Outcome(status, estimate, key, line["shared"], line["seconds"], line["message"], text)
            self.outcomes[line["configuration"]] = outcome

    def add(self, configuration: str, outcome: Outcome) -> None:
        """Append an outcome; it is on disk when this returns."""
        line: dict[str, Any] = {
            "configuration": configuration,
            "status": outcome.status,
            "fingerprint": outcome.fingerprint,
            "shared": outcome.shared,
            "seconds": round(outcome.seconds, 3),
            "message": outcome.message,
        }
        if outcome.status is Status.OK and outcome.fingerprint not in self.estimates:
            self.estimates[outcome.fingerprint] = outcome.estimate
            line["cycles"] = outcome.estimate.cycles
            line["unknown_loops"] = outcome.estimate.unknown_loops
        if outcome.status is Status.SCREENED:
            line["predicted"] = outcome.estimate.cycles
        if outcome.text:
            line["text"] = base64.b64encode(zlib.compress(outcome.text.encode())).decode()
        self.outcomes[configuration] = outcome
        self._append(line)

    def _append(self, line: dict[str, Any]) -> None:
        self._stream.write(json.dumps(line) + "\n")
        self._stream.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.close()
