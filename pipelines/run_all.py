"""All steps from graph files to a submission, within a budget of time and memory.

A fixed recipe with a clock: a submission in the default order at once; then a first model of every collection, the
cheapest first; then a study and a final model of each. Every model improves the file. Each step runs in a process
of its own within an equal share of the time that is left: one that fails costs its collection, not the others.
"""

from __future__ import annotations

import shutil
import time
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from xlarank.data.collection import Collection, GraphFile, discover, graph_files
from xlarank.data.errors import CollectionError, GraphFileError, XlarankError
from xlarank.data.files import write_json
from xlarank.data.graph import graph_size
from xlarank.data.root import DataRoot
from xlarank.data.sizes import survey
from xlarank.data.submission import complete_submission, read_submission, submission_id
from xlarank.data.workspace import Workspace
from xlarank.features.store import read_manifest, read_rows
from xlarank.models.fit_settings import FitSettings
from xlarank.models.trained import CARD, ModelCard, model_of, read_card
from xlarank.models.validation.metrics import summarise
from xlarank.pipelines.build_features import BuildRequest, build_features
from xlarank.pipelines.evaluate import evaluate
from xlarank.pipelines.submit import submit
from xlarank.pipelines.support.budget import (
    CollectionPlan,
    RunSettings,
    first_scores,
    plan_collections,
    read_first_scores,
)
from xlarank.pipelines.support.fitting import TrainRequest
from xlarank.pipelines.support.processes import isolated
from xlarank.pipelines.support.progress import Progress, Silent
from xlarank.pipelines.support.workspace_collections import require_one_root, trained_collections
from xlarank.pipelines.support.workspace_lock import workspace_lock
from xlarank.pipelines.train import train
from xlarank.pipelines.tune import ROUNDS, tune

#: After this share of the time nothing new is begun and what runs is stopped.
_LAST: Final = 0.95
#: A trial, and a final model, in times of the first model; fewer trials than this are not worth a study.
_TRIAL, _FINAL, _LEAST_TRIALS = 0.5, 2.0, 3
#: Configurations of the example that the first model leaves for a picture.
_SHOWN: Final = 1000
#: What the rows of a collection are from, as `CollectionOutcome.ranked_by` names it.
DEFAULT_ORDER, EARLIER, FIRST, FINAL = "default order", "an earlier run", "first model", "final model"
ATTACHED: Final = "attached model"


