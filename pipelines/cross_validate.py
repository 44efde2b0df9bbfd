"""Out-of-fold scores: every graph is scored by a ranker that was fitted without it and its relatives."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl

from xlarank.data.collection import Collection
from xlarank.data.errors import CollectionError, XlarankError, did_you_mean, reasons
from xlarank.data.workspace import Workspace
from xlarank.features.catalogue import BLOCKS
from xlarank.models.base import Ranker
from xlarank.models.registry import ranker_class
from xlarank.models.trained import TrainedModel, model_of
from xlarank.models.training_data import FitSettings
from xlarank.models.validation.best_params import params_for
from xlarank.models.validation.curves import FOLDS_OF, KIND, MOST_FOLDS, Curves, FoldPlan
from xlarank.models.validation.folds import Fallback, family_folds, graph_folds, kind_folds, whole_folds
from xlarank.models.validation.metrics import paired_difference
from xlarank.pipelines.support.evaluation import Evaluation, score_name
from xlarank.pipelines.support.progress import Progress, Silent, steps_of
from xlarank.pipelines.support.results import results_table, write_results
from xlarank.pipelines.support.score_files import write_out_of_fold
from xlarank.pipelines.support.workspace_collections import chosen_collections, skip_unless_named
from xlarank.pipelines.support.workspace_lock import write_or_note
from xlarank.pipelines.training.training_sets import StoredTrainingSet, learned_by, read_training_set

#: Values of ``by``, what is held out together with a graph -> description of the scores, and what they take.
HELD_OUT: Final = {
    "family": ("out of fold, unseen families", "graphs of two or more program families"),
    "graph": ("out of fold, same families in the training set", "two or more graphs of one family"),
    "kind": ("out of fold, unseen kinds of kernels", "kernels of two or more kinds"),
}
#: The most rounds where nothing else is asked for.
ROUNDS: Final = 300


def cross_validate(
    workspace: Workspace,
    *,
    by: str = "family",
    collections: Sequence[str] = (),
    model: str | None = None,
    with_valid: bool = False,
    fit: FitSettings | None = None,
    without: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Score training graphs out of fold, and write the scores into ``predictions/``.

    ``by`` says what is held out with a graph. "family": its program family, as for a new program. "graph": nothing
    else, as for another variant of a known program; graphs that are alone in their family are left out. "kind":
    every kernel that may be of its kind (`xlarank.features.tile.tile_context.kernel_kinds`), with the fallback of
    `xlarank.models.validation.folds`; for layouts, which have no kinds, the family.

    Without ``model`` each collection's trained model is scored, with its parameters and rounds: by family
    the scores that `train` kept, otherwise rankers are fitted anew. A ``model``, the name of a ranker, is fitted
    on the train split (``with_valid``: and on valid), with tuned parameters where there are some, at the number of
    rounds (at most those of ``fit``) that is best on these folds. If ``without`` is given, the columns of these
    blocks (names of classes, perhaps none) are dropped and the ranker is fitted anew.

    If the workspace cannot be written, a note says so. Raises `CollectionError` when nothing could be scored, or
    for a collection asked for by name; `ModelError` for an unknown ranker and where a model is missing;
    `XlarankError` for another ``by``.
    """
    if by not in HELD_OUT:
        raise XlarankError(f"`by` is {by!r}", expected=" or ".join(HELD_OUT))
    if model is not None:
        ranker_class(model)
    settings = fit or FitSettings(ROUNDS)
    evaluation = Evaluation(HELD_OUT[by][0])

    for collection in chosen_collections(workspace, collections):
        with skip_unless_named(collection, collections, evaluation.left_out):
            job = _Job(workspace, collection, by, with_valid, settings, without, progress, evaluation)
            table = job.of_model(model_of(workspace, collection)) if model is None else job.of_ranker(model)
            evaluation.results = pl.concat([evaluation.results, table])
    if not len(evaluation.results):
        raise CollectionError("nothing could be cross-validated: " + "; ".join(reasons(evaluation.left_out)))
    return evaluation


