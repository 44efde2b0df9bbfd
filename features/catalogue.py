"""Built-in blocks, those of users' files, the settings that choose columns, and the hash of the
code.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple, get_args

from xlarank.data.collection import Collection
from xlarank.data.errors import BlockError, XlarankError, reason_of
from xlarank.data.graph import Kind
from xlarank.features.block import Block, Cause, Scope, Tier
from xlarank.features.candidates import LAYOUT_PLACES, RELAYOUT_PLACES, TILE_PLACES, Frequency
from xlarank.features.instances import instance_blocks
from xlarank.features.layout import change, copies, padding, relayout_blocks
from xlarank.features.layout.hardware import HARDWARE, hardware_of
from xlarank.features.program import composition, tensors
from xlarank.features.tile import bounds, tpu_time

#: Entry-point group of modules that define blocks.
GROUP: Final = "xlarank.blocks"
_ROOT: Final = Path(__file__).parent.parent
#: Files that do not affect computed columns.
_PRESENTATION: Final = ("data/errors.py", "features/attribution.py", "features/meanings.py")
#: Errors that are raised as they are in a user's block.
_NOT_OF_BLOCKS: Final = (XlarankError, MemoryError, KeyboardInterrupt)


def checked(*blocks: Block) -> tuple[Block, ...]:
    """Return the blocks; raise `TypeError` for incomplete blocks, malformed names and duplicate
    columns.
    """
    owner: dict[tuple[Kind, str], str] = {}
    for block in blocks:
        title = block.title
        if not (block.__doc__ or "").strip():
            raise TypeError(f"feature block {title} has no docstring")
        for name, meaning in block.columns.items():
            if len(name.split("__")) != 3 or not all(name.split("__")) or not name.isidentifier():
                raise TypeError(f"column {name!r} of {title} is not named block__what__how")
            if not meaning.strip():
                raise TypeError(f"column {name!r} of {title} has no meaning")
            for kind in block.kinds:
                if (kind, name) in owner:
                    raise TypeError(
                        f"column {name!r} is declared by {owner[kind, name]} and {title}"
                    )
                owner[kind, name] = title
    return blocks


BLOCKS: Final = checked(
    composition.Degrees(),
    composition.OpcodeHistogram(),
    composition.OpcodeSizes(),
    composition.GraphSize(),
    composition.ElementTypes(),
    composition.Work(),
    composition.Computations(),
    padding.FastestTime(),
    Frequency(),
    LAYOUT_PLACES,
    change.SlotChange(),
    change.NodeChange(),
    change.ChangeByClass(),
    change.InnerChange(),
    copies.Disagreement(),
    copies.SiblingDisagreement(),
    copies.DisagreementByClass(),
    copies.ConfigurableNodes(),
    copies.ChangedSurroundings(),
    copies.Boundary(),
    padding.Padding(),
    padding.FinePadding(),
    padding.Outputs(),
    copies.Propagation(),
    change.TiedGroups(),
    padding.DimensionRoles(),
    padding.TypeHistogram(),
    padding.MinorSizes(),
    padding.Violation(),
    padding.EstimatedTime(),
    relayout_blocks.RelayoutCosts(),
    RELAYOUT_PLACES,
    bounds.Bounds(),
    bounds.TileCounts(),
    bounds.TileShape(),
    TILE_PLACES,
    bounds.TileInner(),
    bounds.Kernel(),
    bounds.Traffic(),
    tpu_time.TpuTime(),
)
#: Blocks of instances, for layout graphs only.
INSTANCE_BLOCKS: Final = checked(
    instance_blocks.InstanceGraph(),
    instance_blocks.NODE,
    instance_blocks.ROW,
    instance_blocks.OPERANDS,
    instance_blocks.SURROUNDINGS,
    instance_blocks.OUTPUT,
    instance_blocks.InstancePair(),
    instance_blocks.InstanceRarity(),
)


def every_block(kind: Kind) -> list[Block]:
    """Return all built-in blocks for one kind of graph, instance blocks last."""
    return blocks_of(kind) + [block for block in INSTANCE_BLOCKS if kind in block.kinds]


def blocks_of(
    kind: Kind,
    tier: Tier = Tier.FULL,
    *,
    candidates: bool = True,
    user_blocks: Sequence[Block] = (),
) -> list[Block]:
    """Return the blocks for one kind of graph: graph blocks, configuration blocks, transductive
    blocks.

    Each group is in the order of `BLOCKS`, then ``user_blocks``; ``candidates=False`` omits
    transductive blocks.
    """
    blocks = [
        block
        for block in (*BLOCKS, *user_blocks)
        if kind in block.kinds
        and tier in (Tier.FULL, block.tier)
        and (candidates or not block.transductive)
    ]
    return sorted(blocks, key=lambda block: (block.scope is not Scope.GRAPH, block.transductive))


@dataclass(frozen=True)
class BlockFile:
    """Reference of a recipe to a file of blocks; reading the recipe does not run the file.

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
        """The blocks; raises `BlockError` unless this version was loaded or is an installed entry
        point's.
        """
        if self.source_hash not in _loaded and self.name in entry_points(group=GROUP).names:
            load_blocks(self.name)
        if self.source_hash in _loaded:
            return _loaded[self.source_hash].blocks
        if any(loaded.file.name == self.name for loaded in _loaded.values()):
            got = f"{self.name} has changed"
            do = "pass that version, or run build-features and train again"
        else:
            got = f"the model needs the blocks of {self.name}"
            do = f"pass `blocks={self.name}`"
        raise BlockError(got, expected=f"the version with hash {self.source_hash}", do=do)

    def __reduce__(self) -> tuple[Callable[..., BlockFile], tuple[Any, ...]]:
        """Pickle together with the source, so that worker processes can load it."""
        if loaded := _loaded.get(self.source_hash):
            return (_run, (self.name, loaded.source)) if loaded.source else (_load, (self.name,))
        return BlockFile, (self.name, self.source_hash, self.columns)


