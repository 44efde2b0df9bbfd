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
from xlarank.data.passwords import without_passwords
from xlarank.data.workspace import DEFAULT_ROOT

#: Below ``reports/`` of the workspace, one JSON object a line.
RUNS: Final = "runs.jsonl"


@dataclass
class _Run:
    command: str = ""
    began: float = field(default_factory=time.time)
    arguments: list[str] = field(default_factory=lambda: sys.argv[1:])
    config: dict[str, Any] | None = None
    workspace: Path | None = None


_run = _Run()


def begin(command: str = "") -> None:
    global _run
    _run = _Run(command)


def command() -> str:
    """Return the name of the command that runs."""
    return _run.command


def workspace_option() -> str:
    """Return the option that names the command's workspace to another command; empty for the default one."""
    default = _run.workspace in (None, DEFAULT_ROOT)
    return "" if default else f" --workspace {shlex.quote(str(_run.workspace))}"


def configured(path: Path, values: dict[str, Any]) -> None:
    _run.config = {"file": str(path), "values": values}


def worked_in(workspace: Path) -> None:
    """The command writes to this workspace."""
    _run.workspace = workspace


def end(code: object) -> None:
    """Append the record to the workspace, if there is one; write errors are ignored."""
    if _run.workspace is None or not os.path.isdir(_run.workspace):
        return
    entry = {
        "began": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(_run.began)),
        "seconds": round(time.time() - _run.began, 1),
        "version": xlarank.__version__,
        "arguments": without_passwords(_run.arguments),
        "config": without_passwords(_run.config),
        "exit": code,
    }
    with suppress(ImportError):  # not on Windows
        import resource

        of = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        peak = max(resource.getrusage(who).ru_maxrss for who in of)  # the largest single process
        entry["peak_mb"] = round(peak / (1 << 20 if sys.platform == "darwin" else 1 << 10))
    from xlarank.data.files import regular_no_link

    reports = _run.workspace / "reports"
    with suppress(OSError):
        reports.mkdir(exist_ok=True)
        with open(reports / RUNS, "a", encoding="utf-8", opener=regular_no_link) as stream:
            stream.write(json.dumps(entry, default=str) + "\n")
    begin()
