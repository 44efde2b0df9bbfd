"""Labels of layout configurations of a program: compiler's estimates, or measured runtimes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from copy import deepcopy
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xlarank.data.errors import CompilerError, WorkspaceError, naming
from xlarank.data.files import atomic_write, read_text, regular_only, write_json
from xlarank.data.hardware import DEFAULT_CHIP
from xlarank.data.hlo.messages import Message
from xlarank.models.validation.metrics import kendall_tau
from xlarank.pipelines.programs.candidates import random_configurations, tied_candidates
from xlarank.pipelines.programs.compiler.chips import Chip
from xlarank.pipelines.programs.compiler.session import Compiler
from xlarank.pipelines.programs.compiler.xla import Outcome, Program
from xlarank.pipelines.programs.sources import default_error, load_program, write_configurations
from xlarank.pipelines.programs.timing import Round, fastest, time_programs
from xlarank.pipelines.support.progress import steps_of


def collect(
    program: str | Path,
    out: str | Path,
    *,
    target: str = DEFAULT_CHIP,
    configs: int = 64,
    minutes: float = 10.0,
    jobs: int = 1,
    seed: int = 0,
) -> tuple[Path, dict[str, Any], bool]:
    """Write ``npz/layout/<source>/random/train/NAME.npz`` in ``out``, its module and manifest.

    ``program`` is a file of HLO or ``module:function``, a function without arguments that returns a
    JAX callable and its arguments. Labels are in ns; ``<source>`` is `Chip.source`, such as
    ``tpu-estimate`` for the compiler's estimates or ``cpu`` for measurements, which take about
    ``minutes``. An interrupted run resumes when repeated.

    Returns the path, the manifest, and whether they were written now. Raises `CompilerError` if the
    default configuration does not compile.
    """
    with Compiler(target, jobs=jobs) as compiler:
        chip = compiler.target
        loaded = load_program(str(program), compiler)
        path = Path(out, "npz/layout", chip.source, "random/train", f"{loaded.name}.npz")
        settings = label_settings(loaded, compiler, configs=configs, seed=seed)
        if path.exists() and (stored := existing_manifest(path.with_suffix(".json"), settings)):
            return path, stored, False
        rng = np.random.default_rng(seed)
        candidates = tied_candidates(loaded.graph)
        with naming(loaded.name):
            codes = random_configurations(candidates, configs, rng)
        rows = candidates.expand(codes)
        with Journal(path.with_name(f".{loaded.name}.journal"), settings) as journal:
            outcomes = _compile(compiler, journal, loaded, rows)
            compiled = [at for at, outcome in enumerate(outcomes) if outcome.ok]
            # the compiler's default first; the order of the others tells nothing
            order = [0, *rng.permutation(compiled[1:]).tolist()]
            # configurations compiled to the same program share its label
            programs: dict[str, int] = {}
            for at in order:
                programs.setdefault(outcomes[at].fingerprint, at)
            if chip.estimated:
                labels, facts = _estimated(chip, [outcomes[at] for at in programs.values()])
            else:
                modules = {name: loaded.constrained(rows[at]) for name, at in programs.items()}
                labels, facts = _measured(compiler, modules, journal, minutes=minutes, seed=seed)
    labelled = [at for at in order if outcomes[at].fingerprint in labels]
    manifest = settings | facts | {"distinct_programs": len(programs), "source": chip.labels}
    manifest["configurations"] = _records(labelled, outcomes, facts.get("left_out", {}))
    with atomic_write(path.with_suffix(".pb")) as partial:
        partial.write_bytes(loaded.serialized)
    runtime = np.array([labels[outcomes[at].fingerprint] for at in labelled], np.int64)
    graph = replace(candidates.graph(loaded.graph, codes[labelled]), runtime=runtime)
    write_configurations(path, replace(graph, target=chip.name))
    write_json(path.with_suffix(".json"), manifest)
    journal.path.unlink(missing_ok=True)
    return path, manifest, True


def _compile(
    compiler: Compiler, journal: Journal, program: Program, rows: NDArray[np.int8]
) -> list[Outcome]:
    """Return the outcome of each configuration; those in the journal are not compiled again.

    Raises `CompilerError` if the compiler's default, the first one, does not compile.
    """
    rows_by_key = {hashlib.sha256(row.tobytes()).hexdigest()[:16]: row for row in rows}
    missing = [key for key in rows_by_key if key not in journal.outcomes]
    title = f"compiling {program.name} for {compiler.target.name}"
    with steps_of(title, len(missing)) as step:
        for part in (missing[:1], missing[1:]):
            modules = (program.constrained(rows_by_key[key]) for key in part)
            for number, outcome in compiler.compile(modules):
                journal.add(part[number], outcome)
                step(outcome.message[:60])
            default = journal.outcomes[next(iter(rows_by_key))]
            if not default.ok:
                raise default_error(program.module, default, compiler.target.name)
    return [journal.outcomes[key] for key in rows_by_key]


def _estimated(chip: Chip, outcomes: Sequence[Outcome]) -> tuple[dict[str, int], dict[str, Any]]:
    """Return estimated nanoseconds by fingerprint, and entries for the manifest."""
    labels = {outcome.fingerprint: chip.nanoseconds(outcome.cycles) for outcome in outcomes}
    if not all(labels.values()):
        got = "the compiler estimates nothing of this program"
        expected = "operations whose cycles it knows"
        raise CompilerError(got, expected=expected, do="collect a larger program")
    return labels, {"loops_counted_once": max(outcome.unknown_loops for outcome in outcomes)}


def _measured(
    compiler: Compiler,
    modules: Mapping[str, Message],
    journal: Journal,
    *,
    minutes: float,
    seed: int,
) -> tuple[dict[str, int], dict[str, Any]]:
    """Return measured nanoseconds by fingerprint, and entries for the manifest."""
    timings = time_programs(
        compiler,
        next(iter(modules.values())),
        modules,
        minutes=minutes,
        seed=seed,
        known=journal.rounds,
        keep=journal.add_round,
    )
    rounds = timings.seconds.shape[1]
    retest = None
    if min(timings.seconds.shape) > 1:  # tau between labels of the even and the odd rounds
        halves = (fastest(timings.seconds[:, start::2]) for start in (0, 1))
        retest = round(float(kendall_tau(*halves)), 4)
    return timings.nanoseconds(), {
        "label": f"mean of the fastest sixth of {rounds} shuffled rounds",
        "standard_errors": timings.standard_errors(),
        "rounds": rounds,
        "retest_tau": retest,
        "left_out": timings.problems,
        "date": datetime.now(UTC).date().isoformat(),
    }


def _records(
    labelled: Sequence[int], outcomes: Sequence[Outcome], left_out: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Return a record per configuration in the order of rows; unlabelled ones come last."""
    others = [at for at in range(len(outcomes)) if at not in labelled]
    ordered = [outcomes[at] for at in (*labelled, *others)]
    return [
        {
            "row": row if row < len(labelled) else None,
            "status": "failed" if outcome.fingerprint in left_out else outcome.status,
            "program": outcome.fingerprint,
            "seconds": round(outcome.seconds, 2),
            "message": left_out.get(outcome.fingerprint, outcome.message),
        }
        for row, outcome in enumerate(ordered)
    ]


