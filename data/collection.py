"""The data root and its collections, discovered from its folders.

npz/layout/<source>/<search>/<split>/*.npz    ->  layout:<source>:<search>
npz/tile/<source>/<split>/*.npz               ->  tile:<source>
"""

from __future__ import annotations

import fnmatch
import glob
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from xlarank.data.errors import CollectionError, DataRootError, counted, did_you_mean
from xlarank.data.families import program_family
from xlarank.data.graph import Kind
from xlarank.data.hardware import TPUGRAPHS, collection_parts, hardware_of
from xlarank.data.schema import LEVELS
from xlarank.data.schema import SPLITS as SPLITS

ENVIRONMENT: Final = "XLARANK_DATA"
#: Kaggle's mount of the competition; newer notebooks mount it below ``competitions/``.
KAGGLE: Final = Path("/kaggle/input/predict-ai-model-runtime")
HOME: Final = Path("~/data/tpugraphs")
SAMPLE: Final = Path(__file__).parent / "sample"
#: One name, or several.
Names: TypeAlias = str | Sequence[str]


@dataclass(frozen=True, order=True)
class Collection:
    """A set of graphs that one model is trained on and scored on."""

    parts: tuple[str, ...]

    @classmethod
    def parse(cls, name: str) -> Collection:
        parts = tuple(name.split(":"))
        if len(parts) != {"layout": 3, "tile": 2}.get(parts[0]) or not all(parts):
            expected = "layout:<source>:<search> or tile:<source>"
            raise CollectionError(f"{name!r} is not a collection name", expected=expected)
        return cls(parts)

    @property
    def kind(self) -> Kind:
        return "layout" if self.parts[0] == "layout" else "tile"

    @property
    def label_source(self) -> str:
        """Origin of the labels in words, by the collection's name."""
        if "estimate" in self.parts[1]:
            return "estimated by the TPU's compiler, not measured"
        if self.hardware == TPUGRAPHS:
            return "measured on TPU"
        if self.hardware == "cpu":
            return "measured on CPU"
        return f"measured on {self.hardware}" if self.hardware else "as the files say"

    @property
    def hardware(self) -> str:
        """Hardware that the source names (`xlarank.data.hardware`); empty if it names none."""
        return hardware_of(self.parts[1])

    def __str__(self) -> str:
        return ":".join(self.parts)


def collection_of(path: Path) -> Collection | None:
    """Return the collection whose folder holds a graph file; None for a file outside a tree.

    >>> print(collection_of(Path("npz/layout/nvidia-h200/random/train/x__a.npz")))
    layout:nvidia-h200:random
    >>> collection_of(Path("train/x__a.npz"))
    """
    parts = collection_parts(path)
    return None if parts is None else Collection(parts)


@dataclass(frozen=True, order=True)
class GraphFile:
    """One npz file, its collection and split."""

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
    """Return all graph files below an ``npz`` folder, sorted by collection, split and name."""
    files = []
    for pattern in ("layout/*/*/*/*.npz", "tile/*/*/*.npz"):
        for path in npz.glob(pattern):
            *parts, split, name = path.relative_to(npz).parts
            if split in SPLITS and not name.startswith("."):  # temporary files are hidden, too
                files.append(GraphFile(Collection(tuple(parts)), split, path))
    return sorted(files, key=lambda file: (file.collection, SPLITS.index(file.split), file.name))


def listed(names: Names) -> Sequence[str]:
    """Return one or several names as a sequence."""
    return [names] if isinstance(names, str) else names


def graph_files(npz: Path, names: Names, *, where: str) -> list[GraphFile]:
    """Return the files of the named collections, by default all.

    Raises `DataRootError` without any file, `CollectionError` for an unknown name.
    """
    files = discover(npz)
    if not files:
        expected = " or ".join(f"npz/{kind}/{levels}/*.npz" for kind, levels in LEVELS.items())
        do = "check what was unpacked, or pass another `data_root`"
        raise DataRootError(f"{where} has no graph files", expected=expected, do=do)
    selected = set(choose(names, (file.collection for file in files), where=where))
    return [file for file in files if file.collection in selected]


def choose(
    names: Names, available: Iterable[Collection], where: str = "the data root"
) -> list[Collection]:
    """Return the named or matching collections, by default all; raises `CollectionError`."""
    by_name = {str(collection): collection for collection in sorted(set(available))}
    if not by_name:
        got = f"{where} holds no collections"
        raise CollectionError(got, do="run build-features with a `data_root`")
    chosen: list[str] = []
    for name in listed(names):
        matches = [name] if name in by_name else fnmatch.filter(by_name, name)
        chosen += matches
        if not matches:
            hint = did_you_mean(name, by_name, cutoff=0.4) or "name one of these"
            got = f"collection {name!r} is not in {where}"
            raise CollectionError(got, expected=", ".join(by_name), do=hint)
    return [by_name[name] for name in dict.fromkeys(chosen)] if names else list(by_name.values())


