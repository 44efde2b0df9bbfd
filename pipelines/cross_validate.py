"""Cross-validation: scores of graphs by rankers fitted without them and (except by graph) their
families.
"""

from __future__ import annotations

import time
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from xlarank.data.collection import Collection
from xlarank.data.errors import CollectionError, XlarankError, counted, did_you_mean, reasons
from xlarank.data.families import program_family
from xlarank.data.workspace import Workspace
from xlarank.features.catalogue import BLOCKS
from xlarank.features.store import read_manifest
from xlarank.models.card import FAMILY, FOLDS_OF, KIND, Continued, Fallback
from xlarank.models.model import Model
from xlarank.models.rankers import specs_of
from xlarank.models.stored import model_of
from xlarank.models.training_data import FitSettings, TrainingData
from xlarank.models.tuned import params_for
from xlarank.models.validation import folds
from xlarank.models.validation.folds import MOST_FOLDS, Curves, FoldPlan
from xlarank.models.validation.metrics import paired_difference
from xlarank.pipelines.ranking.winner import best_of
from xlarank.pipelines.support.evaluation import (
    Evaluation,
    Rankings,
    add_untrained,
    in_use,
    out_of_fold,
    score_name,
)
from xlarank.pipelines.support.progress import Progress, steps_of
from xlarank.pipelines.support.results import Run, results_table, write_results
from xlarank.pipelines.support.workspaces import (
    each_collection,
    labelled_collections,
    note_errors,
    workspace_lock,
)
from xlarank.pipelines.training.training_sets import (
    StoredTrainingSet,
    read_training_set,
    training_set_of,
)

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
    """Score training graphs out of fold, and write the scores to ``predictions/`` if the workspace
    is writable.

    Without ``model``, each collection's trained model is scored with its parameters and rounds. The
    scores kept by `train` are reused if its folds held out the same unit; otherwise rankers are
    refitted.

    Args:
        model: ranker to fit instead of the trained model's, with tuned parameters if any and the
            best number of rounds on these folds (at most that of ``fit``). Several rankers are
            compared with the first.
        by: unit held out with a graph. "kind": as in `FoldPlan.of`, with a fallback. "family": its
            program family, as for a new program. "graph": nothing else, as for a new variant of a
            known program; graphs that are alone in their family are left out, and so are those that
            the start of a fine-tuned model was trained on.
        without: names of block classes. The ranker is compared with itself without their columns;
            collections that have none of them are left out.
        name: name of the run in the leaderboard.

    Raises `CollectionError` if nothing could be scored, or a collection named in ``collections``
    could not; `ModelError` for an unknown ranker or a missing model; `XlarankError` for an invalid
    argument.
    """
    if by not in HELD_OUT:
        raise XlarankError(f"`by` is {by!r}", expected=" or ".join(HELD_OUT))
    names = [model] if isinstance(model, str) else list(dict.fromkeys(model or ()))
    if without and len(names) > 1:
        raise XlarankError(
            f"{len(names)} rankers without blocks", expected="one ranker, or the trained model's"
        )
    for ranker in names:
        specs_of(ranker)
    settings = fit or FitSettings(ROUNDS)
    evaluation = Evaluation(HELD_OUT[by])

    def run(collection: Collection) -> Rankings:
        job = _Job(
            workspace, collection, by, with_valid, settings, None, name, progress, evaluation
        )
        rankings = Rankings()
        for blocks in ((), without) if without else (None,):
            for ranker in names or (None,):
                rankings |= replace(job, without=blocks).score(ranker)
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
        raise CollectionError(
            "nothing could be cross-validated: " + "; ".join(reasons(evaluation.left_out))
        )
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
class _Job:
    """Cross-validation of one collection without the columns of some blocks.

    If ``without`` is None, the scores kept by `train` may be reused.
    """

    workspace: Workspace
    collection: Collection
    by: str
    with_valid: bool
    settings: FitSettings
    without: Sequence[str] | None
    name: str
    progress: Progress | None
    evaluation: Evaluation

    def score(self, name: str | None) -> Rankings:
        """Return the metrics of a ranker at its best number of rounds, or of the trained model at
        its own, and of rules.
        """
        if name is None:
            model = model_of(self.workspace, self.collection)
            card = model.require_card()
            if self.without is None and self.by in (KIND, card.folds_by):
                if not card.folds:
                    raise CollectionError(
                        f"{self.collection} was trained without folds (one program family)"
                    )
                if card.fallback:
                    self._note(f"fallback for unseen kernel families: {card.fallback}")
                stored = out_of_fold(self.workspace, self.collection, card)
                name = str(self.collection)
                self.evaluation.in_use[name] = in_use(name, stored, *best_of(model))
                if self.name:
                    run = Run.of(model, card.recipe, card.rounds, self.name, card.tuned, card.rows)
                    self._write(stored, card.folds_by, run)
                return stored
            training = self._without_blocks(training_set_of(self.workspace, self.collection, model))
            tuned = card.tuned
            settings = replace(self.settings, rounds=card.rounds)
        else:
            splits = ("train", "valid") if self.with_valid else ("train",)
            training = self._without_blocks(
                read_training_set(self.workspace, self.collection, splits)
            )
            params, tuned = params_for(self.workspace.study(self.collection), name, training.kind)
            model = Model.of(name, training.kind, params)
            settings = self.settings
        seen = self._seen(training.data, None if name is not None else card.continues)
        plan = self._plan(training.data, seen)
        began = time.perf_counter()
        curves = self._curves(training.data, plan, model, settings, seen)
        stage = -1
        label = model.name + (f" without {' and '.join(self.without)}" if self.without else "")
        if name is not None:
            stage = curves.best_stage()
            rounds = f"{counted(curves.rounds[stage], 'round')}, the best on these folds"
            self._note(f"{label} with {'tuned' if tuned else 'default'} parameters, {rounds}")
        elif card.folds and not self.without:
            mean_score = np.mean([card.folds[graph]["score"] for graph in curves.metrics])
            graphs = (
                "this graph" if len(curves.metrics) == 1 else f"these {len(curves.metrics)} graphs"
            )
            self._note(f"{graphs} by folds of {FOLDS_OF[card.folds_by]}: score {mean_score:.3f}")
        seconds = time.perf_counter() - began
        rankings = Rankings({(label, None): curves.at(stage)})
        for graph in training.data.parts:
            if graph.name in curves.metrics:
                add_untrained(rankings, self.collection, graph)
        rows = len(training.data.cost)
        recipe = training.manifest.recipe
        run = Run.of(model, recipe, curves.rounds[stage], self.name, tuned, rows)
        self._write(rankings, plan.by, run, seconds)
        if not self.without:
            scores = curves.scores_at(stage)
            with note_errors(self.evaluation.notes), workspace_lock(self.workspace, self.progress):
                training.write_scores(self.workspace, plan, model.name, scores, self.settings.seed)
        return rankings

    def _write(
        self, rankings: Rankings, held_out_by: str, run: Run, seconds: float | None = None
    ) -> None:
        """Add the results of a ranker, the first of ``rankings``, and of rules."""
        scope = (str(self.collection), "train", held_out_by)
        (label, _), first = next(iter(rankings.items()))
        tables = [results_table(first, label, scope=scope, run=run, seconds=seconds)]
        for (ranker, _), metrics in [*rankings.items()][1:]:
            tables.append(results_table(metrics, ranker, scope=scope))
        with note_errors(self.evaluation.notes), workspace_lock(self.workspace, self.progress):
            write_results(self.workspace, tables)

    def _without_blocks(self, training: StoredTrainingSet) -> StoredTrainingSet:
        """Return the training set without the columns of the blocks."""
        if not self.without:
            return training
        columns = _columns_of(self.workspace, self.collection, self.without)
        return replace(training, data=training.data.drop(columns))

    def _seen(self, data: TrainingData, start: Continued | None) -> set[str]:
        """Return the graphs that the start of a fine-tuned model was trained on, or whose family
        it was trained on if families are held out.
        """
        if start is None:
            return set()
        if self.by == GRAPH:
            return {*data.names} & {*start.graphs}
        families = {program_family(name) for name in start.graphs}
        return {name for name in data.names if program_family(name) in families}

    def _plan(self, data: TrainingData, seen: Set[str]) -> FoldPlan:
        plan = FoldPlan.of(data)
        expected = "graphs of two or more program families"
        if self.by == FAMILY:
            plan = FoldPlan(FAMILY, folds.family_folds(data.families, MOST_FOLDS))
        elif self.by == GRAPH:
            plan = FoldPlan(GRAPH, folds.graph_folds(data.families, MOST_FOLDS))
            expected = "two or more graphs of one family"
        if seen:
            expected += ", unknown to the model that was fine-tuned"
            kept = []
            for fold in plan.folds:
                if scored := [graph for graph in fold.scored if data.names[graph] not in seen]:
                    kept.append(fold._replace(scored=scored))
            plan = replace(plan, folds=kept)
        if not plan.folds:
            graphs = f"{counted(data.groups, 'graph')} of {self.collection}"
            got = f"there is nothing to hold out by {plan.by} of the {graphs}"
            raise CollectionError(got, expected=expected, do="pass another `by`")
        if plan.by == KIND:
            kinds = {kind for graph in data.parts for kind in graph.kinds}
            self._note(f"{len(kinds)} kernel families in {len(plan.folds)} folds")
            self._note(f"fallback for unseen kernel families: {Fallback()}")
        if plan.by == GRAPH:
            self._note(
                "other graphs of the same families were trained on, so this is no score "
                "for new programs"
            )
        return plan

    def _curves(
        self,
        data: TrainingData,
        plan: FoldPlan,
        model: Model,
        settings: FitSettings,
        seen: Set[str],
    ) -> Curves:
        graphs = counted(data.groups, "graph")
        with steps_of(
            self.progress, f"cross-validating {self.collection}", len(plan.folds)
        ) as step:
            curves = plan.curves(
                data, model, settings, lambda f: step(f"held out {len(f.held)} of {graphs}")
            )
        reason = (
            "no other graph is of its family"
            if plan.by == GRAPH
            else "all graphs may be of its kernel family"
        )
        known = "the model that was fine-tuned was trained on it" + (
            "" if self.by == GRAPH else " or its family"
        )
        for name in data.names:
            if name not in curves.metrics:
                why = known if name in seen else reason
                self.evaluation.left_out[f"{self.collection} {name}"] = why
        return curves

    def _note(self, text: str) -> None:
        self.evaluation.notes.append(f"{self.collection}: {text}")
