"""All steps from graph files to a submission, within a budget of time and memory.

A submission in the default order is written first and then improved collection by collection,
cheapest first: by a first model, a study and a final model. Each collection gets an equal share of
the remaining time, and each step runs in its own process. Finally, `submit` chooses models for
collections in the default order.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from xlarank.data.collection import Collection, DataRoot, GraphFile, discover, graph_files, survey
from xlarank.data.errors import (
    CollectionError,
    GraphFileError,
    WorkspaceError,
    XlarankError,
    counted,
)
from xlarank.data.files import write_json
from xlarank.data.graph import graph_size
from xlarank.data.submission import complete_submission, submission_id
from xlarank.data.workspace import Workspace
from xlarank.features.store import each_graph, read_manifest
from xlarank.models.card import ModelCard, read_card
from xlarank.models.objectives import mean_rank
from xlarank.models.stored import model_of
from xlarank.models.training_data import FitSettings
from xlarank.models.validation.metrics import summarise
from xlarank.pipelines.build_features import BuildRequest, build_features
from xlarank.pipelines.evaluate import evaluate
from xlarank.pipelines.reporting.charts import ranks_chart, short, write_picture
from xlarank.pipelines.submit import Submission, submit
from xlarank.pipelines.support.processes import isolated
from xlarank.pipelines.support.progress import Progress
from xlarank.pipelines.support.workspaces import require_one_root, workspace_lock
from xlarank.pipelines.train import train
from xlarank.pipelines.training import budget
from xlarank.pipelines.training.budget import CollectionPlan, RunSettings, read_first_scores
from xlarank.pipelines.training.fit_cost import typical_fit
from xlarank.pipelines.training.settings import TrainSettings
from xlarank.pipelines.tune import ROUNDS, tune

#: Fraction of the time after which no step begins, except the ranking by a new model.
_LAST: Final = 0.95
#: Time reserved for the last trial, the scores of the best and the final model, in multiples of the
#: first model's.
_RESERVED: Final = 3.0
#: Values of `CollectionOutcome.ranked_by`; any other value names another
#: model.
DEFAULT_ORDER = "default order"
EARLIER = "an earlier run"
FIRST = "first model"
FINAL = "final model"
ATTACHED: Final = "attached model"


@dataclass
class CollectionOutcome:
    """Result of one collection.

    Attributes:
        ranked_by: source of its rows in the submission: a constant of this module, or the name of a
            model.
        valid, folds: summaries of the first model's metrics on valid and of the last model's
            out-of-fold metrics.
    """

    collection: str
    ranked_by: str = DEFAULT_ORDER
    valid: dict[str, dict[str, Any]] = field(default_factory=dict)
    trials: int | None = None
    folds: dict[str, dict[str, Any]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def add_reason(self, error: Exception) -> None:
        """Add an error's message to the notes as one line, with the type of an unexpected error."""
        kind = "" if isinstance(error, XlarankError) else f"{type(error).__name__}: "
        reason = f"{kind}{' '.join(str(error).split())[-600:]}"
        if reason not in self.notes:
            self.notes.append(reason)


def run_all(
    data_root: DataRoot,
    workspace: Workspace,
    out: Path,
    settings: RunSettings,
    *,
    collections: Sequence[str] = (),
    progress: Progress | None = None,
    on_plan: Callable[[list[CollectionPlan]], None] = lambda plan: None,
) -> RunAll:
    """Build, tune, train and submit every collection; ``on_plan`` is called with the plan before
    the work begins.

    A rerun reuses the stored graphs, trials, models and submission rows. A collection that fails
    keeps its best rows so far, at worst the default order, and its outcome notes the reason.

    Raises `DataRootError`, `CollectionError` or `WorkspaceError` for missing graphs or an unusable
    workspace.
    """
    started = time.monotonic()
    last = started + _LAST * 3600 * settings.hours
    run = RunAll(data_root, workspace, out, settings, progress, last)
    workspace.require_writable()
    files = graph_files(data_root.npz, collections, where=str(data_root.path))
    require_one_root(data_root, workspace, discover(data_root.npz))
    counts = survey(files)
    fit = FitSettings(ROUNDS, settings.seed)
    seconds = {kind: typical_fit(kind, fit) for kind in {of.kind for of in counts}}
    hours = settings.hours / len(counts)
    for collection, graphs in counts.items():
        fit_seconds = seconds[collection.kind]
        plan = budget.plan_collection(collection, graphs, settings, hours, fit_seconds)
        run.plan.append(plan)
    on_plan(run.plan)
    run.write_default_order(files)
    for number, plan in enumerate(sorted(run.plan, key=lambda plan: plan.first_seconds)):
        began = time.monotonic()
        outcome = run.outcomes[plan.collection]
        try:
            run.rank_collection(plan, began + (run.last - began) / (len(run.plan) - number))
        except Exception as error:  # even a bug must not stop the other collections
            outcome.add_reason(error)
        outcome.seconds = time.monotonic() - began
    run.rank_untrained()
    run.seconds = time.monotonic() - started
    return run


