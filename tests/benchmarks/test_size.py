"""Synthetic data roots in the official shape, and the extrapolation of costs."""

import numpy as np
import pytest

from benchmarks.official_sizes import SIZES, plan
from benchmarks.results.size import Cost, exponent, extrapolated
from xlarank.data.collection import SAMPLE, Collection
from xlarank.data.families import program_family

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


def test_costs_are_extrapolated_by_the_larger_of_a_line_and_a_power_law():
    small = Cost(seconds=10.0, memory=2.0, disk=1.0, size=1.0)
    large = Cost(seconds=160.0, memory=4.0, disk=4.0, size=4.0)
    assert exponent(small, large) == pytest.approx(2.0)
    whole = extrapolated(small, large, 8.0)
    # seconds 160 * 2^2; memory 4 + (8 - 4) * 2 / 3, as 4 * 2^0.5 is less; disk is proportional
    assert (whole.seconds, whole.memory, whole.disk) == pytest.approx((640.0, 4 + 8 / 3, 8.0))
