"""Users' files of blocks: loaded, checked, referred to by recipes, and named when they fail."""

from __future__ import annotations

import hashlib
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stdout
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Any, Final, get_args

from xlarank.data.errors import BlockError, XlarankError, reason_of
from xlarank.data.graph import Kind
from xlarank.features.block import Block, Cause, Scope, Tier
from xlarank.features.catalogue import BLOCKS, checked

#: Entry-point group of modules that define blocks.
GROUP: Final = "xlarank.blocks"
#: Errors that are raised as they are in a user's block.
_NOT_OF_BLOCKS: Final = (XlarankError, MemoryError, KeyboardInterrupt)


@dataclass(frozen=True)
class BlockFile:
    """Reference of a recipe to a file of blocks; reading the recipe does not run the file.

    Attributes:
        name: name of the file without folders, or of the entry point.
        source_hash: hash of the text.
        columns: class name of each block -> its column names.
    """

    name: str = field(compare=False)
    source_hash: str
    columns: dict[str, list[str]] = field(compare=False)

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The blocks; raises `BlockError` unless this version is loaded or of an entry point."""
        if self not in _loaded and self.name in entry_points(group=GROUP).names:
            load_blocks(self.name)
        if self in _loaded:
            return _loaded[self]
        if any(file.name == self.name for file in _loaded):
            got = f"{self.name} has changed"
            do = "pass that version, or run build-features and train again"
        else:
            got = f"the model needs the blocks of {self.name}"
            do = f"pass `blocks={self.name}`"
        raise BlockError(got, expected=f"the version with hash {self.source_hash}", do=do)

    def __reduce__(self) -> tuple[Callable[..., BlockFile], tuple[Any, ...]]:
        """Pickle together with the source, so that worker processes can load it."""
        if self not in _loaded:
            return BlockFile, (self.name, self.source_hash, self.columns)
        return (_run, (self.name, _sources[self])) if self in _sources else (_load, (self.name,))


#: Blocks of the files that this process has loaded; equal source is one file.
_loaded: dict[BlockFile, tuple[Block, ...]] = {}
#: Source of those that were run; entry points have none.
_sources: dict[BlockFile, str] = {}


def load_blocks(*names: str | Path) -> tuple[BlockFile, ...]:
    """Run Python files or import entry points of `GROUP`; return references to them.

    Raises `BlockError` for a file that cannot be run or has no blocks, for a block without a
    docstring and for malformed or duplicate columns.
    """
    files = tuple(dict.fromkeys(map(_load, names)))
    blocks = [block for file in files for block in file.blocks]
    _check(blocks, " and ".join(file.name for file in files))
    return files


def loaded_blocks() -> tuple[Block, ...]:
    """Return the blocks of all files that this process has loaded."""
    return tuple(chain.from_iterable(_loaded.values()))


def _text_hash(source: str) -> str:
    return hashlib.sha256(source.encode()).hexdigest()[:16]


def _load(name: str | Path) -> BlockFile:
    path = Path(name)
    for entry in entry_points(group=GROUP, name=str(name)) if not path.exists() else ():
        with _converting_errors("cannot be loaded", [(entry.name, entry.name)], always=True):
            module = entry.load()
            return _register(entry.name, module, _text_hash(inspect.getsource(module)))
    try:
        source = path.read_text("utf-8")
    except (OSError, UnicodeError) as error:
        installed = ", ".join(entry_points(group=GROUP).names) or "none is installed"
        expected = f"a Python file, or an entry point of {GROUP} ({installed})"
        raise BlockError(f"{name} cannot be read ({error})", expected=expected) from error
    return _run(path.name, source)


def _run(name: str, source: str) -> BlockFile:
    with _converting_errors("cannot be loaded", [(name, name)], always=True):
        digest = _text_hash(source)
        for file in _loaded:
            if file.source_hash == digest:
                return file
        module = ModuleType(f"xlarank_blocks_{digest}")
        sys.modules[module.__name__] = module  # dataclasses look it up
        exec(compile(source, name, "exec"), vars(module))
        file = _register(name, module, digest)
        _sources[file] = source
        return file


def _register(name: str, module: ModuleType, digest: str) -> BlockFile:
    members = filter(inspect.isclass, vars(module).values())
    own = [cls for cls in members if cls.__module__ == module.__name__ and issubclass(cls, Block)]
    blocks = tuple(cls() for cls in own if not inspect.isabstract(cls))
    if not blocks:
        expected = "subclasses of xlarank.features.block.Block"
        raise BlockError(f"{name} has no blocks", expected=expected)
    _check(blocks, name)
    file = BlockFile(name, digest, {block.title: list(block.columns) for block in blocks})
    _loaded[file] = blocks
    return file


def _check(blocks: Sequence[Block], name: str) -> None:
    try:
        checked(*BLOCKS, *blocks)
        for block in blocks:
            _check_attributes(block)
    except (TypeError, ValueError, AttributeError) as error:
        raise BlockError(f"{name} cannot be used ({error})") from error


def _check_attributes(block: Block) -> None:
    """Convert texts to scope, tier and cause; raise `TypeError` or `ValueError` for bad values."""
    title = block.title
    for attribute, enumeration in (("scope", Scope), ("tier", Tier), ("cause", Cause)):
        setattr(block, attribute, enumeration(getattr(block, attribute)))
    kinds = {*block.kinds}
    if not kinds or not kinds <= {*get_args(Kind)}:
        allowed = ", ".join(get_args(Kind))
        raise TypeError(f"{title} is of kinds {block.kinds}, not among {allowed}")
    if not isinstance(block.transductive, bool):
        raise TypeError(f"{title} has transductive {block.transductive!r}, not True or False")
    if not block.columns:
        raise TypeError(f"{title} has no columns")
    for meaning in block.columns.values():
        Cause(getattr(meaning, "cause", None) or block.cause)


def naming_lines(graph: str, files: Sequence[BlockFile]) -> AbstractContextManager[None]:
    """Convert errors in these files, sys.exit included, to a `BlockError` with the line."""
    blocks = [(file.name, block) for file in files for block in file.blocks]
    paths = dict.fromkeys((name, block.location.co_filename) for name, block in blocks)
    return _converting_errors(f"fails on {graph}", [*paths])


@contextmanager
def _converting_errors(
    action: str, files: Sequence[tuple[str, str]], *, always: bool = False
) -> Iterator[None]:
    """Convert errors in these files (name and path in tracebacks), with ``always`` all errors.

    Output of the files goes to standard error.
    """
    try:
        with redirect_stdout(sys.stderr) if files else nullcontext():
            yield
    except _NOT_OF_BLOCKS:
        raise
    except BaseException as error:
        frames = traceback.extract_tb(error.__traceback__)
        for name, path in files:
            lines = [f", line {frame.lineno}," for frame in frames if frame.filename == path]
            if lines or always:
                where = f"{name}{lines[-1] if lines else ''}"
                cause = f"{type(error).__name__}: {reason_of(error)}"
                raise BlockError(f"{where} {action} ({cause})") from error
        raise
