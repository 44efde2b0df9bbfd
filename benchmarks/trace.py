"""How far a reader has to go to follow a command: the modules and the classes that it enters."""

from __future__ import annotations

import sys
import tempfile
import threading
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import CodeType, FrameType

import run
from xlarank.cli import main

ROOT = Path(run.__file__).resolve().parent
PACKAGES = ("data", "features", "models", "pipelines", "xlarank")


def entered(words: Sequence[str]) -> tuple[set[Path], set[type]]:
    """Return the project modules whose functions a command calls in any thread, except while they
    are imported, and the classes whose methods it calls.

    Generated constructors are no methods here. Of a subclass and its base, the class of the object
    counts. The command line is left out.
    """
    files = set[str]()
    classes = set[type]()
    importing = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal importing
        code = frame.f_code
        if code.co_name == "<module>":
            importing += {"call": 1, "return": -1}.get(event, 0)
        elif event == "call" and not importing:
            files.add(code.co_filename)
            owner = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
            owner = owner if isinstance(owner, type) else type(owner)
            if _counts(owner) and code in _methods(owner):
                classes.add(owner)

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
    folders = [ROOT / package for package in PACKAGES]
    modules = {path for path in paths if any(map(path.is_relative_to, folders))}
    return modules, classes


def _counts(owner: type) -> bool:
    package, _, module = owner.__module__.partition(".")
    return package == "xlarank" and not module.startswith("cli.")


@cache
def _methods(owner: type) -> set[CodeType]:
    """Return the code of the methods and properties of a class and its bases."""
    codes = set()
    for base in owner.__mro__:
        for member in vars(base).values():
            for name in ("fget", "func", "__func__"):  # property, cached property, class method
                member = getattr(member, name, member)
            code = getattr(member, "__code__", None)
            if code is not None and Path(code.co_filename).is_file():
                codes.add(code)
    return codes


def compare() -> None:
    """Print the modules, lines and classes of four commands on the embedded sample, in a temporary
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
        traces = {
            words[0]: entered([*words, "--workspace", f"{folder}/work"]) for words in commands
        }
    files, classes = (
        set().union(*parts) for parts in zip(traces["train"], traces["rank"], strict=True)
    )
    traces["train and rank"] = files, classes
    for name, (paths, owners) in traces.items():
        lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths)
        counts = f"{len(paths):3} modules {lines:7,} lines {len(owners):3} classes"
        print(f"{name:20} {counts}")
    print("classes of train and rank:", ", ".join(sorted(owner.__name__ for owner in classes)))


if __name__ == "__main__":
    compare()
