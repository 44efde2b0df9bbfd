"""Collections: what a data tree holds, discovered from its folders.

npz/layout/<source>/<search>/<split>/*.npz    ->  layout:<source>:<search>
npz/tile/<source>/<split>/*.npz               ->  tile:<source>
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from xlarank.data.errors import CollectionError, DataRootError
from xlarank.data.family import program_family
from xlarank.data.graph import Kind

SPLITS: Final = ("train", "valid", "test")


@dataclass(frozen=True, order=True)
class Collection:
    """A set of graphs that one model is trained on and scored on.

    >>> Collection.parse("layout:xla:random").parts, Collection.parse("tile:xla").kind
    (('layout', 'xla', 'random'), 'tile')
    """

    parts: tuple[str, ...]

    @classmethod
    def parse(cls, name: str) -> Collection:
        parts = tuple(name.split(":"))
        wanted = {"layout": 3, "tile": 2}.get(parts[0])
        if len(parts) != wanted or not all(parts):
            raise CollectionError(
                f"{name!r} is not a collection name", expected="layout:<source>:<search> or tile:<source>"
            )
        return cls(parts)

    @property
    def kind(self) -> Kind:
        return "layout" if self.parts[0] == "layout" else "tile"

    @property
    def label_source(self) -> str:
        """Where the labels are from, as far as the name says.

        >>> Collection.parse("layout:tpu-estimate:random").label_source, Collection.parse("tile:xla").label_source
        ("estimated by the TPU's compiler, not measured", 'measured on TPU')
        """
        name = self.parts[1]
        if "estimate" in name:
            return "estimated by the TPU's compiler, not measured"
        known = {"cpu": "measured on CPU", "xla": "measured on TPU", "nlp": "measured on TPU"}
        return known.get(name, "as the files say")

    def __str__(self) -> str:
        return ":".join(self.parts)


@dataclass(frozen=True, order=True)
class GraphFile:
    """One npz file and its place in the tree."""

    collection: Collection
    split: str
    path: Path

    @property
    def name(self) -> str:
        return self.path.name.removesuffix(".npz")

    @property
    def family(self) -> str:
        return program_family(self.name)


def discover(npz: Path) -> list[GraphFile]:
    """Return all graph files below an ``npz`` folder, in a stable order."""
    patterns = [("layout", f"layout/*/*/{split}/*.npz", split) for split in SPLITS]
    patterns += [("tile", f"tile/*/{split}/*.npz", split) for split in SPLITS]
    files = []
    for kind, pattern, split in patterns:
        for path in npz.glob(pattern):
            if path.name.startswith("."):  # half-written, or litter of a file manager
                continue
            middle = path.relative_to(npz).parts[1:-2]
            files.append(GraphFile(Collection((kind, *middle)), split, path))
    return sorted(files, key=lambda file: (file.collection, SPLITS.index(file.split), file.name))


def graph_files(npz: Path, asked: Sequence[str], *, where: str) -> list[GraphFile]:
    """Return the files of the collections asked for, or of all.

    Raises `DataRootError` when there are none at all, `CollectionError` for a name that is not there.
    """
    files = discover(npz)
    if not files:
        raise DataRootError(
            f"{where} has no graph files",
            expected="npz/layout/<source>/<search>/<split>/*.npz or npz/tile/<source>/<split>/*.npz",
            do="check what was unpacked, or pass another --data-root",
        )
    wanted = set(choose(asked, (file.collection for file in files), where=where))
    return [file for file in files if file.collection in wanted]


def choose(
    asked: Sequence[str], available: Iterable[Collection], *, where: str = "the data root"
) -> list[Collection]:
    """Return the collections asked for, or all of them when none is named.

    Raises `CollectionError` for a name that is not there, with the close ones.
    """
    known = {str(collection): collection for collection in sorted(set(available))}
    if not known:
        raise CollectionError(f"{where} holds no collections", do="run build-features with a --data-root")
    for name in asked:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=3, cutoff=0.4)
            hint = f"did you mean {' or '.join(close)}?" if close else "name one of these"
            raise CollectionError(f"collection {name!r} is not in {where}", expected=", ".join(known), do=hint)
    return [known[name] for name in dict.fromkeys(asked)] if asked else list(known.values())


def choose_splits(asked: Sequence[str]) -> list[str]:
    """Return the splits asked for, or all; raises `CollectionError` for an unknown one."""
    for name in asked:
        if name not in SPLITS:
            raise CollectionError(f"{name!r} is not a split", expected=", ".join(SPLITS))
    return [split for split in SPLITS if split in asked] if asked else list(SPLITS)