class _Loaded(NamedTuple):
    """A file of blocks that was run; ``source`` is empty for an entry point."""

    file: BlockFile
    blocks: tuple[Block, ...]
    source: str


#: Files that this process has loaded, by hash.
_loaded: dict[str, _Loaded] = {}


def load_blocks(*names: str | Path) -> tuple[BlockFile, ...]:
    """Run Python files, or import the modules of entry points of `GROUP`, and return references to
    them.

    Raises `BlockError` for a file that cannot be run or has no blocks, for a block without a
    docstring and for malformed or duplicate columns.
    """
    files = tuple(dict.fromkeys(map(_load, names)))
    _check(
        [block for file in files for block in file.blocks],
        " and ".join(file.name for file in files),
    )
    return files


def loaded_blocks() -> tuple[Block, ...]:
    """Return the blocks of all files that this process has loaded."""
    return tuple(block for loaded in _loaded.values() for block in loaded.blocks)


def _load(name: str | Path) -> BlockFile:
    path = Path(name)
    for entry in entry_points(group=GROUP, name=str(name)) if not path.exists() else ():
        with _running(entry.name):
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
    with _running(name):
        if (digest := _digest(source)) in _loaded:
            return _loaded[digest].file
        module = ModuleType(f"xlarank_blocks_{digest}")
        sys.modules[module.__name__] = module  # dataclasses look it up
        exec(compile(source, name, "exec"), vars(module))
        return _register(name, module, digest, source)


def _register(name: str, module: ModuleType, digest: str, source: str = "") -> BlockFile:
    classes = [
        cls
        for cls in vars(module).values()
        if inspect.isclass(cls) and cls.__module__ == module.__name__
    ]
    blocks = tuple(
        cls() for cls in classes if issubclass(cls, Block) and not inspect.isabstract(cls)
    )
    if not blocks:
        raise BlockError(
            f"{name} has no blocks", expected="subclasses of xlarank.features.block.Block"
        )
    _check(blocks, name)
    file = BlockFile(name, digest, {block.title: list(block.columns) for block in blocks})
    _loaded[digest] = _Loaded(file, blocks, source)
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
    if block.scope is Scope.INSTANCE or not kinds or not kinds <= {*get_args(Kind)}:
        allowed = f"{Scope.GRAPH} or {Scope.CONFIG}, and kinds among {', '.join(get_args(Kind))}"
        raise TypeError(f"{title} is of {block.scope} and kinds {block.kinds}, not {allowed}")
    if not isinstance(block.transductive, bool):
        raise TypeError(f"{title} has transductive {block.transductive!r}, not True or False")
    if not block.columns:
        raise TypeError(f"{title} has no columns")
    for meaning in block.columns.values():
        Cause(getattr(meaning, "cause", None) or block.cause)


def _digest(source: str) -> str:
    return hashlib.sha256(_text(ast.parse(source)).encode()).hexdigest()[:16]


def _line(error: BaseException, file: str) -> str:
    """Return ", line N," for the innermost frame of the file in the traceback; empty if there is
    none.
    """
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == file
    ]
    return f", line {lines[-1]}," if lines else ""


def _failure(name: str, line: str, action: str, error: BaseException) -> BlockError:
    return BlockError(f"{name}{line} {action} ({type(error).__name__}: {reason_of(error)})")


@contextmanager
def _running(name: str) -> Iterator[None]:
    """Convert errors of a file that is loaded, sys.exit included, to a `BlockError`; what the file
    prints goes to standard error.
    """
    try:
        with redirect_stdout(sys.stderr):
            yield
    except _NOT_OF_BLOCKS:
        raise
    except BaseException as error:
        raise _failure(name, _line(error, name), "cannot be loaded", error) from error


@contextmanager
def naming_lines(graph: str, files: Sequence[BlockFile]) -> Iterator[None]:
    """Convert errors in these files, sys.exit included, to a `BlockError` with the line; what they
    print goes to standard error.
    """
    try:
        with redirect_stdout(sys.stderr) if files else nullcontext():
            yield
    except _NOT_OF_BLOCKS:
        raise
    except BaseException as error:
        for file in files:
            paths = {block.location.co_filename for block in file.blocks}
            for line in filter(None, (_line(error, path) for path in sorted(paths))):
                raise _failure(file.name, line, f"fails on {graph}", error) from error
        raise