@dataclass
class CollectionOutcome:
    """What became of one collection.

    Attributes:
        ranked_by: what its rows of the submission are from, one of the names above.
        valid: summary of the first model's metrics on valid (`xlarank.models.validation.metrics.summarise`).
        trials: of its study, None where nothing was tuned.
        folds: out-of-fold summary of the model that its rows are from.
    """

    collection: str
    ranked_by: str = DEFAULT_ORDER
    valid: dict[str, dict[str, Any]] = field(default_factory=dict)
    trials: int | None = None
    folds: dict[str, dict[str, Any]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def as_row(self) -> dict[str, str]:
        """Cells of a table by column, the first two text; scores as mean ± standard deviation over graphs."""
        valid, folds = (
            "{mean:.3f} ± {std:.3f}".format(**summary["score"]) if summary else "-"
            for summary in (self.valid, self.folds)
        )
        return {
            "collection": self.collection, "ranked by": self.ranked_by, "valid, first model": valid,
            "trials": "-" if self.trials is None else str(self.trials), "out of fold": folds,
            "s": f"{self.seconds:.0f}",
        }  # fmt: skip


@dataclass
class RunSummary:
    """The file, the number of its rows, and test graphs that are not in it: ``collection graph`` -> why."""

    out: Path
    plan: list[CollectionPlan]
    outcomes: list[CollectionOutcome]
    rows: int
    broken: dict[str, str]
    seconds: float


def run_all(
    data_root: DataRoot,
    workspace: Workspace,
    out: Path,
    settings: RunSettings,
    *,
    collections: Sequence[str] = (),
    progress: Progress | None = None,
    on_plan: Callable[[list[CollectionPlan]], None] = lambda plan: None,
) -> RunSummary:
    """Build, tune, train and submit every collection within the hours and memory of ``settings``.

    A rerun keeps what an interrupted one finished: stored graphs, trials, models that fit, rows of the submission.
    A collection that fails keeps its best rows so far, at worst the default order, and its outcome says why.
    ``on_plan`` gets the plan before the work begins.

    Raises `DataRootError`, `CollectionError` and `WorkspaceError` where nothing at all can be done, and
    `CollectionError` where there are no test graphs.
    """
    started = time.monotonic()
    workspace.require_writable()
    files = graph_files(data_root.npz, collections, where=str(data_root.path))
    require_one_root(data_root, workspace, discover(data_root.npz))
    plan = plan_collections(survey(files), settings)
    on_plan(plan)
    job = _Job(data_root, workspace, out, settings, progress or Silent(), started)
    job.write_default_order(files)
    if settings.models is not None:
        job.each("ranking by the attached model", plan, job.rank_attached)
    else:
        for part in plan:
            if not part.rows:
                job.note(part, "no training graphs, no test graphs, or not enough memory")
        parts = sorted((part for part in plan if part.rows), key=lambda part: part.first_seconds)
        job.each("the first model", parts, job.rank_first)
        parts = [part for part in parts if (card := job.card(part)) is not None and not job.is_final(card)]
        job.each("the final model", parts, job.rank_final)
    return RunSummary(out, plan, [*job.outcomes.values()], len(job.cover), job.broken, time.monotonic() - started)


@dataclass
class _Job:
    data_root: DataRoot
    workspace: Workspace
    out: Path
    settings: RunSettings
    progress: Progress
    started: float
    cover: dict[str, int] = field(default_factory=dict)
    outcomes: dict[Collection, CollectionOutcome] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)

    @property
    def last(self) -> float:
        return self.started + _LAST * 3600 * self.settings.hours

    def write_default_order(self, files: Sequence[GraphFile]) -> None:
        """Write a submission that is right; its rows stay where they were right before."""
        for file in files:
            self.outcomes.setdefault(file.collection, CollectionOutcome(str(file.collection)))
            if file.split == "test":
                try:
                    size = graph_size(file.path, file.collection.kind)
                    self.cover[submission_id(file.collection, file.name)] = size.configs
                except GraphFileError as error:
                    self.broken[f"{file.collection} {file.name}"] = str(error)
        if not self.cover:
            raise CollectionError(
                f"{self.data_root.path} has no test graphs that can be read",
                expected="npz files in a folder called test",
            )
        complete_submission(self.out, {}, self.cover)
        ranked = [row for row, order in read_submission(self.out).items() if order != list(range(len(order)))]
        for collection, outcome in self.outcomes.items():
            if any(row.startswith(f"{collection}:") for row in ranked):
                outcome.ranked_by = EARLIER

    def each(
        self, what: str, parts: Sequence[CollectionPlan], step: Callable[[CollectionPlan, float], None]
    ) -> None:
        """Call ``step`` for each collection with the time (monotonic) when its equal share of what is left is over.

        An error, be it a bug, is noted and ends the step of this collection alone.
        """
        for number, part in enumerate(parts):
            began = time.monotonic()
            if began >= self.last:
                self.note(part, f"no time left for {what}")
                continue
            try:
                step(part, began + (self.last - began) / (len(parts) - number))
            except Exception as error:
                kind = "" if isinstance(error, XlarankError) else f"{type(error).__name__}: "
                self.note(part, f"{what} failed: {kind}{' '.join(str(error).split())[-600:]}")
            self.outcomes[part.collection].seconds += time.monotonic() - began

    def note(self, part: CollectionPlan, text: str) -> None:
        self.outcomes[part.collection].notes.append(text)

    def run(self, function: Callable[..., Any], *arguments: Any, end: float, **named: Any) -> Any:
        """Do one step in a process of its own, which is killed at the ``end`` (monotonic)."""
        limit = max(1.0, end - time.monotonic())
        return isolated(function, *arguments, limit=limit, progress=self.progress, **named)

    def rank_first(self, part: CollectionPlan, end: float) -> None:
        """Features and a model of the train split, unless they are there."""
        manifest, settings = read_manifest(self.workspace, part.collection, "train"), self.settings
        stored = 0 if manifest is None else manifest.recipe.max_configs
        kept = stored if 0 < stored <= part.most_configs else part.max_configs  # of an earlier run
        self.build(part, "test", end=end, share=0.8, max_configs=kept, seed=settings.seed)
        self.build(part, "train", "valid", end=end, share=0.5, max_configs=kept, seed=settings.seed)
        card = self.card(part)
        final = card is not None and self.is_final(card)
        scored = final or "report" in read_first_scores(self.workspace, part.collection)
        if card is None or not (scored or "valid" in card.trained_on):
            request = TrainRequest(
                collections=[str(part.collection)], seeds=1, seed=settings.seed, threads=settings.cores
            )
            self.run(first_model, self.workspace, part.collection, None if card else request, end=end)
        self.rank(part, FINAL if final else FIRST)

    def build(self, part: CollectionPlan, *splits: str, end: float, share: float, **named: Any) -> None:
        """Store rows; after a ``share`` of the time no further graph is begun."""
        request = BuildRequest(
            collections=[str(part.collection)], splits=splits, jobs=part.jobs,
            timeout=max(1.0, share * (end - time.monotonic())), **named,
        )  # fmt: skip
        for split in self.run(build_features, self.data_root, self.workspace, request, end=end).splits:
            if split.left:
                self.note(part, f"{split.left} {split.split} graphs were not built: the time was over")
            for name, why in split.broken.items():
                self.note(part, f"{name} ({split.split}) is broken: {why}")

    def rank(self, part: CollectionPlan, by: str) -> None:
        """Put the collection's rows into the submission, unless its model is known to be worse than no model."""
        outcome, folds = self.outcomes[part.collection], read_card(self.workspace.model(part.collection)).folds
        scores: dict[str, Any] = summarise(folds) if folds else {}
        if part.collection.kind == "layout" and scores and scores["score"]["mean"] <= 0:
            self.note(
                part, f"the {by} is no better than chance out of fold, so the submission keeps the earlier rows"
            )
            return
        report = self.run(
            submit, self.workspace, self.out, collections=[str(part.collection)], cover=self.cover, keep=True,
            end=max(self.started + 3600 * self.settings.hours, time.monotonic() + 60),
        )  # fmt: skip
        outcome.ranked_by, outcome.folds = by, scores
        outcome.valid = read_first_scores(self.workspace, part.collection).get("report", {})
        own = [origin for row, origin in report.origin.items() if row.startswith(f"{part.collection}:")]
        if rest := len(own) - own.count("ranked"):
            self.note(part, f"{rest} test graphs are not ranked by the model")
        self.broken = report.broken | self.broken

    def card(self, part: CollectionPlan) -> ModelCard | None:
        """The card of the model in the workspace, if it fits the stored rows."""
        with suppress(XlarankError):  # what is broken is made anew
            manifest = read_manifest(self.workspace, part.collection, "train")
            if manifest is not None and (self.workspace.model(part.collection) / CARD).exists():
                model = model_of(self.workspace, part.collection)
                model.require_rows_of(manifest)
                return model.card if model.card.recipe == manifest.recipe else None
        return None

    def is_final(self, card: ModelCard) -> bool:
        return "valid" in card.trained_on and len(card.seeds) == self.settings.seeds

    def rank_final(self, part: CollectionPlan, end: float) -> None:
        """A study of as many trials as fit, and a model of train and valid by its parameters."""
        settings, named = self.settings, [str(part.collection)]
        seconds = float(read_first_scores(self.workspace, part.collection).get("seconds", part.first_seconds))
        tuning = end - time.monotonic() - (_FINAL + _TRIAL) * seconds  # no trial begins that would end too late
        if settings.trials and tuning >= (_LEAST_TRIALS - 1) * _TRIAL * seconds:
            fit = FitSettings(ROUNDS, settings.seed, settings.cores)
            try:
                (tuned,) = self.run(
                    tune, self.workspace, trials=settings.trials, collections=named, timeout=tuning, fit=fit,
                    end=end - seconds,
                )  # fmt: skip
                self.outcomes[part.collection].trials = tuned.trials
            except XlarankError as error:
                self.note(part, f"tuning failed: {error}")
        elif settings.trials:
            self.note(part, "no time left for tuning")
        if self.last - time.monotonic() < seconds:
            self.note(part, "no time left for a final model")
            return
        request = TrainRequest(
            collections=named, seeds=settings.seeds, with_valid=True, seed=settings.seed, threads=settings.cores
        )
        end = min(self.last, max(end, time.monotonic() + 2 * _FINAL * seconds))
        self.run(train, self.workspace, request, end=end)
        self.rank(part, FINAL)

    def rank_attached(self, part: CollectionPlan, end: float) -> None:
        """Rank by a model that is there, without learning anything."""
        theirs = Workspace(self.settings.models or Path())
        if part.collection not in trained_collections(theirs):
            self.note(part, f"there is no model of it in {theirs.root}")
            return
        recipe = read_card(theirs.model(part.collection)).recipe
        with workspace_lock(self.workspace, self.progress):
            for place in (Workspace.model, Workspace.study, first_scores):
                source, target = place(theirs, part.collection), place(self.workspace, part.collection)
                if source.resolve() == target.resolve():
                    continue
                target.parent.mkdir(parents=True, exist_ok=True)
                if source.is_dir():
                    shutil.copytree(source, target, dirs_exist_ok=True)
                elif source.is_file():
                    shutil.copyfile(source, target)
        self.build(part, "test", end=end, share=0.8, settings=recipe.settings())
        self.rank(part, ATTACHED)


def first_model(
    workspace: Workspace, collection: Collection, request: TrainRequest | None, *, progress: Progress
) -> None:
    """Train on the train split, unless that is done, and write its scores on valid for `read_first_scores`."""
    name, place = str(collection), first_scores(workspace, collection)
    if request is not None:
        (result,) = train(workspace, request, progress=progress)
        write_json(place, {"seconds": result.seconds})  # at once: a study is planned by them
    found = read_first_scores(workspace, collection)
    with suppress(XlarankError):  # a valid split that cannot be scored
        report = evaluate(workspace, collections=[name], progress=progress).report[name]
        graphs = report["score"]["graphs"]
        graph = sorted(graphs, key=lambda one: (graphs[one], one))[len(graphs) // 2]
        rows = read_rows(workspace.graph_rows(collection, "valid", graph)).measured()
        shown = np.random.default_rng(zlib.crc32(graph.encode())).permutation(len(rows.row_cost))[:_SHOWN]
        predicted = model_of(workspace, collection).score(rows).mean[shown].tolist()
        example = {"graph": graph, "score": graphs[graph], "predicted": predicted}
        found |= {"report": report, "example": {**example, "measured": rows.row_cost[shown].tolist()}}
    write_json(place, found)
