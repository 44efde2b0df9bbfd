"""One flipped bit anywhere in a stored file is seen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.pipelines.trees import LAYOUT, build, graph_path, stored
from xlarank.data.collection import Collection
from xlarank.data.errors import FeatureStoreError
from xlarank.data.workspace import Workspace
from xlarank.features.instances.store import read_instances
from xlarank.features.recipe import Source
from xlarank.features.seal import require_seal, seal, sealable
from xlarank.features.store import read_manifest, read_rows
from xlarank.pipelines.train import train

FLIPS = 400
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
def test_no_flipped_bit_is_believed(built: Path, of) -> None:
    path, read = of(built)
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for bit in rng.integers(8 * len(whole), size=FLIPS):
        spoilt = bytearray(whole)
        spoilt[bit // 8] ^= 1 << int(bit % 8)
        path.write_bytes(spoilt)
        with pytest.raises(FeatureStoreError, match="cannot be read"):
            read()
    path.write_bytes(whole)
    read()


@pytest.mark.parametrize("of", [rows_of, instances_of])
def test_what_training_complains_of_building_mends(tree: Path, built: Path, of) -> None:
    path, _ = of(built)
    whole = path.read_bytes()
    spoilt = bytearray(whole)
    spoilt[len(spoilt) // 2] ^= 4  # a value, not the footer
    path.write_bytes(spoilt)
    if of is rows_of:
        with pytest.raises(FeatureStoreError, match="run build-features again"):
            train(Workspace(built), collections=[LAYOUT], seeds=1, rounds=5, threads=1)
    (report,) = build(tree, built, collections=[LAYOUT], splits=["train"]).splits
    assert (report.built, report.kept) == (1, len(stored(built)) - 1)
    assert path.read_bytes() == whole
    assert graph_path(tree, LAYOUT, "train", PLACE[2]).exists()


def test_a_file_without_a_seal_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no seal"):
        require_seal(b"PAR1")
    path = tmp_path / "a.json"
    path.write_text(sealable({"a": 1}))
    seal(path)
    require_seal(path.read_bytes())
