"""Search for the parameters with the best cross-validated score, for each collection."""

from __future__ import annotations

import io
import json
import os
import socket
import time
import zlib
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import optuna
from optuna.study import MaxTrialsCallback, Study
from optuna.trial import FrozenTrial, TrialState

from xlarank.data.collection import Collection
from xlarank.data.errors import CollectionError, ModelError, require_ranges, require_seconds
from xlarank.data.files import atomic_write
from xlarank.data.workspace import Workspace
from xlarank.models.model import Model
from xlarank.models.params import suggest_params
from xlarank.models.rankers import DEFAULT, params_of, specs_of
from xlarank.models.training_data import FitSettings
from xlarank.models.tuned import BestParams, tuned_members
from xlarank.models.validation.folds import FACTOR, FoldPlan, climb, rungs_of
from xlarank.models.validation.metrics import paired_difference
from xlarank.pipelines.support.evaluation import score_name
from xlarank.pipelines.support.progress import Progress, steps_of
from xlarank.pipelines.support.workspaces import chosen_collections, each_collection, workspace_lock
from xlarank.pipelines.training.studies import (
    FINISHED,
    PROCESS,
    StudyOptions,
    open_storage,
    open_study,
)
from xlarank.pipelines.training.training_sets import StoredTrainingSet, read_training_set

#: Rounds of a complete trial.
ROUNDS: Final = 300
#: Attribute of a trial with its result.
RESULT: Final = "result"


@dataclass(frozen=True)
class TuneResult:
    """Best parameters of one collection, or the reason why there are none.

    Attributes:
        trials, fresh, pruned: finished trials of the study, those of this call, and those stopped
            early.
        note: reason why the chosen trial is not the best one.
    """

    collection: str
    trials: int = 0
    fresh: int = 0
    pruned: int = 0
    mean: float = float("nan")
    std: float = float("nan")
    rounds: int = 0
    params: dict[str, Any] | None = None
    seconds: float = 0.0
    note: str = ""
    pictures: Sequence[Path] = ()
    skipped: str = ""


def tune(
    workspace: Workspace,
    *,
    trials: int,
    collections: Sequence[str] = (),
    timeout: float | None = None,
    model: str = DEFAULT,
    fit: FitSettings | None = None,
    study: StudyOptions | None = None,
    progress: Progress | None = None,
) -> list[TuneResult]:
    """Continue the study of each collection up to ``trials`` finished trials and write the best
    parameters.

    The value of a trial is its mean out-of-fold score, with families (tiles: kernel families) held
    out, at the best number of rounds; ``study.select`` "robust" subtracts a quarter of the standard
    deviation over graphs. The defaults are the first trial, and are kept if the best trial beats
    them by less than two standard errors. A study is resumed by the next call; several processes
    can optimize it at once. An ensemble takes the best parameters of its members. ``timeout`` is in
    seconds per collection.

    Raises `CollectionError` or `ModelError` for a named collection (others are left out with their
    reason), and `CollectionError` if nothing could be tuned.
    """
    fit = fit or FitSettings(ROUNDS)
    options = study or StudyOptions()
    require_ranges(trials=trials)
    require_seconds("timeout", timeout)
    specs_of(model)
    workspace.require_writable()
    left_out = dict[str, str]()

    def run(collection: Collection) -> TuneResult:
        training = read_training_set(workspace, collection, fit=fit)
        plan = FoldPlan.of(training.data, limit=5)
        if not plan.folds:
            got = f"{collection} has one program family ({training.data.families[0]}) in train"
            expected = "two or more, to train on one and score another"
            raise CollectionError(got, expected=expected, do="train uses default parameters for it")
        members = tuned_members(workspace.study(collection), model, collection.kind)
        objective = Objective(training, plan, model, members, fit, options.select)
        family = f"{collection}/{model}/{options.select}/"
        with open_storage(options, workspace.study(collection)) as storage:
            opened = open_study(
                storage, options, family, objective.identity(), objective.defaults, fit.seed
            )
            return _search(workspace, objective, opened, trials, timeout, progress)

    chosen = chosen_collections(workspace, collections)
    results = each_collection(chosen, collections, left_out, run)
    if not results:
        raise CollectionError("; ".join(left_out.values()))
    skipped = [TuneResult(name, skipped=reason) for name, reason in left_out.items()]
    return [*results.values(), *skipped]


