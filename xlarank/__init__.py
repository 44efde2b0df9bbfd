"""Rank compiler configurations without running them: gradient-boosted trees on TpuGraphs data.

>>> import xlarank
>>> graph = xlarank.read_graph(xlarank.SAMPLE / "npz/layout/cpu/random/valid/mlp__a.npz")
>>> xlarank.compute_features(graph).height  # one row per distinct configuration
58
>>> xlarank.rank(graph, workspace="nowhere").ranked_by
'estimated time'

Functions take the words of the command line: `build_features`, `load_rows`, `train`,
`cross_validate`, `evaluate`, `rank`, `explain`, `submit`, `check_submission`, `advise`. Results
have `to_polars` and `to_pandas`, and notebooks show them as tables. `GraphRanker` follows the
scikit-learn estimator API. ``SAMPLE`` is the data root that comes with the package, `XlarankError`
the base of all errors.

In a clone the sub-packages ``data``, ``features``, ``models`` and ``pipelines`` are links to the
folders at the top level.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING

__version__ = "0.4.0"
if _TYPE_CHECKING:
    from xlarank.data.collection import SAMPLE as SAMPLE
    from xlarank.data.errors import XlarankError as XlarankError
    from xlarank.data.graph import read_graph as read_graph
    from xlarank.data.hlo.reading import read_hlo as read_hlo
    from xlarank.data.writing import write_graph as write_graph
    from xlarank.features.assembly import compute_features as compute_features
    from xlarank.graph_ranker import GraphRanker as GraphRanker
    from xlarank.graph_ranker import cross_validate as cross_validate
    from xlarank.pipelines.build_features import build_features as build_features
    from xlarank.pipelines.evaluate import evaluate as evaluate
    from xlarank.pipelines.programs.advise.advice import advise as advise
    from xlarank.pipelines.rank import Ranking as Ranking
    from xlarank.pipelines.rank import rank as rank
    from xlarank.pipelines.ranking.score_difference import explain as explain
    from xlarank.pipelines.submit import check_submission as check_submission
    from xlarank.pipelines.submit import submit as submit
    from xlarank.pipelines.support.progress import show_progress as show_progress
    from xlarank.pipelines.train import train as train
    from xlarank.pipelines.training.frames import load_rows as load_rows

#: Public names by module, imported on first access so that the command line starts quickly.
_NAMES = {
    "data.collection": "SAMPLE",
    "data.errors": "XlarankError",
    "data.graph": "read_graph",
    "data.hlo.reading": "read_hlo",
    "data.writing": "write_graph",
    "features.assembly": "compute_features",
    "graph_ranker": "GraphRanker cross_validate",
    "pipelines.build_features": "build_features",
    "pipelines.evaluate": "evaluate",
    "pipelines.programs.advise.advice": "advise",
    "pipelines.rank": "Ranking rank",
    "pipelines.ranking.score_difference": "explain",
    "pipelines.submit": "check_submission submit",
    "pipelines.support.progress": "show_progress",
    "pipelines.train": "train",
    "pipelines.training.frames": "load_rows",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}
__all__ = ["__version__", *_MODULES]


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'xlarank' has no attribute {name!r}")
    return getattr(_import_module(f"xlarank.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
