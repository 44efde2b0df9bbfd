"""Labels of layout configurations of a program: compiler's estimates, or measured runtimes."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from xlarank.data.collection import choose_splits
from xlarank.data.errors import CompilerError
from xlarank.data.files import atomic_write, write_json
from xlarank.data.hardware import is_hardware
from xlarank.models.validation.metrics import kendall_tau
from xlarank.pipelines.programs import sources
from xlarank.pipelines.programs.candidates import (
    CandidateLayouts,
    Codes,
    breed,
    random_configurations,
)
from xlarank.pipelines.programs.compiler.chips import Chip
from xlarank.pipelines.programs.compiler.cycles import COUNTING
from xlarank.pipelines.programs.compiler.outcome import Journal, Outcome, Status
from xlarank.pipelines.programs.compiler.session import Compiler
from xlarank.pipelines.programs.compiler.xla import Program
from xlarank.pipelines.programs.sources import Collected, Evaluator, SearchSettings
from xlarank.pipelines.programs.timing import Timings, fastest, time_programs
from xlarank.pipelines.support.progress import Progress, steps_of

#: Batch size of the genetic search, and number of best configurations used as parents.
_BATCH = 8
_PARENTS = 8
#: Settings of the search that labels depend on.
_IDENTITY = ("search", "configs", "seed", "tie", "per_node")


def collect(
    program: str,
    out: Path,
    compiler: Compiler,
    settings: SearchSettings,
    *,
    minutes: float = 10.0,
    split: str = "train",
    name: str | None = None,
    progress: Progress | None = None,
) -> Collected:
    """Write ``npz/layout/<source>/<search>/<split>/NAME.npz`` in ``out``, its module and manifest.

    ``program`` is a file of HLO or ``module:function``, a function without arguments that returns a
    JAX callable and its arguments. Labels are in ns; ``<source>`` is `Chip.source`, such as
    ``tpu-estimate`` for the compiler's estimates or ``cpu`` for measurements, which take at most
    ``minutes``. An interrupted run resumes when repeated. Raises `CompilerError` if the default
    configuration does not compile.
    """
    choose_splits([split])
    target = compiler.target
    loaded = sources.load_program(program, compiler, name)
    folder = out / "npz" / "layout" / target.source / settings.search / split
    path = folder / f"{loaded.name}.npz"
    identity = _identity(loaded, compiler, settings)
    if path.exists():
        stored = sources.existing_manifest(path.with_suffix(".json"), identity)
        if stored is not None:
            return Collected(path, stored, fresh=False)
    if not len(loaded.graph.configurable):
        expected = "a convolution, dot or reshape outside fusions"
        raise CompilerError(f"nothing in {program} can be given a layout", expected=expected)
    rng = np.random.default_rng(settings.seed)
    candidates = settings.candidates(loaded.graph, rng)
    with Journal(path.with_name(f".{loaded.name}.journal"), identity) as journal:
        compiler.add_estimates(journal.estimates)
        codes, outcomes = _search(compiler, journal, loaded, candidates, settings, rng, progress)
        order = _shuffled(outcomes, rng)
        # configurations compiled to the same program share its label
        programs: dict[str, int] = {}
        for at in order:
            programs.setdefault(outcomes[at].fingerprint, at)
        if target.estimated:
            labels, facts = _estimated_labels(target, [outcomes[at] for at in programs.values()])
        else:
            rows = candidates.expand(codes[[*programs.values()]])
            modules = dict(zip(programs, map(loaded.constrained, rows), strict=True))
            timings = time_programs(
                compiler,
                modules[outcomes[0].fingerprint],
                modules,
                minutes=minutes,
                seed=settings.seed,
                journal=journal,
                progress=progress,
            )
            labels = timings.nanoseconds()
            facts = _facts(timings)
    labelled = [at for at in order if outcomes[at].fingerprint in labels]
    manifest = identity | facts | {"distinct_programs": len(programs), "source": target.labels}
    manifest["configurations"] = _records(labelled, outcomes, facts.get("left_out", {}))
    with atomic_write(path.with_suffix(".pb")) as partial:
        partial.write_bytes(loaded.serialized)
    runtime = np.array([labels[outcomes[at].fingerprint] for at in labelled], np.int64)
    rows = candidates.expand(codes[labelled])
    hardware = target.name if is_hardware(target.name) else ""
    sources.write_configurations(path, loaded.graph, rows, runtime, hardware)
    write_json(path.with_suffix(".json"), manifest)
    journal.path.unlink(missing_ok=True)
    return Collected(path, manifest, fresh=True)


def _identity(program: Program, compiler: Compiler, settings: SearchSettings) -> dict[str, Any]:
    """Return all that labels depend on, for the manifest."""
    target = compiler.target
    identity = sources.label_settings(
        program,
        compiler,
        **{key: getattr(settings, key) for key in _IDENTITY},
        target=target.name,
        limit=compiler.limit,
        effort=compiler.effort,
    )
    return identity | ({"counting": COUNTING} if target.estimated else {})


def _search(
    compiler: Compiler,
    journal: Journal,
    program: Program,
    candidates: CandidateLayouts,
    settings: SearchSettings,
    rng: np.random.Generator,
    progress: Progress | None,
) -> tuple[Codes, list[Outcome]]:
    """Return the configurations of a search with their outcomes, the compiler's default first."""
    count = min(settings.configs, candidates.space)
    target = compiler.target
    timed = settings.search == "evolve" and not target.estimated
    evaluator = Evaluator(compiler, journal, timed=timed)
    verb = "compiling and timing" if timed else "compiling"
    title = f"{verb} {program.name} for {target.name}"
    with steps_of(progress, title, 2 * count if timed else count) as step:

        def outcomes_of(codes: Codes) -> list[Outcome]:
            rows = candidates.expand(codes)
            keys = list(map(sources.configuration_key, rows))
            return evaluator.outcomes(keys, lambda at: program.constrained(rows[at]), step=step)

        codes: Codes = np.zeros((1, len(candidates.rows)), np.int32)
        outcomes = outcomes_of(codes)
        if outcomes[0].status is not Status.OK:
            raise sources.default_error(program.module, outcomes[0], target.name)
        if settings.search == "random":
            codes = random_configurations(candidates, count, rng)
            return codes, outcomes + outcomes_of(codes[1:])
        while len(codes) < count:
            costs = [one.cycles if one.status is Status.OK else np.inf for one in outcomes]
            parents = codes[np.argsort(costs, kind="stable")[:_PARENTS]]
            fresh = breed(candidates, parents, min(_BATCH, count - len(codes)), rng, known=codes)
            if not len(fresh):
                break
            codes = np.concatenate([codes, fresh])
            outcomes += outcomes_of(fresh)
        return codes, outcomes


