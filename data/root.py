"""Search for the data root, the folder of a TpuGraphs tree."""

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
    """The location of the data.

    Attributes:
        npz: folder with ``layout/`` or ``tile/``: ``path`` or a folder below it.
        why: why it was chosen.
    """

    path: Path
    npz: Path
    why: str


def find_data_root(named: Path | None = None) -> DataRoot:
    """Choose the data root.

    The first of: ``named``, the environment variable ``XLARANK_DATA``, Kaggle's mount, ``~/data/tpugraphs`` (the
    default of Google's tools), the embedded sample. Raises `DataRootError` if ``named`` or
    ``XLARANK_DATA`` has no data.
    """
    if named is not None:
        return DataRoot(named, _require(named, "`data_root`"), "named by `data_root`")
    if from_environment := os.environ.get(ENVIRONMENT):
        path = Path(os.path.expanduser(from_environment))
        return DataRoot(path, _require(path, ENVIRONMENT), f"named by {ENVIRONMENT}")
    home = Path(os.path.expanduser(HOME))  # unlike Path.expanduser, does not fail without a home
    for path, why in ((KAGGLE, "Kaggle's mount"), (home, f"the default place {HOME}")):
        if npz := _tree_below(path):
            return DataRoot(path, npz, why)
    why = f"the embedded sample: no `data_root`, no {ENVIRONMENT}, nothing at {KAGGLE} or {HOME}"
    return DataRoot(SAMPLE, _require(SAMPLE, "the embedded sample"), why)


def _tree_below(path: Path) -> Path | None:
    for npz in (path, path / "npz", path / "npz_all" / "npz"):
        # unlike Path.is_dir, os.path.isdir is False if permission is denied
        if any(os.path.isdir(npz / kind) for kind in ("layout", "tile")):
            return npz
    return None


def _require(path: Path, origin: str) -> Path:
    if npz := _tree_below(path):
        return npz
    what = "is not a TpuGraphs root: found no layout/ or tile/ in it"
    if not os.path.isdir(path):
        what = "is not a folder" if os.path.exists(path) else "does not exist"
    expected = "a folder with npz/layout or npz/tile (or npz_all/npz/...) below it"
    do = f"pass `data_root` or set {ENVIRONMENT} to the folder that holds npz/"
    raise DataRootError(f"{path} ({origin}) {what}", expected=expected, do=do)
