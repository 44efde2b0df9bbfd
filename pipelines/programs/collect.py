"""Labels of layout configurations of a program: compiler's estimates, or measured runtimes."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xlarank.data.errors import CompilerError
from xlarank.data.files import atomic_write, write_json
from xlarank.data.hardware import is_hardware
from xlarank.models.validation.metrics import kendall_tau
from xlarank.pipelines.programs import sources
from xlarank.pipelines.programs.candidates import random_configurations, tied_candidates
from xlarank.pipelines.programs.compiler.chips import Chip
from xlarank.pipelines.programs.compiler.cycles import COUNTING
from xlarank.pipelines.programs.compiler.outcome import Journal, Outcome, Status
from xlarank.pipelines.programs.compiler.session import Compiler
from xlarank.pipelines.programs.compiler.xla import Program
from xlarank.pipelines.programs.sources import Collected
from xlarank.pipelines.programs.timing import Timings, fastest, time_programs
from xlarank.pipelines.support.progress import steps_of


def collect(
    program: str,
    out: Path,
    compiler: Compiler,
    *,
    configs: int = 64,
    seed: int = 0,
    minutes: float = 10.0,
) -> Collected:
    """Write ``npz/layout/<source>/random/train/NAME.npz`` in ``out``, its module and manifest.

    ``program`` is a file of HLO or ``module:function``, a function without arguments that returns a
    JAX callable and its arguments. Labels are in ns; ``<source>`` is `Chip.source`, such as
    ``tpu-estimate`` for the compiler's estimates or ``cpu`` for measurements, which take about
    ``minutes``. An interrupted run resumes when repeated. Raises `CompilerError` if the default
    configuration does not compile.
    """
    target = compiler.target
    loaded = sources.load_program(program, compiler)
    path = out / "npz" / "layout" / target.source / "random" / "train" / f"{loaded.name}.npz"
    search = {"search": "random", "configs": configs, "seed": seed}
    identity = sources.label_settings(loaded, compiler, **search, target=target.name)
    if target.estimated:
        identity["counting"] = COUNTING
    if path.exists():
        stored = sources.existing_manifest(path.with_suffix(".json"), identity)
        if stored is not None:
            return Collected(path, stored, fresh=False)
    if not len(loaded.graph.configurable):
        expected = "a convolution, dot or reshape outside fusions"
        raise CompilerError(f"nothing in {program} can be given a layout", expected=expected)
    rng = np.random.default_rng(seed)
    candidates = tied_candidates(loaded.graph)
    codes = random_configurations(candidates, configs, rng)
    rows = candidates.expand(codes)
    with Journal(path.with_name(f".{loaded.name}.journal"), identity) as journal:
        outcomes = _compile(compiler, journal, loaded, rows)
        order = _shuffled(outcomes, rng)
        # configurations compiled to the same program share its label
        programs: dict[str, int] = {}
        for at in order:
            programs.setdefault(outcomes[at].fingerprint, at)
        if target.estimated:
            labels, facts = _estimated_labels(target, [outcomes[at] for at in programs.values()])
        else:
            distinct = map(loaded.constrained, rows[[*programs.values()]])
            modules = dict(zip(programs, distinct, strict=True))
            timings = time_programs(
                compiler,
                modules[outcomes[0].fingerprint],
                modules,
                minutes=minutes,
                seed=seed,
                journal=journal,
            )
            labels = timings.nanoseconds()
            facts = _facts(timings)
    labelled = [at for at in order if outcomes[at].fingerprint in labels]
    manifest = identity | facts | {"distinct_programs": len(programs), "source": target.labels}
    manifest["configurations"] = _records(labelled, outcomes, facts.get("left_out", {}))
    with atomic_write(path.with_suffix(".pb")) as partial:
        partial.write_bytes(loaded.serialized)
    runtime = np.array([labels[outcomes[at].fingerprint] for at in labelled], np.int64)
    hardware = target.name if is_hardware(target.name) else ""
    sources.write_configurations(path, loaded.graph, rows[labelled], runtime, hardware)
    write_json(path.with_suffix(".json"), manifest)
    journal.path.unlink(missing_ok=True)
    return Collected(path, manifest, fresh=True)


def _compile(
    compiler: Compiler, journal: Journal, program: Program, rows: NDArray[np.int8]
) -> list[Outcome]:
    """Return the outcome of each configuration, the compiler's default first, which must compile;
    those in the journal are not compiled again.
    """
    compiler.add_estimates(journal.estimates)
    keys = [sources.configuration_key(row) for row in rows]
    title = f"compiling {program.name} for {compiler.target.name}"
    with steps_of(title, len(keys)) as step:
        for part in (slice(0, 1), slice(1, None)):
            missing = [at for at in range(len(keys))[part] if keys[at] not in journal.outcomes]
            for _ in range(len(keys[part]) - len(missing)):
                step("")
            modules = (program.constrained(rows[at]) for at in missing)
            for number, outcome in compiler.compile(modules):
                journal.add(keys[missing[number]], outcome)
                step(outcome.message[:60])
            default = journal.outcomes[keys[0]]
            if default.status is not Status.OK:
                raise sources.default_error(program.module, default, compiler.target.name)
    return [journal.outcomes[key] for key in keys]


def _shuffled(outcomes: list[Outcome], rng: np.random.Generator) -> list[int]:
    """Return the positions of compiled configurations: the default, then the others, shuffled."""
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
