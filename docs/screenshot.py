"""Picture of the README: real output of `rank` and `evaluate` on the embedded sample.

Run `python docs/screenshot.py`. It trains `layout:cpu:random` in a temporary workspace, runs the
shown commands and writes docs/assets/screenshot.svg.
"""

import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

ROOT: Final = Path(__file__).resolve().parent.parent
PICTURE: Final = ROOT / "docs/assets/screenshot.svg"
WIDTH: Final = 100
PREPARED: Final = "train -c layout:cpu:random --seeds 1 --rounds 100"
#: Commands, with the beginnings of the first shown line and of the line after the last one.
SHOWN: Final = (
    ("rank data/sample/npz/layout/nvidia-h200/random/valid/mlp_train__a.npz --top 6", "", "next:"),
    ("evaluate -c layout:cpu:random", "ranker", "next:"),
)


def output_of(command: str, folder: str) -> list[str]:
    """Return the lines that a command prints in a folder, with their colours."""
    words = [sys.executable, str(ROOT / "run.py"), *shlex.split(command)]
    settings = {"COLUMNS": str(WIDTH), "FORCE_COLOR": "1", "OMP_WAIT_POLICY": "passive"}
    done = subprocess.run(
        words, cwd=folder, env=os.environ | settings, check=True, capture_output=True, text=True
    )
    return done.stdout.splitlines()


def part(lines: list[str], first: str, end: str) -> str:
    """Return the lines from the one that begins with ``first`` to before that with ``end``."""
    plain = [Text.from_ansi(line).plain for line in lines]
    start = next(at for at, line in enumerate(plain) if line.startswith(first) and line)
    stop = next(at for at, line in enumerate(plain) if at > start and line.startswith(end))
    return "\n".join(lines[start:stop])


def main() -> None:
    """Write the picture."""
    with (
        tempfile.TemporaryDirectory() as folder,
        open(os.devnull, "w", encoding="utf-8") as nowhere,
    ):
        (Path(folder) / "data").symlink_to(ROOT / "data")
        output_of(PREPARED, folder)
        console = Console(record=True, width=WIDTH, file=nowhere, force_terminal=True)
        for command, first, end in SHOWN:
            console.print(Text(f"$ xlarank {command}", "bold green"))
            console.print(Text.from_ansi(part(output_of(command, folder), first, end)))
            console.print()
    # The page fetches no fonts.
    code = re.sub(r"@font-face {{.*?}}\s*", "", CONSOLE_SVG_FORMAT, flags=re.S)
    console.save_svg(str(PICTURE), title="xlarank", code_format=code)


if __name__ == "__main__":
    main()
