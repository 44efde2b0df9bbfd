"""Record of commands in the workspace: arguments, version, time, memory and exit code."""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import xlarank
from xlarank.data.files import regular_no_link
from xlarank.data.passwords import without_password

#: File in the workspace's ``reports/``, one JSON object per line.
RUNS: Final = "runs.jsonl"


@dataclass
class Run:
    """A running command.

    Attributes:
        workspace: workspace that the command writes to.
        words: parts of the line about the next command (`xlarank.cli.app.Guide.then`).
    """

    command: str = ""
    config: dict[str, Any] | None = None
    workspace: Path | None = None
    words: dict[str, str] = field(
        default_factory=lambda: dict.fromkeys(("work", "data", "collection", "blocks"), "")
    )
    arguments: list[str] = field(default_factory=lambda: sys.argv[1:])
    began: float = field(default_factory=time.time)

    def keep(self, *words: object) -> None:
        """Record a file, a name or an option for the next command."""
        self.words["file"] = shlex.join(map(str, words))

    def end(self, code: object) -> None:
        """Append the record to the workspace, if there is one; write errors are ignored."""
        if self.workspace is None or not os.path.isdir(self.workspace):
            return
        entry = {
            "began": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.began)),
            "seconds": round(time.time() - self.began, 1),
            "version": xlarank.__version__,
            "arguments": without_passwords(self.arguments),
            "config": without_passwords(self.config),
            "exit": code,
        }
        with suppress(ImportError):  # not on Windows
            import resource

            processes = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
            peak = max(resource.getrusage(process).ru_maxrss for process in processes)  # the largest single one
            entry["peak_mb"] = round(peak / (1 << 20 if sys.platform == "darwin" else 1 << 10))
        reports = self.workspace / "reports"
        with suppress(OSError):
            reports.mkdir(exist_ok=True)
            with open(reports / RUNS, "a", encoding="utf-8", opener=regular_no_link) as stream:
                stream.write(json.dumps(entry, default=str) + "\n")


def without_passwords(value: Any, option: str = "") -> Any:
    """Hide passwords in command-line words or a configuration.

    >>> without_passwords(["tune", "--storage=mysql://me:secret@host/db", "--storage", "password=x"])
    ['tune', '--storage=mysql://me:***@host/db', '--storage', '***']
    """
    if isinstance(value, dict):
        return {name: without_passwords(entry, f"--{name}") for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [without_passwords(entry, str(word)) for word, entry in zip([option, *value], value, strict=False)]
    if isinstance(value, str) and value.startswith("--storage="):
        return "--storage=" + without_password(value.removeprefix("--storage="))
    hidden = isinstance(value, str) and (option == "--storage" or "://" in value)
    return without_password(value) if hidden else value


#: Running command.
run = Run()
