"""Stored instances: beside the rows of a layout graph, one npz file without pickles.

Only the codes of the nodes grow with the configurations, one or two bytes each; everything else is as large as
the program.
"""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import numpy as np

from xlarank.data.errors import FeatureStoreError
from xlarank.data.files import atomic_write, read_bytes
from xlarank.features.instances.graph_instances import ARRAYS, Instances
from xlarank.features.recipe import Recipe, Source
from xlarank.features.seal import require_seal, seal_zip

_ABOUT: Final = "about"
#: What numpy and zipfile raise for files that are cut short or something else.
_BROKEN: Final = (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, zlib.error)


def write_instances(path: Path, instances: Instances, recipe: Recipe, source: Source) -> None:
    """Write one graph's instances, whole or not at all; raises `WorkspaceError`."""
    about = {"columns": instances.columns, "recipe": asdict(recipe), "source": asdict(source)}
    arrays: dict[str, Any] = {name: getattr(instances, name) for name in ARRAYS}
    # node by node: neighbouring entries are mostly equal, and half the size when compressed
    arrays["codes"] = np.ascontiguousarray(instances.codes.T)
    arrays[_ABOUT] = np.array(json.dumps(about))
    with atomic_write(path) as partial:
        with partial.open("wb") as stream:
            np.savez_compressed(stream, **arrays)
        seal_zip(partial)


def _whole(path: Path) -> io.BytesIO:
    """The content of a file that is as it was written; raises `ValueError` for another."""
    content = read_bytes(path)
    require_seal(content)
    return io.BytesIO(content)


def instances_current(path: Path, recipe: Recipe, source: Source) -> bool:
    """Whether the file in place is whole and was made from this source by this recipe."""
    try:
        with np.load(_whole(path), allow_pickle=False) as archive:
            about = json.loads(str(archive[_ABOUT]))
            return bool(about["recipe"] == asdict(recipe) and about["source"] == asdict(source))
    except _BROKEN:
        return False


def read_instances(path: Path, recipe: Recipe, source: Source) -> Instances:
    """Read one graph's instances; raises `FeatureStoreError` unless they are whole and of this making."""
    try:
        with np.load(_whole(path), allow_pickle=False) as archive:
            about = json.loads(str(archive[_ABOUT]))
            if about["recipe"] != asdict(recipe) or about["source"] != asdict(source):
                raise ValueError("it was made from another file or by other code than the rows")
            arrays = {name: archive[name] for name in ARRAYS}
            arrays["codes"] = np.ascontiguousarray(arrays["codes"].T)
            return Instances(columns=[str(name) for name in about["columns"]], **arrays)
    except _BROKEN as error:
        raise FeatureStoreError(
            f"{path} cannot be read ({error})", expected="stored instances", do="run build-features again"
        ) from error
