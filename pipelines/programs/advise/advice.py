"""Diagnosis of a program and search for faster layouts, by a TPU's compiler or by measuring."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from xlarank.data.errors import CompilerError
from xlarank.data.files import atomic_write, write_json
from xlarank.data.hlo.messages import Message
from xlarank.pipelines.programs.advise import diagnosis
from xlarank.pipelines.programs.advise.diagnosis import Change, Diagnosis, Leaf
from xlarank.pipelines.programs.advise.search import LayoutSearch, Trial
from xlarank.pipelines.programs.compiler.constrain import Order, compiled_entry_layouts
from xlarank.pipelines.programs.compiler.cycles import read_estimate
from xlarank.pipelines.programs.compiler.session import Compiler
from xlarank.pipelines.programs.compiler.xla import Outcome
from xlarank.pipelines.programs.sources import NO_CODE, load_program
from xlarank.pipelines.programs.timing import time_programs

#: Speedup that justifies changing code.
WORTHWHILE = 1.02


@dataclass(frozen=True)
class Measurement:
    """Speedup of the advised program with its 95 % interval; ``expected``: by the search."""

    device: str
    expected: float
    speedup: float
    low: float
    high: float

    @property
    def text(self) -> str:
        interval = f"{self.low:.3f} to {self.high:.3f}, 95 %"
        text = f"measured on {self.device}: {self.speedup:.3f} times as fast ({interval})"
        off = self.speedup / self.expected - 1
        text += f"; expected {self.expected:.3f}, measured {off:+.1%}"
        if self.low > 1:
            return text
        verdict = "slower" if self.high < 1 else "cannot be told from 1.00"
        return f"{text}; {verdict}, nothing is kept"


@dataclass(frozen=True, repr=False)
class Advice:
    """Diagnosis of a program and its best layouts.

    Attributes:
        source: the program as it was named, with its folder.
        replaced: note on operations replaced because this compiler has no code for them.
        module_ns: time of the edited module, with entry layouts and layouts of operations.
        code_ns: time with the printed code, which sets entry layouts; None if there is none, or if
            it was not estimated.
        speedup: of the edited module.
        compiled: number of configurations by status, as in `LayoutSearch.statuses`.
        diagnosis: None if the target has no estimates.
        lines: code to paste into a JAX program, and comments on operations.
        measured: None if not requested, or if there is nothing to measure.
    """

    program: str
    source: str
    target: str
    versions: dict[str, str]
    replaced: str
    labels: str
    function: bool
    default_ns: int
    module_ns: int
    code_ns: int | None
    speedup: float
    compiled: dict[str, int]
    stopped: str
    diagnosis: Diagnosis | None
    diagnosis_after: Diagnosis | None
    inputs: list[Leaf]
    outputs: list[Leaf]
    changes: list[Change]
    lines: list[str]
    files: list[str]
    measured: Measurement | None = None

    def __repr__(self) -> str:
        faster = f"{self.speedup:.3f} times as fast as the compiler's default"
        verdict = "" if self.is_worthwhile else ": nothing worth doing"
        return f"<Advice on {self.program} for {self.target}, {self.labels}: {faster}{verdict}>"

    @property
    def is_worthwhile(self) -> bool:
        """Whether the speedup justifies changing code."""
        return (self.measured or self).speedup >= WORTHWHILE

    @property
    def net_text(self) -> str:
        """Note on the net gain if inputs must be laid out anew in every call, as the search does
        not count, which costs as much as the copies that it spares; else empty.
        """
        inputs = [change for change in self.inputs if change.kind == "input"]
        converted = [change.name for change in inputs if not change.looped]
        if not converted or self.diagnosis is None:
            return ""
        copies = self.diagnosis.relayouts
        cycles = sum(copy.cycles for copy in copies if copy.tensor in converted)
        gain = 1 / (1 / (self.measured or self).speedup + cycles / max(self.diagnosis.cycles, 1))
        text = f"net gain {gain:.3f} with {', '.join(converted)} laid out anew in each call"
        if gain >= WORTHWHILE:
            return text
        return f"{text}: nothing worth doing, unless it is made in this layout"


def advise(
    program: str,
    compiler: Compiler,
    *,
    out: Path,
    budget: int = 20,
    minutes: float = 60.0,
    measure: bool = False,
) -> Advice:
    """Diagnose a program, and search layouts within a budget of compilations and minutes.

    The compiler's default is compiled first and stands unless another configuration beats it
    (`LayoutSearch`). ``measure`` runs the program as written and as advised on this machine's
    device, as it is done for all targets without estimates. The advice and any edited module are
    written below ``out``. Raises `CompilerError` if the default does not
    compile.
    """
    if budget < 1:
        raise CompilerError(f"a budget of {budget} compilations", expected="at least 1")
    with _measuring_device(compiler, measure) as device:
        search, replaced = _search(compiler, program, budget, minutes)
        default = search.trials[0]
        best = search.explicit_best()
        measured = None
        if device and best is not default:
            measured = _measure(device, search, best, minutes)
            if measured.low <= 1:
                best = default
    advice = _advice(search, program, replaced, best, measured)
    edited = None if best is default else best.layouts.apply(search.program.module)
    return _write(advice, edited, out)


@contextmanager
def _measuring_device(compiler: Compiler, measure: bool) -> Iterator[Compiler | None]:
    """Yield a compiler for the device that measures, if any; it must be what is compiled for."""
    if not compiler.target.estimated:
        yield compiler
    elif not measure:
        yield None
    else:
        with Compiler("device") as device:
            name = compiler.target.name
            if device.target.name != name:
                got = f"there is no {name} to measure on: the device is {device.target.name}"
                raise CompilerError(got, do="leave out `measure`, or pass `target=device`")
            yield device


def _search(
    compiler: Compiler, program: str, budget: int, minutes: float
) -> tuple[LayoutSearch, str]:
    """Return the finished search, and a note on operations replaced for lack of code."""
    search = LayoutSearch(compiler, load_program(program, compiler))
    try:
        search.run(budget, minutes)
        return search, ""
    except CompilerError as error:
        if not NO_CODE.search(error.got) or not any(search.program.leaves):
            raise
        note = "take_along_axis was compiled as a product with one_hot, write it so"
        replaced = f"{note}: {error.got}"
    search = LayoutSearch(compiler, load_program(program, compiler, one_hot=True))
    search.run(budget, minutes)
    return search, replaced


def _measure(device: Compiler, search: LayoutSearch, best: Trial, minutes: float) -> Measurement:
    """Time a program as written and as advised; raise `CompilerError` if the latter fails."""
    plain = search.program.module
    programs = {"written": plain, "advised": best.layouts.apply(plain)}
    timings = time_programs(device, plain, programs, minutes=minutes, min_rounds=96)
    if problem := timings.problems.get("advised"):
        got = f"the program as advised does not run ({problem})"
        raise CompilerError(got, do="leave the layouts as they are")
    expected = search.trials[0].cycles / best.cycles
    return Measurement(device.target.name, expected, *timings.speedup("written", "advised"))


def _advice(
    search: LayoutSearch, source: str, replaced: str, best: Trial, measured: Measurement | None
) -> Advice:
    """Return the advice of a finished search, without files."""
    chip = search.compiler.target
    program = search.program
    default = search.trials[0]
    is_function = any(program.leaves)
    before = compiled_entry_layouts(default.outcome.text)
    after = compiled_entry_layouts(best.outcome.text)
    inputs = _changed(search.inputs, before[0], after[0], search.ties.keys())
    outputs = _changed(search.outputs, before[1], after[1], search.ties.values())
    changes = diagnosis.changes_of(program.module, dict(best.layouts.orders))
    lines = diagnosis.entry_lines(inputs, outputs) if is_function else []
    code_ns = None
    if lines:
        compiled = search.compiler.compile_pasted(source, lines, bool(replaced))
        if isinstance(compiled, Outcome):
            lines = []
        elif chip.estimated:
            code_ns = chip.nanoseconds(read_estimate(compiled)[0])
    default_ns = chip.nanoseconds(default.cycles)
    speedup = default.cycles / best.cycles
    if measured and not chip.estimated and best is not default:
        speedup = measured.speedup
    diagnoses = [
        diagnosis.diagnose(trial.outcome.text, search.inputs, search.outputs)
        if chip.estimated
        else None
        for trial in (default, best)
    ]
    return Advice(
        program=program.name,
        source=str(Path(source).absolute()),
        target=chip.name,
        versions=search.compiler.versions,
        replaced=replaced,
        labels=f"estimated by the compiler for {chip.name}" if chip.estimated else chip.labels,
        function=is_function,
        default_ns=default_ns,
        module_ns=round(default_ns / speedup),
        code_ns=code_ns,
        speedup=speedup,
        compiled=search.statuses,
        stopped=search.stopped,
        diagnosis=diagnoses[0],
        diagnosis_after=diagnoses[1],
        inputs=inputs,
        outputs=outputs,
        changes=changes,
        lines=[*lines, *diagnosis.operation_lines(changes)],
        files=[],
        measured=measured,
    )


def _changed(
    leaves: list[Leaf], before: list[Order], after: list[Order], looped: Collection[int]
) -> list[Leaf]:
    """Return the inputs or outputs whose layout changes."""
    changed = []
    for at, (leaf, old, new) in enumerate(zip(leaves, before, after, strict=True)):
        if old != new:
            laid_out = replace(leaf, before=old, minor_to_major=new, major_to_minor=new[::-1])
            changed.append(replace(laid_out, looped=at in looped))
    return changed


def _write(advice: Advice, edited: Message | None, out: Path) -> Advice:
    """Write record and edited module, if any; return the advice with their paths.

    The files of another program of the same name are left alone.
    """
    stem = advice.program
    number = 1
    while _source_of(record := out / f"{stem}.advice.json") not in (None, advice.source):
        number += 1
        stem = f"{advice.program}.{number}"
    files = [record]
    module = out / f"{stem}.advised.pb"
    if edited is None:
        module.unlink(missing_ok=True)  # left by an earlier run
    else:
        files.append(module)
        with atomic_write(module) as partial:
            partial.write_bytes(edited.SerializeToString())
    advice = replace(advice, files=list(map(str, files)))
    write_json(record, asdict(advice))
    return advice


def _source_of(record: Path) -> str | None:
    """Return the program of a stored advice; None if there is no file, empty if it is unknown."""
    if not record.exists():
        return None
    try:
        return str(json.loads(record.read_text(encoding="utf-8"))["source"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""
