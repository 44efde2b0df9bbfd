"""Training of the model of each collection."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from xlarank.data.collection import Names
from xlarank.data.errors import CollectionError, counted
from xlarank.data.workspace import DEFAULT_ROOT, Workspace, WorkspaceLike
from xlarank.models.card import FALLBACK
from xlarank.models.losses import DEFAULT, specs_of
from xlarank.models.model import Model
from xlarank.models.params import Interval
from xlarank.models.training_data import FitSettings
from xlarank.models.tuned import params_for
from xlarank.models.validation.metrics import require_selection, summarise
from xlarank.pipelines.ranking.model_choice import best_of
from xlarank.pipelines.support.baselines import UNTRAINED, Metrics
from xlarank.pipelines.support.evaluation import add_untrained, board, compared
from xlarank.pipelines.support.progress import steps_of
from xlarank.pipelines.support.tables import Table
from xlarank.pipelines.support.workspaces import chosen_collections, leaving_out, workspace_lock
from xlarank.pipelines.training.training_sets import StoredTrainingSet, read_training_set

if TYPE_CHECKING:
    import polars as pl


#: Number of rounds without folds, except for time-trees of layouts, which rank without trees.
_DEFAULT_ROUNDS: Final = 150


@dataclass(frozen=True)
class TrainResult:
    """Result of training on one collection; ``skipped`` is the reason if it was left out.

    Attributes:
        rounds, chosen_by: number of boosting rounds, and how it was chosen.
        folds: out-of-fold summary (`xlarank.models.validation.metrics.summarise`); empty without
            folds.
        comparison: the model, the estimated time and rules on the graphs of the folds, as in
            `xlarank.pipelines.support.evaluation.compared`.
        ranked_by: what `rank` and `submit` use, and why.
    """

    collection: str
    model: str = ""
    tuned: bool = False
    graphs: int = 0
    rows: int = 0
    families: int = 0
    rounds: int = 0
    chosen_by: str = ""
    seeds: int = 0
    fallback: str = ""
    folds: dict[str, dict[str, Any]] = field(default_factory=dict)
    importance: dict[str, float] = field(default_factory=dict)
    comparison: list[dict[str, Any]] = field(default_factory=list)
    ranked_by: str = ""
    seconds: float = 0.0
    skipped: str = ""


class Training(Table, list[TrainResult]):
    """Results of training, one for each collection."""

    def __repr__(self) -> str:
        lines = []
        for result in self:
            if result.skipped:
                lines.append(f"{result.collection} is not trained: {result.skipped}")
            else:
                lines.append(f"{result.collection} is ranked by {result.ranked_by}")
        return "\n".join(lines)

    def to_polars(self) -> pl.DataFrame:
        """Return the `board` of the trained and untrained rankers of each collection."""
        return board({result.collection: result.comparison for result in self})


def train(
    workspace: WorkspaceLike = DEFAULT_ROOT,
    *,
    collection: Names = (),
    also_from: Names = (),
    model: str = DEFAULT,
    seeds: int = 3,
    with_valid: bool = False,
    max_rows: int | None = None,
    rounds: int = 300,
    select: str = "mean",
    seed: int = 0,
    threads: int = 0,
) -> Training:
    """Train and save the model of each collection of a workspace.

    If folds hold out kernel families, those unseen in training are ranked with a fallback, blended
    with the compiler's default (`xlarank.models.card.blend_default`). A model whose scores are all
    equal is not saved; models that were saved before an error stay.

    Args:
        collection: collections or patterns; default: all with rows.
        also_from: additional training collections of the same kind, which are not scored.
        model: name of the ranker.
        seeds: number of boosters whose scores are averaged, from ``seed`` on.
        with_valid: also train on the valid split; afterwards, scores on it are meaningless.
        max_rows: training rows of a collection, sampled evenly from its graphs; 0: all, None:
            100,000 for layouts, 500,000 for tiles.
        rounds: maximum number of boosting rounds; folds choose.
        select: score that folds choose by: "mean", or "robust" (less a quarter of the spread).
        threads: 0 and -1: all cores.

    Raises `CollectionError` or `ModelError` for a named collection (others are left out with their
    reason), and `CollectionError` if nothing could be trained.

    Examples:
        >>> import tempfile, xlarank
        >>> work = tempfile.mkdtemp()
        >>> built = xlarank.build_features(xlarank.SAMPLE, work, collection="tile:cpu")
        >>> trained = xlarank.train(work, seeds=1, rounds=20, threads=1)
        >>> print(trained)
        tile:cpu is ranked by ..., 0.9... out of fold on 30 graphs; ...
        >>> trained.to_polars().columns[:4]
        ['collection', 'ranker', 'graphs', 'score']
    """
    Interval(1, 1000, whole=True)("`seeds`", seeds)
    Interval(0, whole=True)("max_rows", max_rows or 0)
    require_selection("select", select)
    specs_of(model)  # raises for an unknown name
    work = Workspace.of(workspace)
    work.require_writable()
    fit = FitSettings(rounds, seed, threads)
    extra = chosen_collections(work, also_from) if also_from else []
    splits = ("train", "valid") if with_valid else ("train",)
    left_out: dict[str, str] = {}
    results = []
    for each in chosen_collections(work, collection):
        with leaving_out(each, collection, left_out):
            began = time.monotonic()
            training = read_training_set(work, each, splits, extra, max_rows)
            result = _train(work, training, model, seeds, fit, select)
            results.append(replace(result, seconds=time.monotonic() - began))
    if not results:
        raise CollectionError("; ".join(left_out.values()))
    skipped = [TrainResult(name, skipped=reason) for name, reason in left_out.items()]
    return Training([*results, *skipped])


def _train(
    workspace: Workspace,
    training: StoredTrainingSet,
    ranker: str,
    seeds: int,
    fit: FitSettings,
    select: str,
) -> TrainResult:
    """Cross-validate a ranker with its tuned parameters, if any; fit it on all rows and save it."""
    plan = training.plan
    data = training.data.training_groups()
    params, tuned = params_for(
        workspace.study(training.collection), ranker, training.collection.kind
    )
    unfitted = Model.of(ranker, training.collection.kind, params)
    title = f"training {training.collection}"
    with steps_of(title, len(plan.folds) + seeds) as step:
        rounds = min(_DEFAULT_ROUNDS, fit.rounds)
        folds: Metrics = {}
        if plan.folds:
            curves = plan.curves(
                training.data,
                unfitted,
                fit,
                lambda fold: step(f"held out {counted(len(fold.held), 'graph')}"),
            )
            stage = curves.best_stage(select)
            rounds = curves.rounds[stage]
            folds = curves.at(stage)
        elif ranker == "time-trees" and training.collection.kind == "layout":
            rounds = 0
        settings = replace(fit, rounds=rounds)
        model = unfitted.fit(
            data, settings, seeds, lambda seed: step(f"seed {seed}, {counted(rounds, 'round')}")
        )
    importance = model.importance() if model.members else {}
    if not importance:
        _require_scores_that_differ(training, model)
    rankings = {ranker: folds}
    for graph in training.data.parts:
        if graph.name in folds:
            add_untrained(rankings, training.collection, graph)
    card = training.card(rounds, folds, tuned=tuned, select=select)
    for name in UNTRAINED:
        if name in rankings:
            scores = {graph: values["score"] for graph, values in rankings[name].items()}
            card.others[name] = scores
    with workspace_lock(workspace):
        training.require_current(workspace)
        saved = model.save(workspace.model(training.collection), card)
    by_folds = f"{len(plan.folds)} folds by {plan.by.replace('-', ' ')}"
    return TrainResult(
        card.collection,
        ranker,
        tuned,
        graphs=data.groups,
        rows=len(data.cost),
        families=len(set(data.families)),
        rounds=rounds,
        chosen_by=by_folds if folds else "default (one family, no folds)",
        seeds=seeds,
        fallback=FALLBACK if card.fallback else "",
        importance=importance,
        folds=summarise(folds),
        comparison=compared(rankings),
        ranked_by=best_of(saved).reason,
    )


def _require_scores_that_differ(training: StoredTrainingSet, model: Model) -> None:
    """Raise `CollectionError` for a model that ranks nothing: no tree has a split."""
    data = training.data.training_groups()
    if all(np.ptp(model.score(part)) == 0 for part in data.parts):
        rows = counted(len(data.cost), "row")
        got = f"all scores of {training.collection} ({rows}) are equal, so the model is not saved"
        do = "add graphs or configurations, or run tune, which tries smaller leaves"
        raise CollectionError(got, do=do)