@dataclass(frozen=True)
class Objective:
    """Out-of-fold score of a ranker with the parameters of a trial at the best number of rounds,
    for Optuna.

    A trial grows few trees at first; successive halving lets the best quarter of the trials grow
    more. The defaults always grow all trees, because the best trial is compared with them.
    ``members`` are the parameters of ensemble members that have studies of their own.
    """

    training: StoredTrainingSet
    plan: FoldPlan
    model: str
    members: dict[str, dict[str, Any]]
    settings: FitSettings
    select: str

    @cached_property
    def defaults(self) -> dict[str, Any]:
        """Default values of the parameters that are searched."""
        kind = self.training.kind
        probe = optuna.trial.FixedTrial(params_of(self.model, kind))
        suggest_params(specs_of(self.model), probe, kind)
        return probe.params

    def __call__(self, trial: optuna.Trial) -> float:
        trial.set_user_attr(PROCESS, f"{socket.gethostname()}:{os.getpid()}")
        kind = self.training.kind
        params = suggest_params(specs_of(self.model), trial, kind)
        if self.members:
            params["members"] = self.members
        model = Model.of(self.model, kind, params)
        rungs = rungs_of(self.settings.rounds)
        with closing(
            climb(rungs, self.training.data, self.plan.folds, model, self.settings)
        ) as scored:
            for number, curves in enumerate(scored):
                trial.report(float(curves.smooth_score(self.select).max()), FACTOR**number)
                # called for the defaults, too, because the pruner compares other trials with them
                poor = number + 1 < len(rungs) and trial.should_prune()
                if poor and trial.params != self.defaults:
                    raise optuna.TrialPruned
        stage = curves.best_stage(self.select)
        scores = curves.column("score")[:, stage]
        result = {
            "rounds": curves.rounds[stage],
            "mean": float(scores.mean()),
            "std": float(scores.std()),
            "params": dict(model.params),
            "graphs": dict(zip(curves.metrics, map(float, scores), strict=True)),
        }
        trial.set_user_attr(RESULT, result)
        return float(curves.smooth_score(self.select)[stage])

    def identity(self) -> dict[str, str]:
        """Return the values that all trials of a study share, by their description in error
        messages.
        """
        data = self.training.data
        rows = repr((data.names, data.indptr.tolist())).encode() + data.cost.tobytes()
        members = json.dumps(self.members, sort_keys=True).encode()
        return {
            "feature columns": self.training.manifest.recipe.code_hash,
            "graphs, rows or runtimes": f"{zlib.crc32(rows):08x}",
            "folds": self.plan.by,
            "`rounds`": str(self.settings.rounds),
            "parameters of members": f"{zlib.crc32(members):08x}",
        }


