"""Training and cross-validation on graphs or frames, without a workspace."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from xlarank.data.collection import Collection
from xlarank.data.errors import ModelError, ParameterError, counted
from xlarank.data.graph import Graph, GraphLike, as_graph
from xlarank.data.hardware import WORDS, require_hardware
from xlarank.features.assembly import assemble
from xlarank.features.layout.hardware import substitution_note
from xlarank.features.rows import Recipe
from xlarank.models.card import ModelCard
from xlarank.models.model import Model
from xlarank.models.training_data import FitSettings, TrainingData, target_of
from xlarank.models.validation.folds import FoldPlan
from xlarank.models.validation.metrics import paired_difference, summary
from xlarank.pipelines.support.tables import Table
from xlarank.pipelines.training.frames import frame_folds, is_frame, read_frame, rows_by_graph

if TYPE_CHECKING:
    import polars as pl

_GRAPHS: Final = "a list of graphs (LayoutGraph, TileGraph, or paths of npz files), or a frame"


@dataclass(frozen=True, eq=False)
class TrainingRows:
    """Rows to train on, and what they are of.

    Attributes:
        left_out: graph -> reason why it is not used.
        table: frame that the rows are from, if any.
    """

    data: TrainingData
    collection: Collection
    target: str
    left_out: dict[str, str]
    table: pl.DataFrame | None

    @classmethod
    def of(cls, source: Any, target: str | None = None) -> TrainingRows:
        """Return the measured rows of graphs or of a frame.

        ``target`` is the hardware (`xlarank.data.hardware`), by default as the graphs say. Raises
        `ModelError` for graphs of two kinds or for none to fit on, and `ParameterError` for graphs
        for no or several kinds of hardware without ``target``.
        """
        if is_frame(source):
            collection, table = read_frame(source)
            target = collection.hardware if target is None else require_hardware(target)
            rows = [graph for _, graph in rows_by_graph(table)]
        else:
            table = None
            loaded = [as_graph(graph) for graph in graph_list(source)]
            kind, *other_kinds = {graph.kind for graph in loaded}
            if other_kinds:
                got = "the graphs are layout and tile graphs"
                raise ModelError(got, expected="graphs of one kind")
            target = _hardware_of(loaded) if target is None else require_hardware(target)
            rows = [assemble(graph, target) for graph in loaded]
            collection = Collection(
                ("tile", target) if kind == "tile" else ("layout", target, "own")
            )
        data = TrainingData.from_graphs(rows, target_of(target))
        left_out = {graph.name: graph.unusable for graph in rows if graph.unusable}
        return cls(data, collection, target, left_out, table)

    def fit(self, unfitted: Model, settings: FitSettings) -> Model:
        """Return a fitted model with its card."""
        model = unfitted.fit(self.data, settings)
        card = ModelCard(
            collection=str(self.collection),
            rounds=settings.rounds,
            recipe=Recipe.of(self.collection.kind, self.collection.hardware),
            trained_on={"train": self.data.names},
            target=self.target,
        )
        return replace(model, card=card)

    def cross_validate(self, unfitted: Model, settings: FitSettings) -> OutOfFold:
        """Return the out-of-fold scores of a model at the best number of rounds."""
        data = self.data
        plan = FoldPlan.of(data)
        if self.table is not None:
            data, plan = frame_folds(self.table, data, self.collection.kind)
        if not plan.folds:
            got = f"{counted(data.groups, 'graph')} of one program family cannot be held out"
            raise ModelError(got, expected="graphs of two or more program families")
        curves = plan.curves(data, unfitted, settings)
        stage = curves.best_stage()
        metrics = curves.at(stage)
        scores = {name: values["score"] for name, values in metrics.items()}
        rounds = curves.rounds[stage] if unfitted.estimator is None else None
        return OutOfFold(str(self.collection), unfitted.name, rounds, scores, metrics)


@dataclass(frozen=True, repr=False)
class OutOfFold(Table):
    """Scores of graphs by rankers fitted without them, higher is better.

    Attributes:
        rounds: the number of boosting rounds, the best on these folds; None of an estimator.
        scores: Kaggle's score of each graph: Kendall's tau for layouts, 1 - slowdown of the best of
            five for tiles.
        metrics: all metrics of each graph (docs/reference/metrics.md).
    """

    collection: str
    ranker: str
    rounds: int | None
    scores: dict[str, float]
    metrics: dict[str, dict[str, float]]

    @property
    def mean(self) -> float:
        """The mean score over graphs."""
        return float(summary(self.scores)["mean"])

    def gain_over(self, other: OutOfFold) -> tuple[float, float]:
        """Return the mean difference of scores on the same graphs, and its standard error."""
        if self.scores.keys() != other.scores.keys():
            raise ModelError("the results are of different graphs", expected="the same graphs")
        gain = paired_difference(self.scores, other.scores)
        return gain.mean, gain.error

    def to_polars(self) -> pl.DataFrame:
        """Return a frame with a row for each graph: ``graph`` and its metrics."""
        import polars as pl

        return pl.DataFrame([{"graph": name, **values} for name, values in self.metrics.items()])

    def __repr__(self) -> str:
        graphs = counted(len(self.scores), "graph")
        rounds = "" if self.rounds is None else f", {counted(self.rounds, 'round')}"
        score = f"{self.mean:.3f} out of fold on {graphs}"
        return f"<OutOfFold of {self.collection} by {self.ranker}{rounds}: {score}>"


def graph_list(graphs: Iterable[GraphLike]) -> list[GraphLike]:
    """Return several graphs as a list; raises `ParameterError`, and `ModelError` for none."""
    if isinstance(graphs, GraphLike) or not isinstance(graphs, Iterable):
        raise ParameterError(f"the graphs are {graphs!r:.60}", expected=_GRAPHS)
    if not (listed := list(graphs)):
        raise ModelError("there are no graphs", expected=_GRAPHS)
    return listed


def _hardware_of(graphs: Iterable[Graph]) -> str:
    """Return the hardware that the graphs are for; raise `ParameterError` for none or several."""
    names = {graph.target for graph in graphs}
    if "" in names:
        unnamed = next(graph.name for graph in graphs if not graph.target)
        got = f"{unnamed} does not say its hardware"
        raise ParameterError(got, expected=WORDS, do="pass target=")
    if len(names) > 1:
        got = f"the graphs are for {', '.join(sorted(names))}"
        raise ParameterError(got, expected="graphs for one target", do="pass target=")
    (name,) = names
    if note := substitution_note(name):
        warnings.warn(note, stacklevel=5)
    return name