def cross_validate_rankers(
    workspace: Workspace,
    models: Sequence[str],
    *,
    by: str = "family",
    collections: Sequence[str] = (),
    with_valid: bool = False,
    fit: FitSettings | None = None,
    without: Sequence[str] = (),
    progress: Progress | None = None,
) -> Evaluation:
    """`cross_validate` for each ranker by name, on the same folds; differences are those to the first.

    Each ranker has the number of rounds that is best for itself on these folds. With ``without``, a single ranker
    (none: that of the trained model) is compared with itself on rows without the columns of these blocks. Raises as
    `cross_validate`, and `XlarankError` for another number of rankers.
    """
    names = list(dict.fromkeys(models))
    if without and len(names) > 1:
        raise XlarankError(f"{len(names)} rankers without blocks", expected="one ranker, or the trained model's")
    if not without and len(names) < 2:
        raise XlarankError(f"there is {len(names)} ranker to compare", expected="two or more, all different")
    for name in names:
        ranker_class(name)
    runs: list[tuple[str | None, Sequence[str] | None]] = [(name, None) for name in names]
    if without:  # first without the blocks, which leaves out the collections that have none of their columns
        runs = [(names[0] if names else None, blocks) for blocks in (without, ())]
    evaluation = Evaluation("")
    for model, blocks in runs:
        evaluated = evaluation.results["collection"].unique(maintain_order=True).to_list()
        alone = cross_validate(
            workspace, by=by, collections=evaluated if without and evaluated else collections, model=model,
            with_valid=with_valid, fit=fit, without=blocks, progress=progress,
        )  # fmt: skip
        evaluation.graphs = alone.graphs
        evaluation.left_out |= alone.left_out
        tables = [alone.results, evaluation.results] if without else [evaluation.results, alone.results]
        evaluation.results = pl.concat(tables)
        evaluation.notes += [note for note in alone.notes if note not in evaluation.notes]
    return evaluation


def worth_of_blocks(evaluation: Evaluation, blocks: Sequence[str]) -> dict[str, str]:
    """Describe, by collection, the paired difference that the columns of the blocks make."""
    texts = {}
    for collection, rankings in evaluation.rankings().items():
        whole, rest = ({graph: of["score"] for graph, of in metrics.items()} for metrics in rankings.values())
        worth, error = paired_difference(whole, rest)
        added = f"{worth:+.4f} of {score_name(collection)} (standard error {error:.4f})"
        texts[collection] = f"columns of {' and '.join(blocks)} add {added}"
    return texts


class _Validated(NamedTuple):
    """Scores out of fold, and what they took."""

    plan: FoldPlan
    curves: Curves
    seconds: float


