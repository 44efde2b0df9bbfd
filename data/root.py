"""The data root: the first of several places that holds a TpuGraphs tree."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from xlarank.data.errors import DataRootError

ENVIRONMENT: Final = "XLARANK_DATA"
KAGGLE: Final = Path("/kaggle/input/predict-ai-model-runtime")
HOME: Final = Path("~/data/tpugraphs")
SAMPLE: Final = Path(__file__).parent / "sample"


@dataclass(frozen=True)
class DataRoot:
    """The location of the data and the reason for choosing it.

    Attributes:
        path: the folder as it was named.
        npz: the folder below it (or itself) that holds ``layout/`` and ``tile/``.
        why: one phrase for people.
    """

    path: Path
    npz: Path
    why: str


def find_data_root(named: Path | None = None) -> DataRoot:
    """Choose the data root.

    In this order: ``named`` (``--data-root``), the environment variable ``XLARANK_DATA``, Kaggle's
    mount, ``~/data/tpugraphs`` (the default of Google's own tools), the embedded sample. The first two
    raise when they hold no data; the others are skipped.

    Raises `DataRootError`.
    """
    if named is not None:
        return DataRoot(named, _require(named, "--data-root"), "named by --data-root")
    from_environment = os.environ.get(ENVIRONMENT)
    if from_environment:
        path = Path(os.path.expanduser(from_environment))
        return DataRoot(path, _require(path, ENVIRONMENT), f"named by {ENVIRONMENT}")
    home = Path(os.path.expanduser(HOME))  # unlike Path.expanduser, no error for a user without a home
    for path, why in ((KAGGLE, "Kaggle's mount"), (home, f"the default place {HOME}")):
        npz = _tree_below(path)
        if npz is not None:
            return DataRoot(path, npz, why)
    return DataRoot(
        SAMPLE,
        _require(SAMPLE, "the embedded sample"),
        f"the embedded sample (no --data-root, no {ENVIRONMENT}, nothing at {KAGGLE} or {HOME})",
    )


def _tree_below(path: Path) -> Path | None:
    for npz in (path, path / "npz", path / "npz_all" / "npz"):
        if any(_is_dir(npz / kind) for kind in ("layout", "tile")):
            return npz
    return None


def _is_dir(path: Path) -> bool:
    return os.path.isdir(path)  # unlike Path.is_dir, False where permission is denied


def _require(path: Path, origin: str) -> Path:
    do = f"pass --data-root or set {ENVIRONMENT} to the folder that holds npz/"
    if not _is_dir(path):
        what = "is not a folder" if os.path.exists(path) else "does not exist"
        raise DataRootError(f"{path} ({origin}) {what}", expected="the root of a TpuGraphs tree", do=do)
    npz = _tree_below(path)
    if npz is None:
        raise DataRootError(
            f"{path} ({origin}) is not a TpuGraphs root: found no layout/ or tile/ in it",
            expected="npz/layout or npz/tile (or npz_all/npz/...) below it",
            do=do,
        )
    return npz
