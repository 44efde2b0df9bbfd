"""Continue a trained model on the graphs of each collection."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from xlarank.data.errors import CollectionError, ModelError
from xlarank.data.family import program_family
from xlarank.data.ranges import require_ranges, thread_count
from xlarank.data.workspace import Workspace
from xlarank.models.base import Ranker
from xlarank.models.fit_settings import FitSettings
from xlarank.models.pretrained import columns_by_name, pretrained_model
from xlarank.models.ranking_data import RankingData
from xlarank.models.registry import DEFAULT
from xlarank.models.trained import CARD, Continued, TrainedModel, fingerprint, load_model, model_of
from xlarank.models.validation.fold_plan import MOST_FOLDS, FoldPlan
from xlarank.models.validation.folds import family_folds
from xlarank.models.validation.metrics import judge
from xlarank.models.validation.paired import objective_value, paired_difference, require_selection
from xlarank.pipelines.support.engines import require_engine, tree_cluster
from xlarank.pipelines.support.fitting import Choice, Job, TrainRequest, TrainResult, fit_each
from xlarank.pipelines.support.progress import Progress, Silent
from xlarank.pipelines.support.training_sets import StoredTrainingSet
from xlarank.pipelines.support.workspace_collections import trained_collections

#: The ranker that comes with xlarank, as a model to continue.
SHIPPED: Final = "shipped"
#: How fast new trees learn beside the old ones, to be chosen among by folds.
RATES: Final = (1.0, 0.3)
#: Families, new to the model that is continued, from which on folds choose; fewer say too little.
FEWEST_FAMILIES: Final = 3
#: Rounds and rate where folds cannot choose: chosen on the embedded sample (docs/tpu-estimates.md).
DEFAULT_ROUNDS: Final = 100
DEFAULT_RATE: Final = 1.0


@dataclass(frozen=True)
class FineTuning:
    """A model to continue.

    Attributes:
        model: as it was trained.
        where: `SHIPPED`, or the folder that it was read from.
    """

    model: TrainedModel
    where: str

    @classmethod
    def find(cls, asked: str, workspace: Workspace) -> FineTuning:
        """By `SHIPPED`, the name of a collection with a model in the workspace, or the folder of a model.

        Raises `ModelError` where there is none.
        """
        if asked == SHIPPED:
            return cls(pretrained_model(), SHIPPED)
        trained = {str(collection): collection for collection in trained_collections(workspace)}
        if asked in trained:
            return cls(model_of(workspace, trained[asked]), str(workspace.model(trained[asked])))
        if (Path(asked) / CARD).exists():
            return cls(load_model(Path(asked)), asked)
        raise ModelError(
            f"there is no model {asked!r} to continue",
            expected=", ".join([SHIPPED, f"a folder with {CARD}", *trained]),
            do="pass --fine-tune with one of these",
        )

    def require_fit(self, training: StoredTrainingSet) -> None:
        """Raise `CollectionError` or `ModelError` unless the model can go on with these graphs."""
        card, manifest = self.model.card, training.manifest
        if card.kind != training.kind:
            raise CollectionError(
                f"{training.collection} holds {training.kind} graphs",
                expected=f"{card.kind} graphs, which the model of {card.collection} ranks",
                do="choose the collections to train with --collection",
            )
        if not self.model.shipped and card.recipe.code_hash != manifest.recipe.code_hash:
            raise ModelError(
                f"the rows of {training.collection} were made by feature code {manifest.recipe.code_hash}",
                expected=f"{card.recipe.code_hash}, which the model of {card.collection} was trained on",
                do="train that model again, or continue another",
            )

    def rankers(self, rate: float) -> list[Ranker[Any]]:
        """Unfitted rankers that go on, one of each seed of the model."""
        return [ranker.continuing(rate) for ranker in self.model.rankers]

    def folds(self, families: Sequence[str]) -> list[list[int]]:
        """Folds of the graphs whose families the model has not learned from: only those tell how good it is."""
        known = {program_family(name) for name in self.known_graphs()}
        new = [family for family in families if family not in known]
        if len(set(new)) < 2:
            return []
        place = [number for number, family in enumerate(families) if family not in known]
        return [[place[number] for number in held] for held in family_folds(new, MOST_FOLDS)]

    def known_graphs(self) -> set[str]:
        """Names of all graphs that the model, and any that it continues itself, learned from."""
        card = self.model.card
        of = [*card.trained_on.values(), *card.also_from.values()]
        return {name for names in of for name in names} | set(card.continues.graphs if card.continues else ())

    def scores(self, data: RankingData, groups: Sequence[int]) -> dict[str, float]:
        """Scores of some graphs by the model as it is, by name."""
        found: dict[str, float] = {}
        for number in groups:
            rows = columns_by_name(data.parts[number], self.model.card.columns)
            score = self.model.score(rows).mean[rows.group]
            found[rows.name] = judge(self.model.card.kind, score, rows.cost, rows.group)["score"]
        return found

    def continued(self, rate: float) -> Continued:
        """What the card of the new model says of this one."""
        card = self.model.card
        return Continued(self.where, card.collection, fingerprint(card), rate, sorted(self.known_graphs()))

    def __str__(self) -> str:
        name = "the ranker that comes with xlarank" if self.where == SHIPPED else f"the model at {self.where}"
        return f"goes on from {name} ({self.model.card.collection}, {len(self.known_graphs())} programs)"


def fine_tune(
    workspace: Workspace,
    start: str,
    *,
    collections: Sequence[str] = (),
    also_from: Sequence[str] = (),
    model: str = DEFAULT,
    seeds: int = 3,
    with_valid: bool = False,
    rounds: int = 300,
    select: str = "mean",
    seed: int = 0,
    threads: int = 0,
    engine: str = "local",
    scheduler: str | None = None,
    progress: Progress | None = None,
) -> list[TrainResult]:
    """Continue a model on each collection, in place of learning from nothing.

    ``start`` is "shipped" for the ranker that comes with xlarank, a collection with a model in the workspace, or
    the folder of a model. Its rankers get more trees, at most ``rounds``, on the columns they use. Folds choose
    the number and how fast the new trees learn; only families that the model did not know are validated on, and
    with fewer than `FEWEST_FAMILIES` of them both are defaults. The other arguments are those of `train`.

    Raises `ModelError` where the model is missing or cannot be continued, and as
    `xlarank.pipelines.support.fitting.fit_each`.
    """
    require_ranges(seeds=seeds, rounds=rounds, seed=seed)
    threads = thread_count(threads)
    require_selection(select)
    tuning = FineTuning.find(start, workspace)
    if model not in (DEFAULT, tuning.model.card.model):
        raise ModelError(
            f"--model {model} beside a model to continue, which is of {tuning.model.card.model}",
            do="leave one of them out",
        )
    require_engine(engine, scheduler, tuning.model.card.model)
    workspace.require_writable()

    def plan_of(training: StoredTrainingSet) -> FoldPlan:
        tuning.require_fit(training)
        return FoldPlan.of_families(tuning.folds(training.data.families))

    with tree_cluster(scheduler, threads) as cluster:
        request = TrainRequest(
            collections=collections,
            also_from=also_from,
            splits=("train", "valid") if with_valid else ("train",),
            seeds=seeds,
            select=select,
            settings=FitSettings(rounds, seed, threads if cluster is None else 1, cluster=cluster),
            allow_constant=True,
        )
        return fit_each(workspace, request, plan_of, lambda job: choose_rate(job, tuning), progress or Silent())


def choose_rate(job: Job, tuning: FineTuning) -> Choice:
    """The rankers to continue at the best rate and number of rounds; both are defaults for few new families."""
    new = {job.training.data.families[group] for held in job.plan.held for group in held}
    rates = RATES if len(new) >= FEWEST_FAMILIES else (DEFAULT_RATE,)
    job.begin(len(rates))
    card, most = tuning.model.card, job.request.settings.rounds
    rounds = most if len(rates) > 1 else min(DEFAULT_ROUNDS, most)
    if not job.plan.folds:
        why = "default (fewer than two families that the model did not know)"
        return Choice(
            tuning.rankers(DEFAULT_RATE), card.tuned, rounds, why, {}, str(tuning),
            tuning.continued(DEFAULT_RATE), card.kinds,
        )  # fmt: skip
    found = {rate: job.candidate(tuning.rankers(rate)[0], card.tuned, rounds=rounds) for rate in rates}
    rate, best = max(found.items(), key=lambda one: one[1].value)  # of equals the first
    assert best.curves is not None
    stage, chosen_by = best.stage, job.plan.chosen_by
    if len(rates) == 1:
        stage, chosen_by = -1, f"default (fewer than {FEWEST_FAMILIES} families that the model did not know)"
    metrics = best.curves.at(stage)
    scores = {name: values["score"] for name, values in metrics.items()}
    before = tuning.scores(job.training.data, [group for held in job.plan.held for group in held])
    lead, spread = paired_difference(scores, before, job.request.select)
    score = objective_value(np.array([*scores.values()]), job.request.select)
    why = (
        f"{tuning}; out of fold {score:.3f} on {len(scores)} graphs of families new to it, {lead:+.3f} ± "
        f"{spread:.3f} to that model as it is; new trees learn {rate:g} times as fast as its own"
    )
    if lead < 0:
        why += "; as it was it ranks them better: measure more graphs, or rank with that model"
    return Choice(
        tuning.rankers(rate), card.tuned, best.curves.rounds[stage], chosen_by, metrics, why,
        tuning.continued(rate), card.kinds,
    )  # fmt: skip
