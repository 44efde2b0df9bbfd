"""Stored instances are whole, of the same making as the rows, or refused."""

from __future__ import annotations

import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.features.helpers import SAMPLE, layout_of, load
from tests.graphs import layout_arrays
from xlarank.data.errors import FeatureStoreError
from xlarank.features.assemble import assemble
from xlarank.features.instances.graph_instances import ARRAYS, Instances
from xlarank.features.instances.store import instances_current, read_instances, write_instances
from xlarank.features.instances.table import instance_table
from xlarank.features.layout.context import LayoutContext
from xlarank.features.recipe import Recipe, Source

RECIPE, SOURCE = Recipe("abc", "full", True, 0, 0), Source(1, 2)


@pytest.fixture
def instances() -> Instances:
    return instance_table(LayoutContext(layout_of(load(SAMPLE / "layout/cpu/default/train/dlrm__a.npz"))))


@pytest.fixture
def path(tmp_path: Path, instances: Instances) -> Path:
    write_instances(tmp_path / "a.instances.npz", instances, RECIPE, SOURCE)
    return tmp_path / "a.instances.npz"


def test_what_is_written_is_read(path: Path, instances: Instances) -> None:
    found = read_instances(path, RECIPE, SOURCE)
    assert found.columns == instances.columns
    for name in ARRAYS:
        mine, theirs = getattr(found, name), getattr(instances, name)
        assert np.array_equal(mine, theirs), name
        assert mine.dtype == theirs.dtype, name
    assert instances_current(path, RECIPE, SOURCE)
    assert list(path.parent.iterdir()) == [path]


def test_same_bytes(path: Path, instances: Instances) -> None:
    before = path.read_bytes()
    write_instances(path, instances, RECIPE, SOURCE)
    assert path.read_bytes() == before


def test_of_another_making_is_refused(path: Path) -> None:
    for recipe, source in ((replace(RECIPE, code_hash="abd"), SOURCE), (RECIPE, Source(1, 3))):
        assert not instances_current(path, recipe, source)
        with pytest.raises(FeatureStoreError, match="other code"):
            read_instances(path, recipe, source)


@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_a_cut_file_is_refused(path: Path, share: float) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    assert not instances_current(path, RECIPE, SOURCE)
    with pytest.raises(FeatureStoreError, match="cannot be read"):
        read_instances(path, RECIPE, SOURCE)


def test_a_missing_file_and_a_missing_array_are_refused(path: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(tmp_path / "b.npz", "w") as other:
        for name in archive.namelist():
            if name != "request.npy":
                other.writestr(name, archive.read(name))
    for wrong in (tmp_path / "b.npz", tmp_path / "none.npz"):
        with pytest.raises(FeatureStoreError, match="cannot be read"):
            read_instances(wrong, RECIPE, SOURCE)


def test_a_graph_hands_over_those_of_the_rows_it_keeps() -> None:
    graph = layout_of(layout_arrays())
    whole = assemble(graph).instances
    some = assemble(graph).take(np.array([1, 2])).instances
    assert whole is not None
    assert some is not None
    assert whole.value.configs == graph.duplicates.distinct
    assert np.array_equal(some.value.counts().toarray(), whole.value.counts(np.array([1, 2])).toarray())
