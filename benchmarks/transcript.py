"""Lines that a benchmark prints and, on request, leaves in a file."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Transcript:
    """Call it with each line: it is printed at once, and the file holds all lines so far."""

    out: Path | None
    lines: list[str] = field(default_factory=list)

    def __call__(self, line: str) -> None:
        self.lines.append(line)
        print(line, flush=True)
        if self.out:
            self.out.write_text("\n".join(self.lines).lstrip() + "\n", encoding="utf-8")
