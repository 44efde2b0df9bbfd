"""Label layout configurations of a program: estimated by the TPU compiler or measured on this CPU."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from xlarank.data.collection import choose_splits
from xlarank.data.errors import CompilerError
from xlarank.data.files import atomic_write, write_json
from xlarank.data.hlo.candidates import Candidates, Codes, breed, random_configurations
from xlarank.data.hlo.compiler.cycles import COUNTING
from xlarank.data.hlo.compiler.outcome import Journal, Outcome, Status
from xlarank.data.hlo.compiler.session import Compiler
from xlarank.data.hlo.compiler.targets import Target, target_of
from xlarank.models.validation.metrics import kendall_tau
from xlarank.pipelines.programs.sources import (
    Collected,
    Program,
    SearchSettings,
    configuration_key,
    constrained,
    existing_manifest,
    label_settings,
    label_words,
    load_program,
    write_configurations,
)
from xlarank.pipelines.support.progress import Progress, Silent, steps_of

#: Configurations that are bred at a time, and from how many of the best.
_BATCH: Final = 8
_PARENTS: Final = 8
#: Shuffled rounds that everything is run in; the label is the mean of the fastest sixth of them.
ROUNDS: Final = 24
_SHARE: Final = 6


@dataclass(frozen=True)
class CollectSettings(SearchSettings):
    """Settings that labels depend on; ``evolve`` goes by the labels.

    Attributes:
        target: a name of `xlarank.data.hlo.compiler.targets.TARGETS`.
        limit: seconds that one configuration may compile.
        effort: XLA's ``exec_time_optimization_effort``; changes labels.
    """

    target: str
    limit: float = 120.0
    effort: float | None = None


def collect(
    program: str,
    out: Path,
    settings: CollectSettings,
    *,
    split: str = "train",
    name: str | None = None,
    jobs: int = 1,
    progress: Progress | None = None,
) -> Collected:
    """Write ``npz/layout/<source>/<search>/<split>/NAME.npz`` below ``out``, its module and a manifest.

    ``program`` is a file of HLO or ``module:function``, a function without arguments that returns a JAX callable
    and its arguments. Labels are named by their source: ``tpu-estimate`` (the compiler's estimate, ns) or ``cpu``
    (measured here, ns). Run again after a kill, it goes on where it was and gives the same file.
    Raises `CompilerError` where the compiler is missing, or not even its default compiles.
    """
    choose_splits([split])
    target = target_of(settings.target)
    with Compiler(target, jobs=jobs, limit=settings.limit, effort=settings.effort) as compiler:
        loaded = load_program(program, compiler, name)
        folder = out / "npz" / "layout" / target.source / settings.search / split
        place = folder / f"{loaded.name}.npz"
        about = label_settings(loaded.name, loaded.module, compiler, settings)
        if target.estimated:
            about["counting"] = COUNTING
        done = existing_manifest(place.with_suffix(".json"), about) if place.exists() else None
        if done is not None:
            return Collected(place, done, fresh=False)
        rng = np.random.default_rng(settings.seed)
        candidates = settings.candidates(loaded.graph, rng)
        with Journal(folder / f".{loaded.name}.journal", about) as journal:
            run = _LabelSearch(compiler, loaded, candidates, settings, journal, progress or Silent())
            codes, outcomes = run.all(rng)
        good = [at for at, outcome in enumerate(outcomes) if outcome.status is Status.OK]
        if not good or good[0] != 0:
            raise CompilerError(
                f"the compiler's default did not compile ({outcomes[0].message or outcomes[0].status})",
                do="give it more seconds with --limit, or a smaller program"
                if outcomes[0].status is Status.TIMEOUT
                else "try another --target, or leave out what this one refuses",
            )
        # a genetic search finds good ones late: the order must not give labels away
        order = [0, *rng.permutation(good[1:]).tolist()]
        rows = candidates.expand(codes[order])
        if target.estimated:
            labels, facts = _estimated(target, [outcomes[at] for at in order])
        else:
            programs = [outcomes[at].fingerprint for at in order]
            labels, facts = measured_labels(compiler, loaded, rows, programs, settings.seed)
            for at in np.array(order)[labels == 0].tolist():
                outcomes[at] = replace(outcomes[at], status=Status.FAILED, message="wrong outputs")
            order = np.array(order)[labels > 0].tolist()
        _write(place, loaded, rows[labels > 0], labels[labels > 0])
        manifest = (
            about | facts | {"source": label_words(target), "configurations": _records(order, codes, outcomes)}
        )
        write_json(place.with_suffix(".json"), manifest)
        journal.path.unlink(missing_ok=True)
    return Collected(place, manifest, fresh=True)


@dataclass
class _LabelSearch:
    compiler: Compiler
    program: Program
    candidates: Candidates
    settings: CollectSettings
    journal: Journal
    progress: Progress

    def all(self, rng: np.random.Generator) -> tuple[Codes, list[Outcome]]:
        """Every configuration of the search with its outcome, the compiler's choice first."""
        self.compiler.know(self.journal.estimates)
        count = min(self.settings.configs, self.candidates.space)
        with steps_of(self.progress, f"compiling {self.program.name} for {self.compiler.target.name}", count):
            if self.settings.search == "evolve":
                return self._evolved(count, rng)
            codes = random_configurations(self.candidates, count, rng)
            outcomes = self.outcomes(codes[:1])  # where that fails the others are worth nothing
            if outcomes[0].status is Status.OK:
                outcomes += self.outcomes(codes[1:])
            return codes, outcomes

    def _evolved(self, count: int, rng: np.random.Generator) -> tuple[Codes, list[Outcome]]:
        codes: Codes = np.zeros((1, self.candidates.groups), np.int32)
        outcomes = self.outcomes(codes)
        while len(codes) < count and outcomes[0].status is Status.OK:
            label = [one.estimate.cycles if one.status is Status.OK else np.inf for one in outcomes]
            best = np.argsort(label, kind="stable")[:_PARENTS]
            fresh = breed(self.candidates, codes[best], min(_BATCH, count - len(codes)), rng, known=codes)
            if not len(fresh):
                break
            codes = np.concatenate([codes, fresh])
            outcomes += self.outcomes(fresh)
        return codes, outcomes

    def outcomes(self, codes: Codes) -> list[Outcome]:
        """Outcomes of some configurations in their order, from the journal or the compiler."""
        found = self.journal.outcomes
        keys = [configuration_key(self.candidates, code) for code in codes]
        todo = [at for at, key in enumerate(keys) if key not in found]
        for key in keys:
            if key in found:
                self.progress.step(found[key].message[:60])
        modules = (constrained(self.program, self.candidates.expand(codes[at][None])[0]) for at in todo)
        for number, outcome in self.compiler.compile(modules):
            self.journal.add(keys[todo[number]], outcome)
            self.progress.step(outcome.message[:60])
        return [found[key] for key in keys]


def _estimated(target: Target, outcomes: list[Outcome]) -> tuple[NDArray[np.int64], dict[str, Any]]:
    labels = np.array([target.nanoseconds(outcome.estimate.cycles) for outcome in outcomes], np.int64)
    if not labels.all():
        raise CompilerError(
            "the compiler estimates nothing of this program",
            expected="operations whose cycles it knows",
            do="collect a larger program",
        )
    distinct = len({outcome.fingerprint for outcome in outcomes})
    once = max(outcome.estimate.unknown_loops for outcome in outcomes)
    return labels, {"loops_counted_once": once, "distinct_programs": distinct}


def fastest(times: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean of the fastest sixth of the rounds, ``(programs, rounds) -> (programs,)``, at least one round.

    >>> fastest(np.array([[3.0, 1.0, 2.0, 9.0, 9.0, 9.0, 1.5, 9.0, 9.0, 9.0, 9.0, 9.0]]))
    array([1.25])
    """
    count = max(1, times.shape[1] // _SHARE)
    mean: NDArray[np.float64] = np.sort(times, axis=1)[:, :count].mean(axis=1)
    return mean


def retest_tau(times: NDArray[np.float64]) -> float:
    """Kendall tau between the labels of the even and of the odd rounds: what a perfect ranker could reach."""
    return float(kendall_tau(fastest(times[:, ::2]), fastest(times[:, 1::2])))


def measured_labels(
    compiler: Compiler, program: Program, rows: NDArray[np.int8], fingerprints: list[str], seed: int
) -> tuple[NDArray[np.int64], dict[str, Any]]:
    """``(configs,)`` nanoseconds of configurations ``rows (configs, nodes, 18)``, 0 where outputs are wrong; facts.

    Configurations that became the same program share one label, so ties are real.
    Raises `CompilerError` when the program cannot be run here.
    """
    distinct = list(dict.fromkeys(fingerprints))
    first = [fingerprints.index(one) for one in distinct]
    modules = [constrained(program, rows[at]) for at in first]
    found = compiler.measure(modules, rounds=ROUNDS, seed=seed)
    sound = [at for at, times in enumerate(found) if times]
    if 0 not in sound:
        raise CompilerError(
            "the program's outputs are not the same from run to run", expected="a program without randomness"
        )
    times = np.array([found[at] for at in sound])
    label = dict(zip((distinct[at] for at in sound), np.round(fastest(times) * 1e9).astype(np.int64), strict=True))
    facts = {
        "rounds": ROUNDS,
        "distinct_programs": len(distinct),
        "retest_tau": round(retest_tau(times), 4) if len(sound) > 1 else None,
        "wrong_outputs": len(distinct) - len(sound),
    }
    return np.array([label.get(one, 0) for one in fingerprints], np.int64), facts


def _records(order: list[int], codes: Codes, outcomes: list[Outcome]) -> list[dict[str, Any]]:
    """What came of each configuration, by its row in the file; those that failed have none."""
    failed = [at for at, outcome in enumerate(outcomes) if outcome.status is not Status.OK]
    return [
        {
            "row": row if row < len(order) else None,
            "status": str(outcomes[at].status),
            "program": outcomes[at].fingerprint,
            "code_generated": outcomes[at].status is Status.OK and not outcomes[at].shared,
            "seconds": round(outcomes[at].seconds, 2),
            "message": outcomes[at].message,
        }
        for row, at in enumerate([*order, *failed])
    ]


def _write(place: Path, program: Program, rows: NDArray[np.int8], labels: NDArray[np.int64]) -> None:
    with atomic_write(place.with_suffix(".pb")) as partial:
        partial.write_bytes(program.module.SerializeToString())
    write_configurations(place, program.graph, rows, labels)
