"""How far a reader has to go to follow a command: the classes that it enters."""

from __future__ import annotations

import sys
import tempfile
import threading
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import CodeType, FrameType

from xlarank.cli import main
from xlarank.data.collection import SAMPLE


def entered(words: Sequence[str]) -> set[type]:
    """Return the classes whose methods a command calls in any thread, except during imports.

    Generated constructors are no methods here. Of a subclass and its base, the class of the object
    counts. The command line is left out.
    """
    classes = set[type]()
    importing = 0

    def note(frame: FrameType, event: str, argument: object) -> None:
        nonlocal importing
        code = frame.f_code
        if code.co_name == "<module>":
            importing += {"call": 1, "return": -1}.get(event, 0)
        elif event == "call" and not importing and code.co_argcount:
            owner = frame.f_locals.get(code.co_varnames[0])
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
    return classes


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
    """Print the classes of two commands on the embedded sample, in a temporary workspace."""
    graph = SAMPLE / "npz/layout/cpu/random/valid/unet__a.npz"
    with tempfile.TemporaryDirectory() as folder:
        entered(["build-features", "--workspace", folder])
        train = entered(["train", "--rounds", "25", "--seeds", "1", "--workspace", folder])
        rank = entered(["rank", str(graph), "--workspace", folder])
    for name, classes in {"train": train, "rank": rank, "train and rank": train | rank}.items():
        print(f"{name}: {len(classes)}:", ", ".join(sorted(owner.__name__ for owner in classes)))


if __name__ == "__main__":
    compare()