@cache
def source_hash(root: Path = _ROOT) -> str:
    """Return a hash of the code below ``root`` that computes columns, equal for all versions of
    Python.

    Covers ``features/`` and the modules of ``data/`` that `xlarank.features.rows` imports, directly
    or indirectly, except `_PRESENTATION`.
    """
    texts: dict[str, str] = {}
    pending = ["features/rows.py"]
    while pending:
        if (name := pending.pop()) not in texts and name not in _PRESENTATION:
            tree = ast.parse(root.joinpath(name).read_bytes())
            texts[name] = _text(tree)
            pending += _imported(tree, root)
    features = {
        path.relative_to(root).as_posix() for path in root.joinpath("features").rglob("*.py")
    }
    remaining = features - {*texts, *_PRESENTATION}
    texts |= {name: _text(ast.parse(root.joinpath(name).read_bytes())) for name in remaining}
    return hashlib.sha256(
        "".join(f"{name}\0{texts[name]}\0" for name in sorted(texts)).encode()
    ).hexdigest()


def _imported(tree: ast.Module, root: Path) -> Iterator[str]:
    """Yield the files of ``data`` and ``features`` that a module imports."""
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    for name in names:
        file = name.removeprefix("xlarank.").replace(".", "/") + ".py"
        if name.startswith(("xlarank.data.", "xlarank.features.")) and root.joinpath(file).exists():
            yield file


def _text(value: Any) -> str:
    """Return a syntax tree as text, without docstrings, empty fields and fields that do not affect
    values.
    """
    if isinstance(value, list):
        return f"[{','.join(map(_text, value))}]"
    if not isinstance(value, ast.AST):
        return ascii(value)
    names = [name for name in value._fields if name not in ("kind", "type_comment", "ctx")]
    fields = {name: getattr(value, name, None) for name in names}
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    if isinstance(value, documented) and ast.get_docstring(value, clean=False) is not None:
        fields["body"] = value.body[1:]
    texts = [
        f"{name}={_text(part)}" for name, part in fields.items() if part is not None and part != []
    ]
    return f"{type(value).__name__}({','.join(texts)})"


@dataclass(frozen=True)
class FeatureSettings:
    """Settings that determine the columns and their values.

    Attributes:
        candidates: whether to compute transductive columns.
        block_files: users' blocks, from `load_blocks`.
        hardware: hardware whose relayouts are priced, of `HARDWARE`; None leaves their columns 0,
            at no cost. Not part of `code_hash`: the columns mean the same for all hardware, so such
            rows can be joined.
    """

    tier: Tier = Tier.FULL
    candidates: bool = True
    tiling: tensors.Tiling = tensors.TPU
    block_files: tuple[BlockFile, ...] = ()
    hardware: str | None = None

    def __post_init__(self) -> None:
        if self.hardware is not None and self.hardware not in HARDWARE:
            raise XlarankError(
                f"{self.hardware!r} is no known hardware", expected=" or ".join(HARDWARE)
            )

    @classmethod
    def of(
        cls, tier: str, candidates: bool, block_files: Iterable[str | Path] = ()
    ) -> FeatureSettings:
        """Return settings; raise `XlarankError` for an unknown tier and `BlockError` for broken
        block files.
        """
        if tier not in (tiers := [*map(str, Tier)]):
            raise XlarankError(f"`tier` is {tier!r}", expected=" or ".join(tiers))
        return cls(Tier(tier), candidates, block_files=load_blocks(*block_files))

    def for_collection(self, collection: Collection) -> FeatureSettings:
        """Return the settings with the hardware that explains the labels of a layout collection, if
        any.

        Hardware that is named already is kept.
        """
        if self.hardware is not None or collection.kind != "layout":
            return self
        return replace(self, hardware=hardware_of(collection.parts[1]))

    def blocks(self, kind: Kind) -> list[Block]:
        """Return the blocks of one kind of graph, in column order; raises `BlockError` if a file is
        not loaded.
        """
        user_blocks = [block for file in self.block_files for block in file.blocks]
        return blocks_of(kind, self.tier, candidates=self.candidates, user_blocks=user_blocks)

    def graph_columns(self, kind: Kind) -> list[str]:
        return [
            name
            for block in self.blocks(kind)
            if block.scope is Scope.GRAPH
            for name in block.columns
        ]

    def config_columns(self, kind: Kind) -> list[str]:
        return [
            name
            for block in self.blocks(kind)
            if block.scope is Scope.CONFIG
            for name in block.columns
        ]

    def columns(self, kind: Kind) -> list[str]:
        return self.graph_columns(kind) + self.config_columns(kind)

    def code_hash(self, kind: Kind) -> str:
        """Return a hash of everything that determines the values: code, settings and columns."""
        names = ",".join(replace(self, block_files=()).columns(kind))
        user_hashes = [file.source_hash for file in self.block_files]
        text = "|".join([source_hash(), kind, str(self.tiling), names, *user_hashes])
        return hashlib.sha256(text.encode()).hexdigest()[:16]
