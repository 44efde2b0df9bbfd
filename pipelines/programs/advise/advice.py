"""Diagnosis of a program and search for faster layouts, by a TPU's compiler or by measuring."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

from xlarank.data.errors import CompilerError
from xlarank.data.files import atomic_write, read_text, write_json
from xlarank.data.hardware import DEFAULT_CHIP
from xlarank.data.workspace import DEFAULT_ROOT
from xlarank.pipelines.programs.advise import diagnosis
from xlarank.pipelines.programs.advise.diagnosis import Diagnosis
from xlarank.pipelines.programs.advise.search import LayoutSearch, Trial
from xlarank.pipelines.programs.compiler.constrain import compiled_entry_layouts
from xlarank.pipelines.programs.compiler.cycles import read_estimate
from xlarank.pipelines.programs.compiler.session import Compiler
from xlarank.pipelines.programs.compiler.xla import Outcome
from xlarank.pipelines.programs.leaves import Leaf, changed_leaves
from xlarank.pipelines.programs.sources import load_program
from xlarank.pipelines.programs.timing import time_programs

#: Speedup that justifies changing code.
WORTHWHILE = 1.02


@dataclass(frozen=True, repr=False)
class Advice:
    """Diagnosis of a program and its best layouts.

    Attributes:
        source: the program as it was named, with its folder.
        module_ns: time of the edited module, with entry layouts and layouts of operations.
        code_ns: time with the code to paste, which sets entry layouts; None without an estimate.
        speedup: of the edited module, measured if requested.
        compiled: number of configurations by status; ``known`` are compiled to a known program.
        lines: code to paste into a JAX program, and comments on operations.
        measured: device, speedup with its 95 % interval, summary; None if nothing was measured.
    """

    program: str
    source: str
    target: str
    versions: dict[str, str]
    labels: str
    default_ns: int
    module_ns: int
    code_ns: int | None
    speedup: float
    compiled: dict[str, int]
    stopped: str
    diagnosis: Diagnosis
    diagnosis_after: Diagnosis
    inputs: list[Leaf]
    outputs: list[Leaf]
    changes: list[dict[str, Any]]
    lines: list[str]
    files: list[str]
    measured: dict[str, Any] | None

    def __repr__(self) -> str:
        faster = f"{self.speedup:.3f} times as fast as the compiler's default"
        verdict = "" if self.is_worthwhile else ": nothing worth doing"
        return f"<Advice on {self.program} for {self.target}, {self.labels}: {faster}{verdict}>"

    @property
    def is_worthwhile(self) -> bool:
        """True if the speedup justifies changing code."""
        return self.speedup >= WORTHWHILE

    @property
    def net_text(self) -> str:
        """Note on the net gain if inputs are laid out anew in every call; empty without them.

        That costs as much as the copies that it spares, which the search does not count.
        """
        names = [leaf.name for leaf in self.inputs if leaf.kind == "input" and not leaf.looped]
        if not names or not self.diagnosis.cycles:
            return ""
        copies = [copy for copy in self.diagnosis.copies if copy["tensor"] in names]
        cost = sum(copy["cycles"] for copy in copies) / self.diagnosis.cycles
        gain = 1 / (1 / self.speedup + cost)
        text = f"net gain {gain:.3f} with {', '.join(names)} laid out anew in each call"
        verdict = ": nothing worth doing, unless it is made in this layout"
        return text if gain >= WORTHWHILE else text + verdict


def advise(
    program: str | Path,
    *,
    target: str = DEFAULT_CHIP,
    budget: int = 20,
    measure: bool = False,
    out: str | Path = DEFAULT_ROOT / "advice",
    minutes: float = 60.0,
    jobs: int = 1,
) -> Advice:
    """Show the copies that layouts force in a program, and search for faster layouts.

    ``program`` is an HLO file or ``module:function``. The TPU's compiler estimates times, without a
    TPU (extra: collect); with ``measure``, or for "cpu" and "device", the program is run here as
    written and as advised. The compiler's default stands unless another configuration beats it.

    Args:
        budget: number of compilations; 1: diagnosis only.
        out: folder for the advice and the edited module.
        jobs: number of configurations compiled at a time.

    Raises `HloError`, and `CompilerError` if the default does not compile.
    """
    source = str(program)
    with ExitStack() as stack:
        compiler = stack.enter_context(Compiler(target, jobs=jobs))
        device = None if compiler.target.estimated else compiler
        if measure and device is None:
            device = stack.enter_context(Compiler("device"))
            if device.target.name != compiler.target.name:
                got = f"the device to measure on is {device.target.name}"
                do = "leave out `measure`, or pass `target=device`"
                raise CompilerError(got, expected=compiler.target.name, do=do)
        search = LayoutSearch(compiler, load_program(source, compiler), budget, minutes)
        search.run()
        default = search.trials[0]
        best = search.explicit_best()
        measured = None
        if device and best is not default:
            measured = _measure(device, search, best, minutes)
            if measured["low"] <= 1:
                best = default
        advice = _advice(search, source, best, measured)
    record, edited = _paths(Path(out), advice)
    files = [str(record)]
    if best is default:
        edited.unlink(missing_ok=True)  # left by an earlier run
    else:
        files.append(str(edited))
        with atomic_write(edited) as partial:
            partial.write_bytes(best.layouts.apply(search.program.module).SerializeToString())
    advice = replace(advice, files=files)
    write_json(record, asdict(advice))
    return advice


def _measure(device: Compiler, search: LayoutSearch, best: Trial, minutes: float) -> dict[str, Any]:
    """Time a program as written and as advised; raise `CompilerError` if the latter fails."""
    plain = search.program.module
    programs = {"written": plain, "advised": best.layouts.apply(plain)}
    timings = time_programs(device, plain, programs, minutes=minutes, min_rounds=96)
    if problem := timings.problems.get("advised"):
        got = f"the program as advised does not run ({problem})"
        raise CompilerError(got, do="leave the layouts as they are")
    name = device.target.name
    expected = search.trials[0].cycles / best.cycles
    speedup, low, high = timings.speedup("written", "advised")
    summary = f"measured on {name}: {speedup:.3f} times as fast ({low:.3f} to {high:.3f}, 95 %)"
    summary += f"; expected {expected:.3f}, measured {speedup / expected - 1:+.1%}"
    if low <= 1:
        verdict = "slower" if high < 1 else "cannot be told from 1.00"
        summary += f"; {verdict}, nothing is kept"
    figures = {"expected": expected, "speedup": speedup, "low": low, "high": high}
    return {"device": name, "summary": summary} | figures


def _advice(
    search: LayoutSearch, source: str, best: Trial, measured: dict[str, Any] | None
) -> Advice:
    """Return the advice of a finished search, without files."""
    chip = search.compiler.target
    program = search.program
    default = search.trials[0]
    before = compiled_entry_layouts(default.outcome.text)
    after = compiled_entry_layouts(best.outcome.text)
    inputs = changed_leaves(search.inputs, before[0], after[0], search.ties.keys())
    outputs = changed_leaves(search.outputs, before[1], after[1], search.ties.values())
    changes = diagnosis.changes_of(program.module, dict(best.layouts.orders))
    lines = diagnosis.entry_lines(inputs, outputs) if any(program.leaves) else []
    code_ns = None
    if lines:
        compiled = search.compiler.compile_pasted(source, lines)
        if isinstance(compiled, Outcome):
            lines = []
        elif chip.estimated:
            code_ns = chip.nanoseconds(read_estimate(compiled)[0])
    speedup = default.cycles / best.cycles
    if measured is not None and best is not default:
        speedup = measured["speedup"]
    module_ns = chip.nanoseconds(best.cycles) if chip.estimated else round(default.cycles / speedup)
    outcomes = [trial.outcome for trial in search.trials]
    return Advice(
        program=program.name,
        source=str(Path(source).absolute()),
        target=chip.name,
        versions=search.compiler.versions,
        labels=chip.labels,
        default_ns=chip.nanoseconds(default.cycles),
        module_ns=module_ns,
        code_ns=code_ns,
        speedup=speedup,
        compiled=dict(Counter("known" if one.shared else one.status for one in outcomes)),
        stopped=search.stopped,
        diagnosis=diagnosis.diagnose(default.outcome.text, search.inputs, search.outputs),
        diagnosis_after=diagnosis.diagnose(best.outcome.text, search.inputs, search.outputs),
        inputs=inputs,
        outputs=outputs,
        changes=changes,
        lines=[*lines, *diagnosis.operation_lines(changes)],
        files=[],
        measured=measured,
    )


def _paths(out: Path, advice: Advice) -> tuple[Path, Path]:
    """Return the paths of the record and the edited module, none of them another program's."""
    for number in count(1):
        name = advice.program if number == 1 else f"{advice.program}.{number}"
        record = out / f"{name}.advice.json"
        source = ""
        with suppress(OSError, ValueError, KeyError, TypeError):
            source = json.loads(read_text(record))["source"]
        if source == advice.source or not record.exists():
            break
    return record, out / f"{name}.advised.pb"