@dataclass
class RunAll:
    """State and result of `run_all`.

    Attributes:
        last: `time.monotonic` deadline of steps.
        cover: numbers of configurations of the test graphs, as in `submit`.
        broken: test graphs with unusable files, with the reason.
    """

    data_root: DataRoot
    workspace: Workspace
    out: Path
    settings: RunSettings
    progress: Progress | None
    last: float
    plan: list[CollectionPlan] = field(default_factory=list)
    cover: dict[str, int] = field(default_factory=dict)
    outcomes: dict[Collection, CollectionOutcome] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0

    def write_default_order(self, files: Sequence[GraphFile]) -> None:
        """Write a valid submission; valid rows of an existing file are kept."""
        self.outcomes = {file.collection: CollectionOutcome(str(file.collection)) for file in files}
        for file in (file for file in files if file.split == "test"):
            try:
                size = graph_size(file.path, file.collection.kind)
                self.cover[submission_id(file.collection, file.name)] = size.configs
            except GraphFileError as error:
                self.broken[f"{file.collection} {file.name}"] = str(error)
        if not self.cover:
            got = f"{self.data_root.path} has no test graphs that can be read"
            raise CollectionError(got, expected="npz files in a folder called test")
        origins = complete_submission(self.out, {}, self.cover)
        kept = [row_id for row_id, origin in origins.items() if origin == "kept"]
        for collection, outcome in self.outcomes.items():
            if any(row_id.startswith(f"{collection}:") for row_id in kept):
                outcome.ranked_by = EARLIER

    def step(self, function: Callable[..., Any], *arguments: Any, end: float, **named: Any) -> Any:
        """Run a step in its own process and return its result; the process is killed at ``end``."""
        limit = end - time.monotonic()
        if limit <= 0:
            raise XlarankError(f"no time left for {function.__name__}")
        return isolated(function, *arguments, limit=limit, progress=self.progress, **named)

    def rank_collection(self, plan: CollectionPlan, end: float) -> None:
        """Run the missing steps of one collection; only the last ones may pass ``end``."""
        workspace = self.workspace
        settings = self.settings
        if settings.models is not None:
            recipe = self.attach(Workspace(settings.models), plan.collection).recipe
            self.build(plan, "test", end=end, settings=recipe.settings)
            self.rank(plan, ATTACHED)
            return
        if not plan.rows:
            raise CollectionError("no training graphs, no test graphs, or not enough memory")
        max_configs = plan.max_configs
        manifest = read_manifest(workspace, plan.collection, "train")
        if manifest is not None and 0 < manifest.recipe.max_configs <= plan.most_configs:
            max_configs = manifest.recipe.max_configs  # reuse the stored rows
        for splits in (("test",), ("train", "valid")):
            self.build(plan, *splits, end=end, max_configs=max_configs, seed=settings.seed)
        chosen = [str(plan.collection)]
        seed = settings.seed
        request = TrainSettings(collections=chosen, seeds=1, seed=seed, threads=settings.cores)
        card = self.card(plan)
        first = read_first_scores(workspace, plan.collection)
        if card is None or not ("report" in first or "valid" in card.trained_on):
            self.step(first_model, workspace, plan.collection, None if card else request, end=end)
        final = card is not None and "valid" in card.trained_on and card.seeds == settings.seeds
        self.rank(plan, FINAL if final else FIRST)
        if final:
            return
        first = read_first_scores(workspace, plan.collection)
        seconds = float(first.get("seconds", plan.first_seconds))
        if settings.trials:
            self.tune(plan, end, seconds)
        request = replace(request, seeds=settings.seeds, with_valid=True)
        end = min(self.last, max(end, time.monotonic() + 4 * seconds))
        self.step(train, workspace, request, end=end)
        self.rank(plan, FINAL)

    def tune(self, plan: CollectionPlan, end: float, seconds: float) -> None:
        """Tune the ranker; leave time for a final model, as the first one took ``seconds``."""
        outcome = self.outcomes[plan.collection]
        try:
            (tuned,) = self.step(
                tune,
                self.workspace,
                trials=self.settings.trials,
                collections=[str(plan.collection)],
                timeout=max(0.0, end - time.monotonic() - _RESERVED * seconds),
                fit=FitSettings(ROUNDS, self.settings.seed, self.settings.cores),
                end=end - seconds,
            )
            outcome.trials = tuned.trials
        except XlarankError as error:
            outcome.notes.append(f"not tuned: {error}")

    def rank_untrained(self) -> None:
        """Rank the collections in the default order by the models that `submit` chooses."""
        for collection, outcome in self.outcomes.items():
            has_test = any(row_id.startswith(f"{collection}:") for row_id in self.cover)
            if outcome.ranked_by == DEFAULT_ORDER and has_test and time.monotonic() < self.last:
                request = BuildRequest(collections=[str(collection)], splits=["test"], jobs=1)
                try:
                    self.step(
                        build_features, self.data_root, self.workspace, request, end=self.last
                    )
                    outcome.ranked_by = self.put_rows(collection, self.last).models[str(collection)]
                except Exception as error:
                    outcome.add_reason(error)

    def build(self, plan: CollectionPlan, *splits: str, end: float, **keywords: Any) -> None:
        """Build features; no part begins in the second half of the time until ``end``."""
        request = BuildRequest(
            collections=[str(plan.collection)],
            splits=splits,
            jobs=plan.jobs,
            timeout=max(1.0, (end - time.monotonic()) / 2),
            **keywords,
        )
        notes = self.outcomes[plan.collection].notes
        report = self.step(build_features, self.data_root, self.workspace, request, end=end)
        for part in report.splits:
            if part.left:
                graphs = counted(part.left, f"{part.split} graph")
                notes.append(f"not built before the time was over: {graphs}")
            for name, reason in part.broken.items():
                notes.append(f"{name} ({part.split}) is broken: {reason}")

    def rank(self, plan: CollectionPlan, source: str) -> None:
        """Update the collection's rows in the submission, and its outcome."""
        report = self.put_rows(plan.collection, max(self.last, time.monotonic() + 60))
        folds = read_card(self.workspace.model(plan.collection)).folds
        outcome = self.outcomes[plan.collection]
        ranker = report.models[str(plan.collection)]
        outcome.ranked_by = source if ranker == str(plan.collection) else ranker
        outcome.notes += [why for why in report.choices if why not in outcome.notes]
        outcome.folds = summarise(folds) if folds else {}
        outcome.valid = read_first_scores(self.workspace, plan.collection).get("report", {})

    def put_rows(self, collection: Collection, end: float) -> Submission:
        keywords = {"collections": [str(collection)], "cover": self.cover, "keep": True}
        report: Submission = self.step(submit, self.workspace, self.out, end=end, **keywords)
        self.broken = report.broken | self.broken
        return report

    def card(self, plan: CollectionPlan) -> ModelCard | None:
        """Return the card of the collection's model if it was trained on all stored rows."""
        with suppress(XlarankError):  # a broken model is retrained
            model = model_of(self.workspace, plan.collection)
            card = model.require_card()
            manifest = read_manifest(self.workspace, plan.collection, "train")
            if manifest is None or card.recipe != manifest.recipe:
                return None
            model.require(manifest)
            for split, names in card.trained_on.items():
                manifest = read_manifest(self.workspace, plan.collection, split)
                graphs = manifest.graphs.items() if manifest else ()
                if {*names} != {
                    name for name, graph in graphs if graph.labelled and graph.rankable
                }:
                    return None
            return card
        return None

    def attach(self, source: Workspace, collection: Collection) -> ModelCard:
        """Copy another workspace's model, unloaded because it may be damaged; return its card.

        Raises `WorkspaceError` if the workspace has another model of the collection.
        """
        card = read_card(source.model(collection))
        if source.root.resolve() != self.workspace.root.resolve():
            target = self.workspace.model(collection)
            if target.exists() and read_card(target).fingerprint != card.fingerprint:
                got = f"the workspace {self.workspace.root} has another model of {collection}"
                raise WorkspaceError(got, do="pass another `workspace`")
            with workspace_lock(self.workspace, self.progress):
                shutil.copytree(source.model(collection), target, dirs_exist_ok=True)
                if scores := read_first_scores(source, collection):
                    write_json(budget.first_scores(self.workspace, collection), scores)
        return card


def first_model(
    workspace: Workspace,
    collection: Collection,
    request: TrainSettings | None,
    *,
    progress: Progress | None,
) -> None:
    """Train if there is a ``request``, store metrics on valid and plot the median graph's ranks."""
    path = budget.first_scores(workspace, collection)
    first = read_first_scores(workspace, collection)
    if request is not None:
        (result,) = train(workspace, request, progress=progress)
        first = {"seconds": result.seconds}
        write_json(path, first)
    name = str(collection)
    with suppress(XlarankError):  # the valid split cannot be scored
        report = evaluate(workspace, collections=[name], progress=progress).report[name]
        write_json(path, {**first, "report": report})
        scores = report["score"]["graphs"]
        graph = sorted(scores, key=lambda name: (scores[name], name))[len(scores) // 2]
        graphs = each_graph(workspace, collection, "valid")
        rows = next(rows for rows in graphs if rows.name == graph).measured()
        predicted = mean_rank(model_of(workspace, collection).score(rows))
        measured = mean_rank(rows.row_cost)
        title = f"{collection}\n{short(graph)}: {scores[graph]:.2f}"
        chart = ranks_chart(path.stem, title, predicted, measured)
        write_picture(path.with_suffix(".svg"), chart)