def label_settings(program: Program, compiler: Compiler, **settings: Any) -> dict[str, Any]:
    """Return all that labels depend on, for the manifest."""
    return {
        "program": program.name,
        "module": program_hash(program.module),
        "target": compiler.target.name,
        "versions": dict(compiler.versions),
        **settings,
    }


def program_hash(module: Message) -> str:
    """Return a digest of a program's computations, without metadata such as source lines."""
    digest = hashlib.sha256()
    for computation in map(deepcopy, module.computations):
        for instruction in computation.instructions:
            instruction.ClearField("metadata")
        digest.update(computation.SerializeToString(deterministic=True))
    return digest.hexdigest()


def existing_manifest(path: Path, settings: dict[str, Any]) -> dict[str, Any] | None:
    """Return the manifest at ``path``, if any; raises `CompilerError` for other settings."""
    if not path.exists():
        return None
    try:
        manifest: dict[str, Any] = json.loads(read_text(path))
    except (OSError, ValueError) as error:
        got = f"{path} cannot be read ({error})"
        raise CompilerError(got, do="remove it, or pass another `out`") from error
    _require_same(settings, manifest, f"{path} was collected")
    return manifest


def _require_same(settings: Mapping[str, Any], stored: Mapping[str, Any], got: str) -> None:
    """Raise `CompilerError` if stored labels are of other settings."""
    if changed := [key for key in settings if stored.get(key) != settings[key]]:
        expected = ", ".join(f"{key} {stored.get(key)}" for key in changed)
        do = "use those settings, remove the file, or pass another `out`"
        raise CompilerError(f"{got} with another {' and '.join(changed)}", expected=expected, do=do)


class Journal(AbstractContextManager["Journal", None]):
    """File of outcomes and rounds, from which an interrupted run resumes; a context manager.

    Lines are appended; an incomplete last line is dropped. Raises `CompilerError` if the file has
    other ``settings``, `WorkspaceError` if it is unusable.
    """

    def __init__(self, path: Path, settings: Mapping[str, Any]) -> None:
        self.path = path
        self.outcomes: dict[str, Outcome] = {}
        self.rounds: list[Round] = []
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            text = read_text(path) if path.exists() else ""
            complete = text[: text.rfind("\n") + 1]
            first, *lines = [*map(json.loads, complete.splitlines())] or [settings]
            _require_same(settings, first, f"{path} was started")
            for line in lines:
                if "round" in line:
                    self.rounds.append(line["round"])
                else:
                    self.outcomes[line["configuration"]] = Outcome(**line["outcome"])
            self._stream = open(path, "a", encoding="utf-8", opener=regular_only)
            self._stream.truncate(len(complete.encode()))
            if not complete:
                self._append(settings)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            got = f"{path} cannot be used ({error})"
            raise WorkspaceError(got, do="remove it, or pass another `out`") from error

    def add(self, configuration: str, outcome: Outcome) -> None:
        """Append an outcome and flush it to the file."""
        self.outcomes[configuration] = outcome
        self._append({"configuration": configuration, "outcome": asdict(outcome)})

    def add_round(self, seconds: Round) -> None:
        """Append a round of measurements: seconds, or the reason for failure, by fingerprint."""
        self.rounds.append(seconds)
        self._append({"round": seconds})

    def _append(self, line: Mapping[str, Any]) -> None:
        self._stream.write(json.dumps(line) + "\n")
        self._stream.flush()

    def __exit__(self, *_: object) -> None:
        self._stream.close()
