"""Pictures of the README: output of `rank` and `evaluate` on the embedded sample.

Run `python docs/screenshot.py`. It trains `layout:cpu:random` in a temporary workspace, runs the
shown commands and writes docs/assets/COMMAND.svg. Some columns are left out, so that the pictures
can be read on a phone.
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
PICTURES: Final = ROOT / "docs/assets"
#: Characters in a line of the picture, and in one of the output.
WIDTH: Final = 56
OUTPUT_WIDTH: Final = 100
PREPARED: Final = "train -c layout:cpu:random --seeds 1 --rounds 100"
#: Commands, and the shown parts of their output: the beginnings of the first line and of the line
#: after the last one, and a pattern of the columns to leave out, in the first line.
SHOWN: Final = (
    (
        "rank data/sample/npz/layout/nvidia-h200/random/valid/mlp_train__a.npz --top 6",
        (("mlp", "place", ""), ("place", "the", "score.*µs  "), ("the", "next:", "")),
    ),
    (
        "evaluate -c layout:cpu:random",
        (
            ("layout:", "graph", ""),
            ("ranker", "times", "(?<=Kendall tau).*"),
            ("times", "next:", ""),
        ),
    ),
)


def output_of(command: str, folder: str) -> list[Text]:
    """Return the lines that a command prints in a folder, with their colours."""
    words = [sys.executable, str(ROOT / "run.py"), *shlex.split(command)]
    settings = {"COLUMNS": str(OUTPUT_WIDTH), "FORCE_COLOR": "1", "OMP_WAIT_POLICY": "passive"}
    done = subprocess.run(
        words, cwd=folder, env=os.environ | settings, check=True, capture_output=True, text=True
    )
    return [Text.from_ansi(line) for line in done.stdout.splitlines()]


def part(lines: list[Text], first: str, end: str, left_out: str) -> list[Text]:
    """Return the lines from ``first`` up to ``end``, without the columns ``left_out``."""
    start = next(at for at, line in enumerate(lines) if line.plain.startswith(first))
    stop = next(at for at, line in enumerate(lines) if at > start and line.plain.startswith(end))
    if not left_out:
        return lines[start:stop]
    columns = re.search(left_out, lines[start].plain)
    assert columns is not None, f"not in the output: {left_out}"
    return [line[: columns.start()] + line[columns.end() :] for line in lines[start:stop]]


def main() -> None:
    """Write the pictures."""
    # The page fetches no fonts.
    code = re.sub(r"@font-face {{.*?}}\s*", "", CONSOLE_SVG_FORMAT, flags=re.S)
    with (
        tempfile.TemporaryDirectory() as folder,
        open(os.devnull, "w", encoding="utf-8") as nowhere,
    ):
        (Path(folder) / "data").symlink_to(ROOT / "data")
        output_of(PREPARED, folder)
        for command, parts in SHOWN:
            console = Console(record=True, width=WIDTH, file=nowhere, force_terminal=True)
            console.print(Text(f"$ xlarank {command}", "bold green"))
            lines = output_of(command, folder)
            for first, end, left_out in parts:
                console.print(*part(lines, first, end, left_out), sep="\n")
            picture = PICTURES / f"{command.split()[0]}.svg"
            console.save_svg(str(picture), title="xlarank", code_format=code)


if __name__ == "__main__":
    main()