def _shuffled(outcomes: list[Outcome], rng: np.random.Generator) -> list[int]:
    """Return the positions of compiled configurations: the default, then the others, shuffled.

    A genetic search finds fast ones late, so that their order would leak labels.
    """
    compiled = [at for at, outcome in enumerate(outcomes) if outcome.status is Status.OK]
    return [0, *rng.permutation(compiled[1:]).tolist()]


def _estimated_labels(
    target: Chip, outcomes: list[Outcome]
) -> tuple[dict[str, int], dict[str, Any]]:
    """Return the estimated nanoseconds of programs, and entries for the manifest."""
    labels = {one.fingerprint: target.nanoseconds(one.cycles) for one in outcomes}
    if not all(labels.values()):
        got = "the compiler estimates nothing of this program"
        expected = "operations whose cycles it knows"
        raise CompilerError(got, expected=expected, do="collect a larger program")
    return labels, {"loops_counted_once": max(one.unknown_loops for one in outcomes)}


def _facts(timings: Timings) -> dict[str, Any]:
    """Return entries of measurements for the manifest."""
    rounds = timings.seconds.shape[1]
    retest = None
    if min(timings.seconds.shape) > 1:  # tau between labels of the even and the odd rounds
        halves = (fastest(timings.seconds[:, start::2]) for start in (0, 1))
        retest = round(float(kendall_tau(*halves)), 4)
    return {
        "label": f"mean of the fastest sixth of {rounds} shuffled rounds",
        "standard_errors": timings.standard_errors(),
        "rounds": rounds,
        "retest_tau": retest,
        "left_out": timings.problems,
        "date": datetime.now(UTC).date().isoformat(),
    }


def _records(
    labelled: list[int], outcomes: list[Outcome], left_out: dict[str, str]
) -> list[dict[str, Any]]:
    """Return a record per configuration in the order of rows, then of those without a label."""
    others = [at for at in range(len(outcomes)) if at not in labelled]
    records = []
    for row, at in enumerate([*labelled, *others]):
        outcome = outcomes[at]
        if row >= len(labelled) and outcome.status is Status.OK:  # it could not be measured
            message = left_out[outcome.fingerprint]
            outcome = replace(outcome, status=Status.FAILED, message=message)
        record = {
            "row": row if row < len(labelled) else None,
            "status": str(outcome.status),
            "program": outcome.fingerprint,
            "code_generated": outcome.status is Status.OK and not outcome.shared,
            "seconds": round(outcome.seconds, 2),
            "message": outcome.message,
        }
        records.append(record)
    return records
