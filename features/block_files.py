"""User-defined blocks in Python files or installed packages."""

from __future__ import annotations

import hashlib
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple, get_args

from xlarank.data.errors import BlockError, XlarankError
from xlarank.data.graph import Kind
from xlarank.features.block import Block, Scope
from xlarank.features.catalogue import BLOCKS, checked
from xlarank.features.source_code import text_of

#: Entry-point group of modules that define blocks.
GROUP: Final = "xlarank.blocks"


@dataclass(frozen=True)
class BlockFile:
    """A recipe's reference to a file of blocks; only `load_blocks` runs the file.

    Attributes:
        name: name of the file without folders, or of the entry point.
        source_hash: hash of the code without comments and docstrings.
        columns: class name of each block -> its column names.
    """

    name: str = field(compare=False)
    source_hash: str
    columns: dict[str, list[str]] = field(compare=False)

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The blocks; raises `BlockError` unless this version of the file was loaded."""
        if self.source_hash not in _loaded and self.name in entry_points(group=GROUP).names:
            load_blocks(self.name)
        if self.source_hash in _loaded:
            return _loaded[self.source_hash].blocks
        if any(loaded.file.name == self.name for loaded in _loaded.values()):
            got, do = f"{self.name} has changed", "pass that version, or run build-features and train again"
        else:
            got, do = f"the model needs the blocks of {self.name}", f"pass `blocks={self.name}`"
        raise BlockError(got, expected=f"the version with hash {self.source_hash}", do=do)

    def __reduce__(self) -> tuple[Callable[..., BlockFile], tuple[Any, ...]]:
        """Pickle together with the source, so that worker processes can load it."""
        if loaded := _loaded.get(self.source_hash):
            return (_run, (self.name, loaded.source)) if loaded.source else (_load, (self.name,))
        return BlockFile, (self.name, self.source_hash, self.columns)


class _Loaded(NamedTuple):
    file: BlockFile
    blocks: tuple[Block, ...]
    source: str  # empty for an entry point


#: Files that this process has loaded, by hash.
_loaded: dict[str, _Loaded] = {}


def load_blocks(*names: str | Path) -> tuple[BlockFile, ...]:
    """Run Python files, or the modules of entry points of `GROUP`, and return their blocks.

    Raises `BlockError` for a file that cannot be run or has no blocks, for a block without a docstring and for
    malformed or duplicate columns.
    """
    files = tuple(dict.fromkeys(map(_load, names)))
    _check([block for file in files for block in file.blocks], " and ".join(file.name for file in files))
    return files


def loaded_blocks() -> tuple[Block, ...]:
    """Return the blocks of all files that this process has loaded."""
    return tuple(block for loaded in _loaded.values() for block in loaded.blocks)


def _load(name: str | Path) -> BlockFile:
    path = Path(name)
    for entry in entry_points(group=GROUP, name=str(name)) if not path.exists() else ():
        module = entry.load()
        return _register(entry.name, module, _digest(inspect.getsource(module)))
    try:
        source = path.read_text("utf-8")
    except (OSError, UnicodeError) as error:
        installed = ", ".join(entry_points(group=GROUP).names) or "none is installed"
        expected = f"a Python file, or an entry point of {GROUP} ({installed})"
        raise BlockError(f"{name} cannot be read ({error})", expected=expected) from error
    return _run(path.name, source)


def _run(name: str, source: str) -> BlockFile:
    try:
        if (digest := _digest(source)) in _loaded:
            return _loaded[digest].file
        module = ModuleType(f"xlarank_blocks_{digest}")
        sys.modules[module.__name__] = module  # dataclasses look it up
        exec(compile(source, name, "exec"), vars(module))
    except Exception as error:
        raise BlockError(
            f"{name}{_line(error, name)} cannot be loaded ({type(error).__name__}: {error})"
        ) from error
    return _register(name, module, digest, source)


def _register(name: str, module: ModuleType, digest: str, source: str = "") -> BlockFile:
    classes = [cls for cls in vars(module).values() if inspect.isclass(cls) and cls.__module__ == module.__name__]
    blocks = tuple(cls() for cls in classes if issubclass(cls, Block) and not inspect.isabstract(cls))
    if not blocks:
        raise BlockError(f"{name} has no blocks", expected="subclasses of xlarank.features.block.Block")
    _check(blocks, name)
    file = BlockFile(name, digest, {type(block).__name__: list(block.columns) for block in blocks})
    _loaded[digest] = _Loaded(file, blocks, source)
    return file


def _check(blocks: Sequence[Block], name: str) -> None:
    try:
        checked([*BLOCKS, *blocks])
        for block in blocks:
            if block.scope is Scope.INSTANCE or not {*block.kinds} <= {*get_args(Kind)}:
                known = f"{Scope.GRAPH} or {Scope.CONFIG}, and kinds among {', '.join(get_args(Kind))}"
                raise TypeError(f"{type(block).__name__} is of {block.scope} and kinds {block.kinds}, not {known}")
    except (TypeError, AttributeError) as error:
        raise BlockError(f"{name} cannot be used ({error})") from error


def _digest(source: str) -> str:
    return hashlib.sha256(text_of(source).encode()).hexdigest()[:16]


def _line(error: Exception, name: str) -> str:
    """Return ", line N," for the line of the file that raised the error; empty if other code raised it."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == name]
    return f", line {lines[-1]}," if lines else ""


@contextmanager
def naming_lines(graph: str, files: Sequence[BlockFile]) -> Iterator[None]:
    """Convert errors raised in these files to a `BlockError` that names the line."""
    try:
        yield
    except Exception as error:
        for file in files if not isinstance(error, XlarankError | MemoryError) else ():
            if line := _line(error, file.name):
                got = f"{file.name}{line} fails on {graph} ({type(error).__name__}: {error})"
                raise BlockError(got) from error
        raise
