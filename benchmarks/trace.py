"""Project modules that a command enters, and their lines: how far a reader has to go to follow
it.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

import run
from xlarank.cli.app import main

ROOT = Path(run.__file__).resolve().parent
PACKAGES = ("data", "features", "models", "pipelines", "xlarank")


def entered(words: Sequence[str]) -> set[Path]:
    """Return the project modules whose functions a command calls in any thread, except while they
    are imported.
    """
    files = set[str]()
    importing = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal importing
        if frame.f_code.co_name == "<module>":
            importing += {"call": 1, "return": -1}.get(event, 0)
        elif event == "call" and not importing:
            files.add(frame.f_code.co_filename)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        sys.argv = ["run.py", "--quiet", *words]
        main()
    except SystemExit as ended:
        if ended.code:
            raise
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    paths = {Path(name).resolve() for name in files}
    return {
        path
        for path in paths
        if path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in PACKAGES
    }


def compare() -> None:
    """Print the modules and lines of four commands on the embedded sample, in a temporary
    workspace.
    """
    graph = ROOT / "data/sample/npz/layout/cpu/random/valid/unet__a.npz"
    with tempfile.TemporaryDirectory() as folder:
        commands = [
            ["build-features", "--jobs", "1"],
            ["train", "--rounds", "25", "--seeds", "1"],
            ["submit", "--out", f"{folder}/submission.csv"],
            ["rank", str(graph)],
        ]
        modules = {
            words[0]: entered([*words, "--workspace", f"{folder}/work"]) for words in commands
        }
    modules["the first three"] = set().union(*[*modules.values()][:3])
    for name, paths in modules.items():
        lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)
        print(f"{name:20} {len(paths):3} modules {lines:7,} lines")


if __name__ == "__main__":
    compare()
