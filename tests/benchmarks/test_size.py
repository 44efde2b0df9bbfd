"""Synthetic data roots in the official shape, and the extrapolation of costs."""

import numpy as np
import pytest

from benchmarks.official_sizes import SIZES, plan
from benchmarks.results.size import Cost, exponent, extrapolated
from benchmarks.synthetic_root import write_collection
from tests.graphs import save_npz
from xlarank.data.collection import SAMPLE, Collection
from xlarank.data.families import program_family
from xlarank.data.graph import read_graph

LAYOUTS = SAMPLE / "npz/layout/cpu/random/train"
TILES = SAMPLE / "npz/tile/cpu/train"


@pytest.mark.parametrize("name", SIZES)
def test_every_share_has_graphs_of_the_official_mean_size(name):
    collection = Collection.parse(name)
    graphs, configs, *_ = SIZES[name]
    whole = plan(collection, 1.0)
    assert len({graph.path for graph in whole}) == len(whole) == sum(graphs)
    train = [graph for graph in whole if graph.path.parent.name == "train"]
    mean = np.mean([graph.configs for graph in train])
    assert mean == pytest.approx(configs / sum(graphs), rel=0.1)
    tenth = [graph for graph in plan(collection, 0.1) if graph.path.parent.name == "train"]
    assert np.mean([graph.configs for graph in tenth]) == pytest.approx(mean, rel=0.15)
    families = {program_family(graph.path.stem) for graph in train}
    assert 3 <= len(families) <= 7


def test_a_synthetic_root_is_written_once(tmp_path):
    kernel = dict(np.load(TILES / "matmul__a.npz"))
    save_npz(tmp_path / "real/npz/tile/xla/train/matmul.npz", kernel)
    write_collection(tmp_path / "root", tmp_path / "real", "tile:xla", 0.0002, seed=0)
    paths = sorted((tmp_path / "root").rglob("*.npz"))
    assert [path.parent.name for path in paths] == ["test", "train", "valid"]
    test, train, _ = map(read_graph, paths)
    assert train.labelled and not test.labelled
    assert len(train.first) == train.configs
    written = [path.stat().st_mtime_ns for path in paths]
    write_collection(tmp_path / "root", tmp_path / "real", "tile:xla", 0.0002, seed=0)
    assert [path.stat().st_mtime_ns for path in paths] == written


def test_costs_are_extrapolated_by_the_larger_of_a_line_and_a_power_law():
    small = Cost(seconds=10.0, memory=2.0, disk=1.0, size=1.0)
    large = Cost(seconds=160.0, memory=4.0, disk=4.0, size=4.0)
    assert exponent(small, large) == pytest.approx(2.0)
    whole = extrapolated(small, large, 8.0)
    # seconds 160 * 2^2; memory 4 + (8 - 4) * 2 / 3, as 4 * 2^0.5 is less; disk is proportional
    assert (whole.seconds, whole.memory, whole.disk) == pytest.approx((640.0, 4 + 8 / 3, 8.0))
