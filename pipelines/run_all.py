"""The whole job within a budget: from graph files to a submission, whatever happens on the way.

It runs the other pipelines. A submission in the default order is there at once; then every collection gets a first
model and, in a second round, a study and a final model, and each of them improves the file. Steps run in processes
of their own: one that takes too long or too much memory costs its collection, not the job.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from xlarank.data.collection import Collection, GraphFile, discover, graph_files
from xlarank.data.errors import CollectionError, XlarankError
from xlarank.data.ranges import require_ranges
from xlarank.data.root import DataRoot
from xlarank.data.sizes import CollectionSize, survey
from xlarank.data.submission import complete_submission, read_submission, submission_id
from xlarank.data.workspace import Workspace
from xlarank.features.recipe import FeatureSettings
from xlarank.features.store import read_manifest
from xlarank.models.registry import DEFAULT
from xlarank.models.trained import CARD, ModelCard, model_of, read_card
from xlarank.models.validation.best_params import params_for
from xlarank.models.validation.metrics import summarise
from xlarank.pipelines.budgeting.first_model import first_model
from xlarank.pipelines.budgeting.isolated import isolated
from xlarank.pipelines.budgeting.plan import (
    MAX_TRIALS,
    SAFETY,
    Budget,
    CollectionPlan,
    Plan,
    plan_budget,
    share_tuning,
)
from xlarank.pipelines.budgeting.reports import first_scores, read_first_scores
from xlarank.pipelines.build_features import build_features
from xlarank.pipelines.submit import Submission, submit
from xlarank.pipelines.support.one_root import require_one_root
from xlarank.pipelines.support.progress import Progress, Silent
from xlarank.pipelines.support.workspace_collections import trained_collections
from xlarank.pipelines.train import TrainResult, train
from xlarank.pipelines.tune import TuneResult, tune

#: After this share of the time nothing new is begun and what runs is stopped.
_LAST: Final = 0.95
#: A step may take this many times what was planned before it is stopped for the sake of the others, and these
#: seconds more: starting a process takes the same time for the smallest step.
_PATIENCE, _GRACE = 3.0, 60.0
#: Stages of a collection, worst first, as `CollectionOutcome.ranked_by` names them.
DEFAULT_ORDER, EARLIER, FIRST, FINAL = "default order", "an earlier run", "first model", "final model"
#: In place of them, where models were brought.
ATTACHED: Final = "attached model"


@dataclass
class CollectionOutcome:
    """What became of one collection.

    Attributes:
        ranked_by: what its rows of the submission are from, by the stages above.
        first, tuned, final: reports of the steps; None where one was not run now (it was done before, or failed).
        valid: ``{metric: {mean, std, low, high, graphs}}`` of the first model, which did not learn from valid.
        folds: the same out of fold, of the model that its rows are from.
        notes: what a reader must know: what failed, what there was no time for.
        seconds: spent on it.
    """

    collection: str
    ranked_by: str = DEFAULT_ORDER
    first: TrainResult | None = None
    valid: dict[str, dict[str, Any]] = field(default_factory=dict)
    folds: dict[str, dict[str, Any]] = field(default_factory=dict)
    tuned: TuneResult | None = None
    final: TrainResult | None = None
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0


@dataclass
class RunSummary:
    """The whole job.

    Attributes:
        rows: of the submission.
        broken: test graphs that are not in it, ``collection graph`` -> why.
    """

    out: Path
    plan: Plan
    outcomes: list[CollectionOutcome]
    rows: int
    broken: dict[str, str]
    seconds: float


def run_all(
    data_root: DataRoot,
    workspace: Workspace,
    out: Path,
    budget: Budget,
    *,
    collections: Sequence[str] = (),
    seeds: int = 3,
    trials: int = MAX_TRIALS,
    jobs: int = 0,
    models: Path | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    tell: Callable[[Plan], None] | None = None,
) -> RunSummary:
    """Build, tune, train and submit every collection within a budget of time, memory and disk.

    The budget counts from this call. What an earlier, interrupted call has finished is kept and not done again:
    stored graphs, trials, models that fit, rows of the submission. A collection that fails keeps the best rows that
    it has, at worst the default order, and its outcome says why.

    Args:
        trials: most trials of a study; 0 for none.
        models: a workspace whose trained models rank the test graphs; then nothing is tuned or trained.
        tell: hears the plan before the work begins.

    Raises `DataRootError`, `CollectionError` and `WorkspaceError` where nothing at all can be done, and
    `CollectionError` where there are no test graphs.
    """
    require_ranges(seeds=seeds, seed=seed, jobs=jobs, trials=max(trials, 1))
    started = time.monotonic()
    workspace.require_writable()
    files = graph_files(data_root.npz, collections, where=str(data_root.path))
    require_one_root(data_root, workspace, discover(data_root.npz))
    sizes = survey(files)
    plan = plan_budget(sizes, budget, seeds=seeds, jobs=jobs, trials=trials)
    if tell is not None:
        tell(plan)
    cover = _test_graphs(files, sizes)
    if not cover:
        raise CollectionError(
            f"{data_root.path} has no test graphs that can be read", expected="npz files in a folder called test"
        )
    job = _Job(data_root, workspace, out, plan, cover, started, seeds, seed, progress or Silent())
    job.begin(sizes)
    if models is not None:
        job.infer(models)
    else:
        job.first_round()
        job.second_round(trials)
    return job.summary()


def _test_graphs(files: Sequence[GraphFile], sizes: Sequence[CollectionSize]) -> dict[str, int]:
    """Id -> configurations of every test graph whose header could be read, in the order of the submission."""
    broken = {(size.collection, file.split, file.name) for size in sizes for file in size.broken}
    names: dict[Collection, list[str]] = {}
    for file in files:
        if file.split == "test" and (file.collection, "test", file.name) not in broken:
            names.setdefault(file.collection, []).append(file.name)
    return {
        submission_id(size.collection, name): graph.configs
        for size in sizes
        for name, graph in zip(names.get(size.collection, ()), size.graphs.get("test", ()), strict=True)
    }


@dataclass
class _Job:
    data_root: DataRoot
    workspace: Workspace
    out: Path
    plan: Plan
    cover: dict[str, int]
    started: float
    seeds: int
    seed: int
    progress: Progress
    outcomes: dict[Collection, CollectionOutcome] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)
    pace: dict[Collection, float] = field(default_factory=dict)

    def left(self, share: float = _LAST) -> float:
        """Seconds until this share of the budget is spent."""
        return share * self.plan.budget.seconds - (time.monotonic() - self.started)

    def begin(self, sizes: Sequence[CollectionSize]) -> None:
        """A submission that is right, if not good."""
        for size in sizes:
            outcome = self.outcomes[size.collection] = CollectionOutcome(str(size.collection))
            for file in size.broken:
                outcome.notes.append(f"{file.name} ({file.split}) is left out: {file.why}")
                if file.split == "test":
                    self.broken[f"{size.collection} {file.name}"] = file.why
        for part in self.plan.collections:
            if not part.trained:
                self.note(part, "there is no time, memory or disk for a model, or nothing to learn from or to rank")
        complete_submission(self.out, {}, self.cover)
        there = read_submission(self.out)
        for collection, outcome in self.outcomes.items():
            rows = [order for row_id, order in there.items() if row_id.startswith(f"{collection}:")]
            if any(order != list(range(len(order))) for order in rows):
                outcome.ranked_by = EARLIER

    def note(self, part: CollectionPlan, text: str) -> None:
        self.outcomes[part.collection].notes.append(text)

    def attempt(self, what: str, step: Callable[..., None], part: CollectionPlan, *more: Any) -> bool:
        """Do a step of a collection; an error, be it a bug, costs this collection, not the job."""
        began = time.monotonic()
        try:
            step(part, *more)
            return True
        except Exception as error:
            kind = "" if isinstance(error, XlarankError) else f"{type(error).__name__}: "
            self.note(part, f"{what} failed: {kind}{' '.join(str(error).split())[-600:]}")
            return False
        finally:
            self.outcomes[part.collection].seconds += time.monotonic() - began

    # The first round: features and a model of each collection, the cheapest first.

    def first_round(self) -> None:
        parts = [part for part in self.plan.collections if part.trained or self.card(part) is not None]
        parts.sort(key=lambda part: part.first_pass)
        for number, part in enumerate(parts):
            others = sum(other.first_pass for other in parts[number + 1 :]) / SAFETY
            allowed = min(self.left(), max(self.left() - others, _PATIENCE * part.first_pass + _GRACE))
            if allowed <= 0:
                self.note(part, "the time was over before its turn")
                continue
            end = time.monotonic() + allowed
            if self.attempt("building features", self.build, part, end):
                self.attempt("the first model", self.first, part, end)

    def build(self, part: CollectionPlan, end: float) -> None:
        # A model of an earlier run keeps the rows that it learned from, whatever this plan would keep.
        card = self.card(part)
        most = part.max_configs if card is None else card.recipe.max_configs
        # Without its test graphs a collection cannot be ranked; training graphs may be cut short.
        for splits in (["test"], ["train", "valid"]):
            jobs = self.plan.jobs
            while True:
                try:
                    report = build_features(
                        self.data_root, self.workspace, collections=[str(part.collection)], splits=splits,
                        max_configs=most, jobs=jobs, seed=self.seed,
                        timeout=max(1.0, (end - time.monotonic()) * 0.8), progress=self.progress,
                    )  # fmt: skip
                    break
                except XlarankError:
                    if jobs == 1:
                        raise
                    jobs = max(1, jobs // 2)  # a process died, most likely for want of memory
            for split in report.splits:
                if split.left:
                    self.note(part, f"{split.left} {split.split} graphs were not built: the time was over")
                for name, why in split.broken.items():
                    self.note(part, f"{name} ({split.split}) is broken: {why}")

    def first(self, part: CollectionPlan, end: float) -> None:
        outcome = self.outcomes[part.collection]
        if self.card(part) is None:
            outcome.first = isolated(
                first_model, self.workspace, part.collection, rounds=part.rounds, threads=self.plan.budget.cores,
                seed=self.seed, limit=max(1.0, end - time.monotonic()), progress=self.progress,
            )  # fmt: skip
            self.pace[part.collection] = SAFETY * max(0.1, outcome.first.seconds / part.first_seconds)
        self.rank(part, FINAL if self.card(part, final=True) else FIRST)

    def rank(self, part: CollectionPlan, by: str) -> None:
        """Put the collection's rows into the submission, unless the model is known to be worse than no model."""
        judged = read_card(self.workspace.model(part.collection)).folds
        if part.collection.kind == "layout" and judged and summarise(judged)["score"]["mean"] <= 0:  # type: ignore[operator]
            self.note(part, f"the {by} is no better than chance out of fold, so the rows stay as they were")
            return
        # What the boosters of strangers do, they do in a process of its own.
        run = partial(isolated, submit, limit=max(60.0, self.left(1.0))) if by == ATTACHED else submit
        report: Submission = run(
            self.workspace, self.out, collections=[str(part.collection)], cover=self.cover, keep=True,
            progress=self.progress,
        )  # fmt: skip
        outcome, prefix = self.outcomes[part.collection], f"{part.collection}:"
        folds = read_card(self.workspace.model(part.collection)).folds
        outcome.ranked_by, outcome.folds = by, summarise(folds) if folds else {}
        outcome.valid = read_first_scores(self.workspace, part.collection).get("report", {})
        rest = sum(row.startswith(prefix) and origin != "ranked" for row, origin in report.origin.items())
        if rest:
            outcome.notes.append(f"{rest} test graphs are not ranked by the model")
        for name, why in report.broken.items():
            self.broken.setdefault(name, why)

    # The second round: what is left goes to studies, then a final model of each collection.

    def second_round(self, trials: int) -> None:
        waiting = [part for part in self.plan.collections if part.trained and self.card(part) is not None]
        waiting = [part for part in waiting if self.outcomes[part.collection].ranked_by != FINAL]
        while waiting:
            shares = share_tuning(waiting, self.left(0.9), most=trials, pace=self.pace)
            part = waiting.pop(0)
            pace = self.pace.get(part.collection, 1.0)
            count, seconds = shares[part.collection]
            if count:
                self.attempt("tuning", self.tune, part, count, seconds, part.trial_seconds * pace)
            elif part.trials:
                self.note(part, "there was no time left for tuning")
            if self.left() < part.second_pass * pace / SAFETY or not part.refined:
                self.note(part, "there was no time left for a final model")
                continue
            others = sum(other.second_pass * self.pace.get(other.collection, 1.0) for other in waiting)
            self.attempt("the final model", self.final, part, max(self.left() - others, part.second_pass * pace))

    def tune(self, part: CollectionPlan, count: int, seconds: float, trial: float) -> None:
        # A trial cannot be interrupted from inside, so none begins that would end after its time.
        (self.outcomes[part.collection].tuned,) = isolated(
            tune, self.workspace, trials=count, collections=[str(part.collection)], timeout=seconds - trial,
            rounds=part.rounds, seed=self.seed, threads=self.plan.budget.cores,
            limit=min(_PATIENCE * seconds + _GRACE, self.left()), progress=self.progress,
        )  # fmt: skip

    def final(self, part: CollectionPlan, allowed: float) -> None:
        (self.outcomes[part.collection].final,) = isolated(
            train, self.workspace, collections=[str(part.collection)], seeds=self.seeds, with_valid=True,
            rounds=part.rounds, seed=self.seed, threads=self.plan.budget.cores,
            limit=max(1.0, min(allowed + _GRACE, self.left())), progress=self.progress,
        )  # fmt: skip
        self.rank(part, FINAL)

    def card(self, part: CollectionPlan, *, final: bool = False) -> ModelCard | None:
        """The card of the model in the workspace, if it fits the stored rows; ``final``: the last one."""
        folder, study = self.workspace.model(part.collection), self.workspace.study(part.collection)
        try:
            manifest = read_manifest(self.workspace, part.collection, "train")
            if manifest is None or not (folder / CARD).exists():
                return None
            model = model_of(self.workspace, part.collection)
            model.require_rows_of(manifest)
            params, _ = params_for(study, DEFAULT, part.collection.kind)
        except XlarankError:  # what is broken is made anew
            return None
        card = model.card
        done = "valid" in card.trained_on and len(card.seeds) == self.seeds and card.params == params.values()
        return card if card.recipe == manifest.recipe and (done or not final) else None

    # Models from elsewhere.

    def infer(self, models: Path) -> None:
        """Rank by models that are there, without learning anything."""
        theirs = Workspace(models)
        trained = trained_collections(theirs)
        for part in self.plan.collections:
            if part.collection not in trained:
                self.note(part, f"there is no model of it in {models}")
                continue
            self.attempt("ranking by the attached model", self.borrow, part, theirs)

    def borrow(self, part: CollectionPlan, theirs: Workspace) -> None:
        recipe = read_card(theirs.model(part.collection)).recipe
        for kind in ("models", "studies"):
            source = theirs.root.joinpath(kind, *part.collection.parts)
            target = self.workspace.root.joinpath(kind, *part.collection.parts)
            if source.is_dir() and source.resolve() != target.resolve():
                shutil.copytree(source, target, dirs_exist_ok=True)
        source, target = (first_scores(place, part.collection) for place in (theirs, self.workspace))
        if source.is_file() and source.resolve() != target.resolve():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
        settings: FeatureSettings = recipe.settings()
        build_features(
            self.data_root, self.workspace, collections=[str(part.collection)], splits=["test"], settings=settings,
            jobs=self.plan.jobs, timeout=max(1.0, self.left()), progress=self.progress,
        )  # fmt: skip
        self.rank(part, ATTACHED)

    def summary(self) -> RunSummary:
        outcomes = list(self.outcomes.values())
        seconds = time.monotonic() - self.started
        return RunSummary(self.out, self.plan, outcomes, len(self.cover), self.broken, seconds)
