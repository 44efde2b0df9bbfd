"""One flipped bit anywhere in a stored file is seen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.pipelines.trees import LAYOUT, build, stored
from xlarank.data.collection import Collection
from xlarank.data.errors import FeatureStoreError
from xlarank.data.workspace import Workspace
from xlarank.features.recipe import Source
from xlarank.features.seal import require_seal, seal, sealable
from xlarank.features.store import read_instances, read_manifest, read_rows
from xlarank.pipelines.support.fitting import TrainRequest
from xlarank.pipelines.train import train

FLIPS = 120
PLACE = Collection.parse(LAYOUT), "train", "alpha__a"


def rows_of(work: Path) -> tuple[Path, Callable[[], object]]:
    path = Workspace(work).graph_rows(*PLACE)
    return path, lambda: read_rows(path)


def instances_of(work: Path) -> tuple[Path, Callable[[], object]]:
    path = Workspace(work).graph_instances(*PLACE)
    manifest = read_manifest(Workspace(work), PLACE[0], PLACE[1])
    assert manifest is not None
    source = Source(**manifest.graphs[PLACE[2]]["source"])
    return path, lambda: read_instances(path, manifest.recipe, source)


@pytest.mark.parametrize("of", [rows_of, instances_of])
def test_flipped_bits_are_seen_and_mended_by_building(tree: Path, built: Path, of) -> None:
    path, read = of(built)
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for bit in [*rng.integers(8 * len(whole), size=FLIPS), 4 * len(whole)]:  # the last: a value, not the footer
        spoilt = bytearray(whole)
        spoilt[bit // 8] ^= 1 << int(bit % 8)
        path.write_bytes(spoilt)
        with pytest.raises(FeatureStoreError, match="cannot be read"):
            read()
    if of is rows_of:
        with pytest.raises(FeatureStoreError, match="run build-features again"):
            train(Workspace(built), TrainRequest(collections=[LAYOUT], seeds=1, rounds=5, threads=1))
    (report,) = build(tree, built, collections=[LAYOUT], splits=["train"]).splits
    assert (report.built, report.kept) == (1, len(stored(built)) - 1)
    assert path.read_bytes() == whole
    read()


def test_a_file_without_a_seal_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no seal"):
        require_seal(b"PAR1")
    path = tmp_path / "a.json"
    path.write_text(sealable({"a": 1}))
    seal(path)
    require_seal(path.read_bytes())
