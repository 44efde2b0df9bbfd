"""The graph network; skipped without PyTorch."""

import numpy as np
import pytest

from tests.graphs import relabelled, save_npz
from xlarank.data.collection import SAMPLE
from xlarank.data.graph import read_graph
from xlarank.features.assembly import assemble

torch = pytest.importorskip("torch", reason="no PyTorch: pip install -e '.[peer]'")


@pytest.mark.parametrize(
    "name", ["layout/cpu/random/train/densenet__a", "tile/cpu/train/conv3x3_bias_relu__a"]
)
def test_scores_do_not_depend_on_the_numbers_of_nodes(name, tmp_path):
    from benchmarks.graph_network import GraphSage, Inputs, scores_of

    path = SAMPLE / f"npz/{name}.npz"
    with np.load(path) as arrays:
        order = np.random.default_rng(0).permutation(len(arrays["node_feat"]))
        other = save_npz(tmp_path / "other.npz", relabelled(dict(arrays), order))
    graphs = [read_graph(file) for file in (path, other)]
    inputs = [Inputs.of(graph, assemble(graph, "cpu")) for graph in graphs]
    torch.manual_seed(0)
    network = GraphSage(inputs)
    scores, others = (scores_of(network, graph) for graph in inputs)
    assert len(scores) == len(graphs[0].first) and np.ptp(scores) > 1e-3
    np.testing.assert_allclose(others, scores, atol=1e-4)
