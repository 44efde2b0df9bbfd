"""Label layout configurations of a program: estimated by the TPU compiler or measured on this CPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from xlarank.data.collection import choose_splits
from xlarank.data.errors import CompilerError
from xlarank.data.files import atomic_write, write_json
from xlarank.data.hlo.compiler.cycles import COUNTING, Estimate
from xlarank.data.hlo.compiler.outcome import Journal, Outcome, Status
from xlarank.data.hlo.compiler.session import Compiler
from xlarank.data.hlo.compiler.targets import Target, target_of
from xlarank.data.hlo.messages import Message
from xlarank.models.validation.metrics import kendall_tau
from xlarank.pipelines.programs.candidates import Candidates, Codes, breed, random_configurations
from xlarank.pipelines.programs.sources import (
    Collected,
    Search,
    SearchSettings,
    compile_new,
    configuration_key,
    existing_manifest,
    label_settings,
    load_program,
    write_configurations,
)
from xlarank.pipelines.support.progress import Progress, steps_of

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
        about = label_settings(loaded, compiler, settings) | ({"counting": COUNTING} if target.estimated else {})
        if place.exists() and (done := existing_manifest(place.with_suffix(".json"), about)) is not None:
            return Collected(place, done, fresh=False)
        rng = np.random.default_rng(settings.seed)
        candidates = settings.candidates(loaded.graph, rng)
        if not candidates.nodes:
            raise CompilerError(
                f"nothing in {program} can be given a layout",
                expected="a convolution, dot or reshape outside fusions",
            )
        count = min(settings.configs, candidates.space)
        with (
            Journal(folder / f".{loaded.name}.journal", about) as journal,
            steps_of(progress, f"compiling {loaded.name} for {target.name}", count) as step,
        ):
            compiler.know(journal.estimates)

            def outcomes_of(codes: Codes) -> list[Outcome]:
                rows = candidates.expand(codes)
                keys = list(map(configuration_key, rows))
                return compile_new(compiler, journal, keys, lambda at: loaded.constrained(rows[at]), step=step)

            codes, outcomes = _searched(settings.search, count, candidates, rng, outcomes_of)
        good = [at for at, outcome in enumerate(outcomes) if outcome.status is Status.OK]
        # a genetic search finds good ones late: the order must not give labels away
        order = [0, *rng.permutation(good[1:]).tolist()]
        # configurations that became the same program share its label, so ties are real
        programs = list(dict.fromkeys(outcomes[at].fingerprint for at in order))
        first = [next(at for at in order if outcomes[at].fingerprint == one) for one in programs]
        if target.estimated:
            found, facts = _estimated(target, [outcomes[at].estimate for at in first])
        else:
            modules = [loaded.constrained(rows) for rows in candidates.expand(codes[first])]
            found, facts = _measured(compiler, modules, settings.seed)
        label = dict(zip(programs, found, strict=True))
        for at in order:
            if not label[outcomes[at].fingerprint]:
                outcomes[at] = replace(outcomes[at], status=Status.FAILED, message="wrong outputs")
        order = [at for at in order if outcomes[at].status is Status.OK]
        with atomic_write(place.with_suffix(".pb")) as file:
            file.write_bytes(loaded.lowered.module)
        labels = np.array([label[outcomes[at].fingerprint] for at in order], np.int64)
        write_configurations(place, loaded.graph, candidates.expand(codes[order]), labels)
        manifest = about | facts | {"distinct_programs": len(first), "source": target.labels}
        manifest["configurations"] = _records(order, outcomes)
        write_json(place.with_suffix(".json"), manifest)
        journal.path.unlink(missing_ok=True)
    return Collected(place, manifest, fresh=True)


def _searched(
    search: Search,
    count: int,
    candidates: Candidates,
    rng: np.random.Generator,
    outcomes_of: Callable[[Codes], list[Outcome]],
) -> tuple[Codes, list[Outcome]]:
    """Return every configuration of a search with its outcome, the compiler's default first."""
    codes: Codes = np.zeros((1, candidates.groups), np.int32)
    outcomes = outcomes_of(codes)
    if outcomes[0].status is not Status.OK:  # the others are worth nothing
        raise CompilerError(
            f"the compiler's default did not compile ({outcomes[0].message})",
            do="give it more seconds with --limit, or a smaller program"
            if outcomes[0].status is Status.TIMEOUT
            else "try another --target, or leave out what this one refuses",
        )
    if search == "random":
        drawn = random_configurations(candidates, count, rng)
        return drawn, outcomes + outcomes_of(drawn[1:])
    while len(codes) < count:
        label = [one.estimate.cycles if one.status is Status.OK else np.inf for one in outcomes]
        best = np.argsort(label, kind="stable")[:_PARENTS]
        fresh = breed(candidates, codes[best], min(_BATCH, count - len(codes)), rng, known=codes)
        if not len(fresh):
            break
        codes = np.concatenate([codes, fresh])
        outcomes += outcomes_of(fresh)
    return codes, outcomes


def _estimated(target: Target, estimates: list[Estimate]) -> tuple[list[int], dict[str, Any]]:
    """Return the nanoseconds of programs by the compiler's estimate, and facts for the manifest."""
    found = [target.nanoseconds(one.cycles) for one in estimates]
    if not all(found):
        raise CompilerError(
            "the compiler estimates nothing of this program",
            expected="operations whose cycles it knows",
            do="collect a larger program",
        )
    return found, {"loops_counted_once": max(one.unknown_loops for one in estimates)}


def _measured(compiler: Compiler, modules: list[Message], seed: int) -> tuple[list[int], dict[str, Any]]:
    """Return the nanoseconds of programs on this machine, 0 where outputs are wrong, and facts for the manifest."""
    found = compiler.measure(modules, rounds=ROUNDS, seed=seed)
    if not found[0]:
        raise CompilerError(
            "the program's outputs are not the same from run to run", expected="a program without randomness"
        )
    times = np.array([one for one in found if one])
    halves = fastest(times[:, ::2]), fastest(times[:, 1::2])
    facts = {
        "rounds": ROUNDS,
        # what a perfect ranker could reach: the agreement of labels of the even and of the odd rounds
        "retest_tau": round(float(kendall_tau(*halves)), 4) if len(times) > 1 else None,
        "wrong_outputs": len(found) - len(times),
    }
    return [round(float(fastest(np.array([one]))[0]) * 1e9) if one else 0 for one in found], facts


def fastest(times: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean of the fastest sixth of the rounds, ``(programs, rounds) -> (programs,)``, at least one round.

    >>> fastest(np.array([[3.0, 1.0, 2.0, 9.0, 9.0, 9.0, 1.5, 9.0, 9.0, 9.0, 9.0, 9.0]]))
    array([1.25])
    """
    count = max(1, times.shape[1] // _SHARE)
    mean: NDArray[np.float64] = np.sort(times, axis=1)[:, :count].mean(axis=1)
    return mean


def _records(order: list[int], outcomes: list[Outcome]) -> list[dict[str, Any]]:
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
