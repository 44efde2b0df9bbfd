"""Rank compiler configurations without running them: gradient-boosted trees on TpuGraphs data.

>>> import xlarank
>>> from xlarank.data.collection import SAMPLE
>>> graph = xlarank.read_graph(SAMPLE / "npz/layout/cpu/random/valid/mlp__a.npz")
>>> xlarank.compute_features(graph).height  # one row per distinct configuration
58

`rank` orders a graph's configurations with a trained model, `GraphRanker` follows the scikit-learn
estimator API, `read_hlo` converts an HLO program to a graph. In a clone the sub-packages ``data``,
``features``, ``models`` and ``pipelines`` are links to the folders at the top level.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING

__version__ = "0.4.0"
if _TYPE_CHECKING:
    from xlarank.api import cross_validate as cross_validate
    from xlarank.api import load_rows as load_rows
    from xlarank.api import rank as rank
    from xlarank.api import submit as submit
    from xlarank.data.graph import read_graph as read_graph
    from xlarank.data.hlo.reading import read_hlo as read_hlo
    from xlarank.features.assembly import compute_features as compute_features
    from xlarank.graph_ranker import GraphRanker as GraphRanker
    from xlarank.pipelines.rank import Ranking as Ranking

#: Modules of the public names, imported on first access so that the command line starts quickly.
_MODULES = {
    "GraphRanker": "xlarank.graph_ranker",
    "Ranking": "xlarank.pipelines.rank",
    "compute_features": "xlarank.features.assembly",
    "cross_validate": "xlarank.api",
    "load_rows": "xlarank.api",
    "rank": "xlarank.api",
    "read_graph": "xlarank.data.graph",
    "read_hlo": "xlarank.data.hlo.reading",
    "submit": "xlarank.api",
}
__all__ = ["__version__", *_MODULES]


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'xlarank' has no attribute {name!r}")
    return getattr(_import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
