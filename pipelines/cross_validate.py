"""Cross-validation: scores of graphs by rankers fitted without them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from xlarank.data.collection import Collection
from xlarank.data.errors import CollectionError, XlarankError, counted, did_you_mean, reasons
from xlarank.data.workspace import Workspace
from xlarank.features.catalogue import BLOCKS
from xlarank.features.store import read_manifest
from xlarank.models.card import FALLBACK, FAMILY, FOLDS_OF, KIND, ModelCard
from xlarank.models.model import Model
from xlarank.models.rankers import specs_of
from xlarank.models.stored import model_of
from xlarank.models.training_data import FitSettings, TrainingData
from xlarank.models.tuned import params_for
from xlarank.models.validation import folds
from xlarank.models.validation.folds import MOST_FOLDS, Curves, FoldPlan
from xlarank.models.validation.metrics import paired_difference
from xlarank.pipelines.ranking.model_choice import best_of
from xlarank.pipelines.support.baselines import Rankings
from xlarank.pipelines.support.evaluation import Evaluation, add_untrained, first_of, out_of_fold
from xlarank.pipelines.support.progress import Progress, steps_of
from xlarank.pipelines.support.results import results_table, run_of, write_results
from xlarank.pipelines.support.verdicts import score_name
from xlarank.pipelines.support.workspaces import (
    each_collection,
    labelled_collections,
    note_errors,
    workspace_lock,
)
from xlarank.pipelines.training.training_sets import read_training_set, training_set_of

GRAPH: Final = "graph"
#: Unit held out -> description of the scores.
HELD_OUT: Final = {
    KIND: "out of fold, unseen kernel families (layouts: program families)",
    FAMILY: "out of fold, unseen program families",
    GRAPH: "out of fold, same families in the training set",
}
ROUNDS: Final = 300


def cross_validate(
    workspace: Workspace,
    model: str | Sequence[str] | None = None,
    *,
    by: str = KIND,
    collections: Sequence[str] = (),
    with_valid: bool = False,
    fit: FitSettings | None = None,
    without: Sequence[str] = (),
    name: str = "",
    progress: Progress | None = None,
) -> Evaluation:
    """Score training graphs out of fold; write the scores to ``predictions/`` if possible.

    Without ``model``, each collection's trained model is scored with its parameters and rounds. The
    scores kept by `train` are reused if its folds held out the same unit.

    Args:
        model: ranker to fit instead of the trained model's, with tuned parameters if any and the
            best number of rounds on these folds (at most that of ``fit``). Several rankers are
            compared with the first.
        by: unit held out with a graph. "kind": as in `FoldPlan.of`, with a fallback. "family": its
            program family, as for a new program. "graph": nothing else, as for a new variant of a
            known program; graphs that are alone in their family are left out.
        without: names of block classes. The ranker is compared with itself without their columns;
            collections that have none of them are left out.
        name: name of the run in the leaderboard.

    Raises `CollectionError` if nothing, or not a named collection, could be scored; `ModelError`
    for an unknown ranker or a missing model; `XlarankError` for an invalid argument.
    """
    if by not in HELD_OUT:
        raise XlarankError(f"`by` is {by!r}", expected=" or ".join(HELD_OUT))
    rankers = [model] if isinstance(model, str) else list(dict.fromkeys(model or ()))
    if without and len(rankers) > 1:
        got = f"{len(rankers)} rankers without blocks"
        raise XlarankError(got, expected="one ranker, or the trained model's")
    for ranker in rankers:
        specs_of(ranker)
    settings = fit or FitSettings(ROUNDS)
    evaluation = Evaluation(HELD_OUT[by])

    def run(collection: Collection) -> Rankings:
        job = _CrossValidation(
            workspace, collection, by, with_valid, settings, not without, name, progress, evaluation
        )
        rankings = Rankings()
        for blocks in ((), without) if without else ((),):
            for ranker in rankers or (None,):
                rankings |= job.score(ranker, blocks)
        return rankings

    chosen = []
    for collection in labelled_collections(workspace, collections):
        if not without or _columns_of(workspace, collection, without):
            chosen.append(collection)
        else:
            reason = f"{collection} has no columns of {' or '.join(without)}"
            evaluation.left_out[str(collection)] = reason
    evaluation.rankings = each_collection(chosen, collections, evaluation.left_out, run)
    if not evaluation.rankings:
        why = "; ".join(reasons(evaluation.left_out))
        raise CollectionError(f"nothing could be cross-validated: {why}")
    evaluation.notes = list(dict.fromkeys(evaluation.notes))
    return evaluation


def worth_of_blocks(evaluation: Evaluation, blocks: Sequence[str]) -> dict[str, str]:
    """Describe the paired difference made by the columns of the blocks, for each collection."""
    texts = {}
    for collection, rankings in evaluation.rankings.items():
        label, _ = next(iter(rankings))
        complete, reduced = (
            {graph: values["score"] for graph, values in rankings[name, None].items()}
            for name in (label, f"{label} without {' and '.join(blocks)}")
        )
        gain, error = paired_difference(complete, reduced)
        added = f"{gain:+.4f} of {score_name(collection)} (standard error {error:.4f})"
        texts[collection] = f"columns of {' and '.join(blocks)} add {added}"
    return texts


def _columns_of(workspace: Workspace, collection: Collection, blocks: Sequence[str]) -> set[str]:
    """Return the stored columns of blocks; raises `XlarankError` for an unknown block."""
    manifest = read_manifest(workspace, collection, "train")
    if manifest is None:
        return set()
    columns_of = {block.title: [*block.columns] for block in BLOCKS}
    for file in manifest.recipe.settings.block_files:
        columns_of |= file.columns
    for name in {*blocks} - columns_of.keys():
        close = did_you_mean(name, columns_of, cutoff=0.5)
        expected = "" if close else ", ".join(columns_of)
        raise XlarankError(f"there is no block {name}", expected=expected, do=close)
    return {column for name in blocks for column in columns_of[name]} & {*manifest.columns}


@dataclass(frozen=True)
class _CrossValidation:
    """Cross-validation of one collection, which adds notes and graphs left out to ``evaluation``.

    Scores kept by `train` are taken if ``reuses`` and if they fit.
    """

    workspace: Workspace
    collection: Collection
    by: str
    with_valid: bool
    settings: FitSettings
    reuses: bool
    name: str
    progress: Progress | None
    evaluation: Evaluation

    def score(self, ranker: str | None, without: Sequence[str]) -> Rankings:
        """Return the metrics of a ranker, or of the trained model, and those of rules."""
        settings = self.settings
        if ranker is None:
            model = model_of(self.workspace, self.collection)
            card = model.require_card()
            if self.reuses and self.by in (KIND, card.folds_by):
                return self._kept_by_train(model, card)
            training = training_set_of(self.workspace, self.collection, model)
            tuned = card.tuned
            settings = replace(settings, rounds=card.rounds)
        else:
            splits = ("train", "valid") if self.with_valid else ("train",)
            training = read_training_set(self.workspace, self.collection, splits)
            params, tuned = params_for(self.workspace.study(self.collection), ranker, training.kind)
            model = Model.of(ranker, training.kind, params)
        data = training.data
        if without:
            data = data.drop(_columns_of(self.workspace, self.collection, without))
        plan = self._plan(data)
        began = time.perf_counter()
        curves = self._curves(data, plan, model, settings)
        seconds = time.perf_counter() - began
        stage = -1 if ranker is None else curves.best_stage()
        rounds = curves.rounds[stage]
        label = model.name + (f" without {' and '.join(without)}" if without else "")
        if ranker is not None:
            parameters = f"{'tuned' if tuned else 'default'} parameters"
            best = f"{counted(rounds, 'round')}, the best on these folds"
            self._note(f"{label} with {parameters}, {best}")
        elif not without and (common := card.folds.keys() & curves.metrics.keys()):
            mean = np.mean([card.folds[graph]["score"] for graph in common])
            count = len(common)
            graphs = "this graph" if count == 1 else f"these {count} graphs"
            if count < len(curves.metrics):
                graphs = f"{count} of these graphs"
            self._note(f"{graphs} by folds of {FOLDS_OF[card.folds_by]}: score {mean:.3f}")
        rankings = Rankings({(label, None): curves.at(stage)})
        for graph in data.parts:
            if graph.name in curves.metrics:
                add_untrained(rankings, self.collection, graph)
        recipe = training.manifest.recipe
        run = run_of(model, recipe, rounds, self.name, tuned, len(data.cost))
        self._write(rankings, plan.by, run, seconds)
        if not without:
            scores = curves.scores_at(stage)
            with note_errors(self.evaluation.notes), workspace_lock(self.workspace, self.progress):
                training.write_scores(self.workspace, plan, model.name, scores, settings.seed)
        return rankings

    def _kept_by_train(self, model: Model, card: ModelCard) -> Rankings:
        """Return the metrics in the card; a new name adds them to the leaderboard."""
        name = str(self.collection)
        if card.fallback:
            self._note(f"fallback for unseen kernel families: {FALLBACK}")
        rankings = out_of_fold(self.workspace, self.collection, card)
        choice = best_of(model)
        self.evaluation.ranked_by[name] = choice.reason
        rankings = first_of(rankings, choice.model.name)
        if self.name:
            run = run_of(model, card.recipe, card.rounds, self.name, card.tuned, card.rows)
            self._write(rankings, card.folds_by, run)
        return rankings

    def _write(
        self,
        rankings: Rankings,
        held_out_by: str,
        run: Mapping[str, Any],
        seconds: float | None = None,
    ) -> None:
        scope = (str(self.collection), "train", held_out_by)
        with note_errors(self.evaluation.notes), workspace_lock(self.workspace, self.progress):
            write_results(self.workspace, results_table(rankings, scope, run, seconds))

    def _plan(self, data: TrainingData) -> FoldPlan:
        plan = FoldPlan.of(data)
        expected = "graphs of two or more program families"
        if self.by == FAMILY:
            plan = FoldPlan(FAMILY, folds.family_folds(data.families, MOST_FOLDS))
        elif self.by == GRAPH:
            plan = FoldPlan(GRAPH, folds.graph_folds(data.families, MOST_FOLDS))
            expected = "two or more graphs of one family"
        if not plan.folds:
            graphs = f"{counted(data.groups, 'graph')} of {self.collection}"
            got = f"there is nothing to hold out by {plan.by} of the {graphs}"
            raise CollectionError(got, expected=expected, do="pass another `by`")
        if plan.by == KIND:
            kinds = {kind for graph in data.parts for kind in graph.kinds}
            self._note(f"{len(kinds)} kernel families in {len(plan.folds)} folds")
            self._note(f"fallback for unseen kernel families: {FALLBACK}")
        if plan.by == GRAPH:
            known = "other graphs of the same families were trained on"
            self._note(f"{known}, so this is no score for new programs")
        return plan

    def _curves(
        self, data: TrainingData, plan: FoldPlan, model: Model, settings: FitSettings
    ) -> Curves:
        """Fit a model on each fold; name the graphs that no fold scores."""
        graphs = counted(data.groups, "graph")
        title = f"cross-validating {self.collection}"
        with steps_of(self.progress, title, len(plan.folds)) as step:
            curves = plan.curves(
                data, model, settings, lambda fold: step(f"held out {len(fold.held)} of {graphs}")
            )
        reason = "all graphs may be of its kernel family"
        if plan.by == GRAPH:
            reason = "no other graph is of its family"
        for name in data.names:
            if name not in curves.metrics:
                self.evaluation.left_out[f"{self.collection} {name}"] = reason
        return curves

    def _note(self, text: str) -> None:
        self.evaluation.notes.append(f"{self.collection}: {text}")