def _search(
    workspace: Workspace,
    objective: Objective,
    study: Study,
    trials: int,
    timeout: float | None,
    progress: Progress | None,
) -> TuneResult:
    """Run the missing trials and save the best parameters after each, so that they survive a killed
    process.
    """
    collection = objective.training.collection
    began = time.monotonic()
    fresh = 0

    def count(*states: TrialState) -> int:
        return len(study.get_trials(deepcopy=False, states=states))

    def save_best(study: Study, trial: FrozenTrial) -> None:
        nonlocal fresh
        fresh += 1
        chosen, _ = _save(workspace, objective, study)
        score = (
            "out-of-fold score {mean:.3f} ± {std:.3f}".format(**chosen.user_attrs[RESULT])
            if chosen
            else ""
        )
        step(f"{collection} {score}")

    missing = max(0, trials - count(*FINISHED))
    with steps_of(progress, f"tuning {collection}", missing) as step:
        if missing:
            # Running trials of other processes count, too: otherwise each process would run one too
            # many.
            stop = MaxTrialsCallback(trials, states=(*FINISHED, TrialState.RUNNING))
            study.optimize(objective, timeout=timeout, callbacks=[save_best, stop])
    chosen, note = _save(workspace, objective, study)
    if chosen is None:
        raise ModelError(
            f"no trial of {collection} was finished", do="give it more time with a longer `timeout`"
        )
    robust = ("robust",) if objective.select == "robust" else ()
    picture = "-".join(("tune", *collection.parts, objective.model, *robust)) + ".svg"
    score = f"{score_name(str(collection))}, {objective.select}"
    best = {name: value for name, value in chosen.user_attrs[RESULT].items() if name != "graphs"}
    return TuneResult(
        str(collection),
        count(*FINISHED),
        fresh,
        count(TrialState.PRUNED),
        **best,
        note=note,
        pictures=draw_study(study, workspace.reports() / picture, score),
        seconds=time.monotonic() - began,
    )


def _save(
    workspace: Workspace, objective: Objective, study: Study
) -> tuple[FrozenTrial | None, str]:
    """Save the chosen parameters for `train`, and a table of all trials; return the result of
    `choose`.
    """
    chosen, note = choose(study, objective)
    if chosen is not None:
        training = objective.training
        model = objective.model
        folder = workspace.study(training.collection)
        folds = [
            sorted({training.data.families[group] for group in fold.held})
            for fold in objective.plan.folds
        ]
        best = BestParams(
            model,
            **chosen.user_attrs[RESULT],
            select=objective.select,
            trial=chosen.number,
            folds=folds,
            code_hash=training.manifest.recipe.code_hash,
        )
        with workspace_lock(workspace):
            training.require_current(workspace)
            best.save(folder)
        with atomic_write(folder / f"trials-{model}.csv") as file:
            table = study.trials_dataframe(attrs=("number", "value", "duration", "params", "state"))
            table.to_csv(file, index=False)
    return chosen, note


def choose(study: Study, objective: Objective) -> tuple[FrozenTrial | None, str]:
    """Return the trial to train with (None before one is complete), and why it is not the best (""
    if it is).

    The best of many trials is partly luck, so the defaults stay unless it beats them by two
    standard errors.
    """
    complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    if not complete:
        return None, ""
    best = study.best_trial
    defaults = next((trial for trial in complete if trial.params == objective.defaults), best)
    if defaults.number != best.number:
        graphs, defaults_graphs = (trial.user_attrs[RESULT]["graphs"] for trial in (best, defaults))
        mean, error = paired_difference(graphs, defaults_graphs, objective.select)
        if not mean > 2 * error:
            beats = f"the best trial beats the defaults by {mean:.3f} ± {error:.3f} only"
            return defaults, f"{beats}, so the defaults stay"
    return best, ""


def draw_study(study: Study, path: Path, score: str) -> list[Path]:
    """Write SVGs of the optimization history and, from ten different scores on, of the parameter
    importances.
    """
    import matplotlib as mpl
    from matplotlib import pyplot as plt
    from optuna.importance import PedAnovaImportanceEvaluator
    from optuna.visualization import matplotlib as draw

    plots: dict[Path, Any] = {path: draw.plot_optimization_history(study, target_name=score)}
    complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    if len({trial.value for trial in complete}) >= 10:
        importances = draw.plot_param_importances(study, evaluator=PedAnovaImportanceEvaluator())
        plots[path.with_stem(f"{path.stem}-importance")] = importances
    for file, axes in plots.items():
        stream = io.StringIO()
        metadata = {"Date": None, "Creator": None}
        with mpl.rc_context({"svg.hashsalt": file.stem, "svg.fonttype": "none"}):
            axes.figure.savefig(stream, format="svg", bbox_inches="tight", metadata=metadata)
        plt.close(axes.figure)
        with atomic_write(file) as temporary:
            temporary.write_text("<svg" + stream.getvalue().partition("<svg")[2], encoding="utf-8")
    return list(plots)
