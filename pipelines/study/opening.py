"""The study of a collection: what it is called, where it lies, and who else is at it."""

from __future__ import annotations

import json
import logging
import os
import warnings
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xlarank.data.errors import WorkspaceError, XlarankError
from xlarank.data.files import read_bytes
from xlarank.data.passwords import passwords_of, without, without_passwords
from xlarank.models.validation.fold_plan import FAMILY, FoldPlan
from xlarank.models.validation.rungs import Rung
from xlarank.pipelines.study.crew import Crew, Neighbours, Others
from xlarank.pipelines.study.heartbeat import INTERVAL
from xlarank.pipelines.study.identity import about, require_own_study, require_same
from xlarank.pipelines.study.place import open_place, shareable
from xlarank.pipelines.study.sharing import one_at_a_time
from xlarank.pipelines.study.storage import open_study
from xlarank.pipelines.support.training_sets import StoredTrainingSet

if TYPE_CHECKING:
    import optuna


@dataclass(frozen=True)
class StudyPlan:
    """What a study is of.

    Attributes:
        training, folds: the rows, and what is held out of them.
        rungs: of every trial; one where each does all the work.
        model, members, select: the ranker, the parameters of its members, and how the best trial is chosen.
        rounds, seed: of every trial.
    """

    training: StoredTrainingSet
    folds: FoldPlan
    rungs: Sequence[Rung]
    model: str
    members: dict[str, dict[str, Any]]
    select: str
    rounds: int
    seed: int

    @property
    def family(self) -> str:
        """What the names of its studies begin with: one ranker and one way to choose, any rows."""
        return f"{self.training.collection}/{self.model}/{self.select}/"

    @property
    def name(self) -> str:
        """The name of the study. Other rows, rungs or members of an ensemble are studies of their own."""
        from xlarank.pipelines.study.rung_search import rungs_mark

        data = self.training.data
        labels = zlib.crc32(repr((data.names, data.indptr.tolist())).encode() + data.cost.tobytes())
        name = f"{self.family}{self.training.manifest.recipe.code_hash}/{labels:08x}"
        if self.folds.by != FAMILY:
            name += f"/{self.folds.by}"
        name += rungs_mark(self.rungs)
        if self.members:
            name += f"/{zlib.crc32(json.dumps(self.members, sort_keys=True).encode()):08x}"
        return name


@dataclass(frozen=True)
class StoragePlan:
    """Where studies lie.

    Attributes:
        address: an Optuna storage URL, or what `study.place` takes; None is a journal in the workspace.
        worker: join the study that others began, never one of one's own.
        heartbeat: seconds between signs of life.
    """

    address: str | None = None
    worker: bool = False
    heartbeat: float = INTERVAL

    @property
    def shared(self) -> bool:
        """Whether workers of several machines can be at its studies."""
        return self.address is not None and shareable(self.address)

    def require_possible(self) -> None:
        """Raise `XlarankError` for a worker whose storage others cannot share, and for no time between beats."""
        if not 0 < self.heartbeat < float("inf"):
            raise XlarankError(f"heartbeat is {self.heartbeat!r}", expected="seconds, more than 0")
        if self.worker and not self.shared:
            given = (
                f"--storage {without_passwords(self.address)}" if self.address else "the workspace's own studies"
            )
            raise XlarankError(
                f"--worker cannot share {given} with other machines",
                expected="a storage that several machines can reach",
                do="pass --storage journal:PATH or --storage postgresql+psycopg://USER@HOST/DATABASE",
            )


def open_study_of(plan: StudyPlan, at: StoragePlan, folder: Path) -> tuple[optuna.Study, Others]:
    """The study, created where it is missing, and the other processes at it.

    Raises `XlarankError` where it cannot be opened, and where a shared study is about something else.
    """
    import optuna

    from xlarank.pipelines.study.rung_search import RungPruner
    from xlarank.pipelines.study.sampler import TrialSampler

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    logging.getLogger("optuna").setLevel(logging.ERROR)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(folder, error) from error
    others: Others
    if at.address is not None and at.shared:
        study, others = _open_shared(plan, at, at.address)
    else:
        study, others = _open_own(plan.name, folder, at.address), Neighbours(folder)
    study.sampler = TrialSampler(plan.seed)
    median = optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=0)
    study.pruner = RungPruner() if len(plan.rungs) > 1 else median
    return study, others


def _open_shared(plan: StudyPlan, at: StoragePlan, address: str) -> tuple[optuna.Study, Others]:
    own = about(
        plan.training.data, plan.folds.held, columns=plan.training.manifest.recipe.code_hash, members=plan.members,
        rounds=plan.rounds, seed=plan.seed,
    )  # fmt: skip
    place = open_place(address)
    try:
        with place.turn(plan.family):  # of workers that begin at once, the first one says what the study is about
            if at.worker:
                require_own_study(place.storage, plan.family, plan.name, own, place.shown)
            study = open_study(plan.name, place.storage)
            require_same(study, own, place.shown)
    except BaseException:
        place.close()
        raise
    return study, Crew(place, study, plan.name, at.heartbeat)


def _open_own(name: str, folder: Path, address: str | None) -> optuna.Study:
    """A study in the workspace, or at a storage that one machine can reach."""
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    try:
        with one_at_a_time(folder), warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            _mend(folder / "journal.log")
            place: Any = address or JournalStorage(JournalFileBackend(str(folder / "journal.log")))
            return open_study(name, place)
    except OSError as error:
        raise _unwritable(folder, error) from error
    except Exception as error:  # storages raise errors of many libraries
        told = without(f"{type(error).__name__}: {' '.join(str(error).split())}", passwords_of(address or ""))
        raise XlarankError(
            f"the study storage cannot be opened ({told})",
            expected="journal:PATH, postgresql+psycopg://USER@HOST/DATABASE, or an Optuna storage URL such as "
            "sqlite:///study.db",
            do="check --storage, or leave it out",
        ) from None  # the error's own text may hold a password


def _unwritable(folder: Path, error: OSError) -> WorkspaceError:
    return WorkspaceError(
        f"cannot write the study at {folder} ({error.strerror or error})", do="pass another --workspace"
    )


def _mend(journal: Path) -> None:
    """Drop a last line that a kill or a full disk cut short; a line appended to it would spoil the journal."""
    from optuna.storages.journal import JournalFileSymlinkLock

    if not journal.exists():
        return
    lock = JournalFileSymlinkLock(str(journal))  # another process may be writing to the same study
    lock.acquire()
    try:
        os.truncate(journal, read_bytes(journal).rfind(b"\n") + 1)
    finally:
        lock.release()
