"""Models to choose from: their numbers of rounds and scores on held-out families."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

from xlarank.data.collection import Collection
from xlarank.data.workspace import Workspace
from xlarank.models.model import Model
from xlarank.models.rankers import DEFAULT, rankers
from xlarank.models.training_data import FitSettings, TrainingData
from xlarank.models.tuned import params_for
from xlarank.models.validation.folds import Fold, FoldPlan
from xlarank.models.validation.metrics import objective_value
from xlarank.pipelines.training.settings import AUTO, TrainSettings

#: Number of rounds without folds, except for time-trees of layouts, which rank without trees.
_DEFAULT_ROUNDS: Final = 150


@dataclass(frozen=True, eq=False)
class Contender:
    """An unfitted model with its number of rounds and out-of-fold scores.

    Attributes:
        rounds, chosen_by: number of rounds, and how it was chosen.
        metrics: out-of-fold metrics by graph, of one seed; empty without folds.
        value: aggregate of the out-of-fold scores by ``TrainSettings.select``.
    """

    model: Model
    tuned: bool
    rounds: int
    chosen_by: str
    metrics: dict[str, dict[str, float]] = field(default_factory=dict)
    value: float = 0.0

    def validated(
        self,
        data: TrainingData,
        plan: FoldPlan,
        settings: TrainSettings,
        fit: FitSettings,
        step: Callable[[str], Any],
    ) -> Contender:
        """Return the model with out-of-fold scores at the best number of rounds; ``step`` is called
        for each fold. Without folds, return it unchanged.
        """
        if not plan.folds:
            return self
        prefix = f"{self.model.name}, " if settings.model == AUTO else ""

        def report_fold(fold: Fold) -> None:
            families = sorted({data.families[graph] for graph in fold.held})
            step(f"{prefix}held out {', '.join(families)}")

        curves = plan.curves(data, self.model, fit, report_fold)
        stage = curves.best_stage(settings.select)
        return replace(
            self,
            rounds=curves.rounds[stage],
            chosen_by=f"{len(plan.folds)} folds by {plan.by}",
            metrics=curves.at(stage),
            value=float(objective_value(curves.column("score")[:, stage], settings.select)),
        )


def new_contenders(
    workspace: Workspace, collection: Collection, settings: TrainSettings, *, has_folds: bool
) -> list[Contender]:
    """Return the requested ranker, or all of them for "auto", with tuned parameters if any."""
    kind = collection.kind
    has_estimate = kind == "layout"  # every target has an estimated time of layouts
    names = [settings.model]
    if settings.model == AUTO:
        by_default = "time-trees" if has_estimate else DEFAULT
        names = rankers() if has_folds else [by_default]
    contenders = []
    for name in names:
        params, tuned = params_for(workspace.study(collection), name, kind)
        rounds = 0 if name == "time-trees" and has_estimate else _DEFAULT_ROUNDS
        rounds = min(rounds, settings.rounds)
        model = Model.of(name, kind, params)
        contenders.append(Contender(model, tuned, rounds, "default (one family, no folds)"))
    return contenders