@dataclass(frozen=True)
class _Job:
    """The folds of one collection."""

    workspace: Workspace
    collection: Collection
    by: str
    with_valid: bool
    settings: FitSettings
    without: Sequence[str] | None
    progress: Progress | None
    evaluation: Evaluation

    def of_model(self, model: TrainedModel) -> pl.DataFrame:
        """At the parameters and rounds of a trained model, on the graphs that it was trained on."""
        card = model.card
        kept = card.folds_by == "family" and self.without is None
        if kept and (self.by == "family" or (card.kind == "layout" and self.by == "kind")):
            if not card.folds:
                raise CollectionError(f"{self.collection} was trained without folds (one program family)")
            return results_table(card.folds, card.model, place=self._place("family"), tuned=card.tuned)
        training = self._dropped(learned_by(self.workspace, self.collection, model))
        settings = FitSettings(card.rounds, self.settings.seed, self.settings.threads)
        validated = self._curves(training, model.rankers[0], settings)
        graphs = validated.curves.metrics
        if card.folds and not self.without:
            apart = np.mean([card.folds[name]["score"] for name in graphs])
            self._note(f"these {len(graphs)} graphs by folds of {FOLDS_OF[card.folds_by]}: score {apart:.3f}")
        return self._keep(training, card.model, card.tuned, validated, -1)

    def of_ranker(self, name: str) -> pl.DataFrame:
        """At the best number of rounds."""
        splits = ("train", "valid") if self.with_valid else ("train",)
        training = self._dropped(read_training_set(self.workspace, self.collection, splits))
        params, tuned = params_for(self.workspace.study(self.collection), name, training.kind)
        validated = self._curves(training, ranker_class(name)(params, kind=training.kind), self.settings)
        curves = validated.curves
        stage, how = curves.best_stage(), "tuned" if tuned else "default"
        self._note(
            f"{name}{self._suffix} with {how} parameters, {curves.rounds[stage]} rounds, the best on these folds"
        )
        return self._keep(training, name, tuned, validated, stage)

    def _dropped(self, training: StoredTrainingSet) -> StoredTrainingSet:
        """Return the training set without the columns of the blocks; raises `XlarankError` for unknown ones."""
        if not self.without:
            return training
        known = {type(block).__name__: [*block.columns] for block in BLOCKS}
        for file in training.manifest.recipe.settings.block_files:
            known |= file.columns
        for name in {*self.without} - known.keys():
            close = did_you_mean(name, known, cutoff=0.5)
            raise XlarankError(f"there is no block {name}", expected="" if close else ", ".join(known), do=close)
        columns = {column for name in self.without for column in known[name]}
        if columns.isdisjoint(training.data.columns):
            raise CollectionError(f"{self.collection} has no columns of {' or '.join(self.without)}")
        return replace(training, data=training.data.drop(columns))

    @property
    def _suffix(self) -> str:
        return f" without {' and '.join(self.without)}" if self.without else ""

    def _keep(
        self, training: StoredTrainingSet, ranker: str, tuned: bool, validated: _Validated, stage: int
    ) -> pl.DataFrame:
        """Return the results of a stage, after writing them and its scores."""
        plan, curves, seconds = validated
        table = results_table(
            curves.at(stage), ranker + self._suffix, place=self._place(plan.by), tuned=tuned, seconds=seconds
        )
        scores, seed = curves.scores_at(stage), self.settings.seed

        def write() -> None:
            write_results(self.workspace, [table])
            if not self.without:
                write_out_of_fold(self.workspace, training, plan, ranker, scores, seed)

        write_or_note(self.workspace, self.progress or Silent(), self.evaluation.notes, write)
        return table

    def _place(self, by: str) -> tuple[str, str, str]:
        return str(self.collection), "train", by

    def _curves(self, training: StoredTrainingSet, ranker: Ranker[Any], settings: FitSettings) -> _Validated:
        began = time.perf_counter()
        data, plan = training.data, self._plan(training)
        if not plan.folds:
            raise CollectionError(
                f"there is nothing to hold out by {plan.by} of the {data.groups} graphs of {self.collection}",
                expected=HELD_OUT[plan.by][1],
                do="pass another `by`",
            )
        with steps_of(self.progress, f"cross-validating {self.collection}", len(plan.folds)) as step:
            note = f"of {data.groups} graphs"
            curves = plan.curves(data, ranker, settings, lambda fold: step(f"held out {len(fold.held)} {note}"))
        why = "no other graph is of its family" if self.by == "graph" else "all graphs may be of its kind"
        for name in data.names:
            if name not in curves.metrics:
                self.evaluation.left_out[f"{self.collection} {name}"] = why
        return _Validated(plan, curves, time.perf_counter() - began)

    def _plan(self, training: StoredTrainingSet) -> FoldPlan:
        data = training.data
        if self.by == "kind" and training.kind == "tile":
            kinds = [graph.kinds for graph in data.parts]
            plan = FoldPlan(KIND, kind_folds(kinds, MOST_FOLDS))
            self._note(f"{len({kind for of in kinds for kind in of})} kinds of kernels in {len(plan.folds)} folds")
            self._note(f"fallback for unseen kinds of kernels: {Fallback()}")
            return plan
        if self.by == "graph":
            self._note("other graphs of the same families were trained on, so this is no score for new programs")
            return FoldPlan("graph", whole_folds(graph_folds(data.families, MOST_FOLDS)))
        return FoldPlan.of_families(family_folds(data.families, MOST_FOLDS))

    def _note(self, text: str) -> None:
        self.evaluation.notes.append(f"{self.collection}: {text}")