def choose_splits(names: Names) -> list[str]:
    """Return the named splits, by default all; raises `CollectionError` for an unknown split."""
    chosen = listed(names) or SPLITS
    for name in chosen:
        if name not in SPLITS:
            raise CollectionError(f"{name!r} is not a split", expected=", ".join(SPLITS))
    return [split for split in SPLITS if split in chosen]


def skipped_files(npz: Path) -> tuple[dict[Path, str], dict[Path, str]]:
    """Return folders with npz files that are not read, and folders that cannot be listed.

    Both map to reasons.
    """
    skipped = dict[Path, str]()
    unreadable = dict[Path, str]()

    def note(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):  # the root has no folder of this kind
            unreadable[Path(error.filename)] = f"cannot be read ({error.strerror})"

    read = {file.path for file in discover(npz)}
    for kind, levels in LEVELS.items():
        expected = f"expected {kind}/{levels}/*.npz, <split> one of {', '.join(SPLITS)}"
        for folder, inner, names in os.walk(npz / kind, onerror=note):
            inner[:] = sorted(name for name in inner if not name.startswith("."))
            paths = [Path(folder, name) for name in names if not name.startswith(".")]
            graphs = [path for path in paths if path.suffix.lower() == ".npz"]
            count = len({*graphs} - read)
            if count:
                skipped[Path(folder)] = f"{counted(count, 'file')} not read: {expected}"
    return skipped, unreadable


@dataclass(frozen=True)
class DataRoot:
    """The location of the data.

    Attributes:
        npz: folder with ``layout/`` or ``tile/``: ``path`` or a folder below it.
        why: reason for the choice.
    """

    path: Path
    npz: Path
    why: str


DataRootLike: TypeAlias = str | Path | DataRoot


def find_data_root(named: DataRootLike | None = None) -> DataRoot:
    """Choose the data root.

    Tries ``named``, the environment variable ``XLARANK_DATA``, Kaggle's mounts of the competition
    and of data sets, ``~/data/tpugraphs`` (the default of Google's tools) and the embedded sample,
    in this order. Raises `DataRootError` if ``named`` or ``XLARANK_DATA`` is set and has no data.
    """
    if isinstance(named, DataRoot):
        return named
    if named is not None:
        return _named_root(Path(os.path.expanduser(named)), "`data_root`")
    if from_environment := os.environ.get(ENVIRONMENT):
        return _named_root(Path(os.path.expanduser(from_environment)), ENVIRONMENT)
    home = Path(os.path.expanduser(HOME))  # unlike Path.expanduser, does not fail without a home
    sample = "the embedded sample; pass `data_root` for other data"
    mounts = [KAGGLE, KAGGLE.parent / "competitions" / KAGGLE.name]
    mounts += sorted(map(Path, glob.glob(f"{KAGGLE.parent}/datasets/*/*")))
    reasons = dict.fromkeys(mounts, "Kaggle's mount")
    reasons |= {home: f"the default place {HOME}", SAMPLE: sample}
    for path, why in reasons.items():
        if npz := _tree_below(path):
            return DataRoot(path, npz, why)
    return _named_root(SAMPLE, "the embedded sample")  # raises: the sample is missing, too


def refuse_sample_on_kaggle(roots: Iterable[Path]) -> None:
    """Raise `DataRootError` on Kaggle if one of the data roots is the embedded sample."""
    if os.path.isdir(KAGGLE.parent) and SAMPLE.resolve() in (root.resolve() for root in roots):
        got = f"found no TpuGraphs data below {KAGGLE.parent}, only the embedded sample"
        do = f"attach the competition {KAGGLE.name}, or pass `data_root`"
        raise DataRootError(got, expected="the test graphs to submit", do=do)


def _tree_below(path: Path) -> Path | None:
    for npz in (path, path / "npz", path / "npz_all" / "npz"):
        # unlike Path.is_dir, os.path.isdir is False if permission is denied
        if os.path.isdir(npz / "layout") or os.path.isdir(npz / "tile"):
            return npz
    return None


def _named_root(path: Path, origin: str) -> DataRoot:
    if npz := _tree_below(path):
        return DataRoot(path, npz, f"named by {origin}")
    problem = "is not a TpuGraphs root: found no layout/ or tile/ in it"
    if not os.path.isdir(path):
        problem = "is not a folder" if os.path.exists(path) else "does not exist"
    expected = "a folder with npz/layout or npz/tile (or npz_all/npz/...) below it"
    do = f"pass `data_root` or set {ENVIRONMENT} to the folder that holds npz/"
    raise DataRootError(f"{path} ({origin}) {problem}", expected=expected, do=do)
