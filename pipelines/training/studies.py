"""Optuna studies: their storage, sampler, pruner and pictures."""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import optuna
from optuna import storages
from optuna.samplers import TPESampler
from optuna.study import Study
from optuna.trial import TrialState

from xlarank.data.errors import XlarankError
from xlarank.data.files import atomic_write
from xlarank.data.workspace import Workspace
from xlarank.models.validation.folds import FACTOR

#: States of finished trials.
FINISHED: Final = (TrialState.COMPLETE, TrialState.PRUNED)
#: Seconds without heartbeats after which the trial of a killed process is run again.
GRACE: Final = 60
_ADDRESS: Final = "an address of SQLAlchemy, such as postgresql+psycopg://USER@HOST/DATABASE"


@contextmanager
def open_storage(workspace: Workspace, address: str | None = None) -> Iterator[storages.RDBStorage]:
    """Yield the storage at an address of SQLAlchemy, by default a SQLite file in the workspace.

    Raises `XlarankError`, without passwords, if it cannot be used.
    """
    from sqlalchemy.engine import URL, make_url
    from sqlalchemy.exc import SQLAlchemyError

    path = workspace.root.absolute() / "studies" / "studies.db"
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        url = make_url(address) if address else URL.create("sqlite", database=str(path))
        if "@" in (url.host or ""):
            raise ValueError("a part of the password may have been taken for the host")
    except (SQLAlchemyError, ValueError):
        do = "check `storage`; write the @ of a password as %40"
        raise XlarankError("`storage` is not an address", expected=_ADDRESS, do=do) from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", category=optuna.exceptions.ExperimentalWarning)
            storage = storages.RDBStorage(
                url.render_as_string(hide_password=False),
                heartbeat_interval=10,
                grace_period=GRACE,
                heartbeat_stale_trial_callback=storages.RetryHeartbeatStaleTrialCallback(3),
            )
            try:
                yield storage
            finally:
                storage.remove_session()
                storage.engine.dispose()
    except (SQLAlchemyError, optuna.exceptions.OptunaError, ImportError) as error:
        cause: BaseException = error
        while (inner := cause.__cause__ or cause.__context__) is not None:
            cause = inner  # the first cause has the message of the server
        text = f"{type(cause).__name__}: {' '.join(str(cause).split())}"
        text = text.replace(url.password, "***") if url.password else text
        got = f"the study storage {url.set(query={})} cannot be used ({text})"
        do = "check `storage` (PostgreSQL: pip install 'xlarank[postgres]'), or run it again"
        raise XlarankError(got, expected=_ADDRESS, do=do) from None


def open_study(
    storage: storages.RDBStorage, name: str, defaults: dict[str, Any], seed: int
) -> Study:
    """Load or create a study whose first trial is the defaults."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(
        study_name=name,
        storage=storage,
        direction="maximize",
        load_if_exists=True,
        pruner=optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=FACTOR),
    )
    trials = study.get_trials(deepcopy=False)
    # by the number of trials: a resumed study does not repeat draws
    new_seed = zlib.crc32(f"{seed}/{len(trials)}".encode())
    study.sampler = TPESampler(seed=new_seed, multivariate=True, n_startup_trials=20)
    kept = [trial for trial in trials if trial.state in (TrialState.COMPLETE, TrialState.WAITING)]
    if defaults not in [trial.params or trial.system_attrs.get("fixed_params") for trial in kept]:
        study.enqueue_trial(defaults)
    return study


def draw_study(study: Study, path: Path) -> list[Path]:
    """Write SVGs of the optimization history and, after ten scores, of importances."""
    from matplotlib import pyplot as plt
    from optuna.visualization import matplotlib as draw

    history = draw.plot_optimization_history(study, target_name="out-of-fold score")
    plots: dict[Path, Any] = {path: history}
    complete = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    if len({trial.value for trial in complete}) >= 10:
        evaluator = optuna.importance.PedAnovaImportanceEvaluator()
        importances = draw.plot_param_importances(study, evaluator=evaluator)
        plots[path.with_stem(f"{path.stem}-importance")] = importances
    for file, axes in plots.items():
        with atomic_write(file) as partial:
            axes.figure.savefig(partial, format="svg", bbox_inches="tight")
        plt.close(axes.figure)
    return list(plots)
