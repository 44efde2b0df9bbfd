"""Diagnosis of a program and search for faster layouts, by a TPU's compiler or by measuring."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from xlarank.data.errors import CompilerError, counted
from xlarank.data.files import atomic_write, write_json
from xlarank.data.graph import LayoutGraph, read_graph
from xlarank.data.hlo.messages import Message
from xlarank.data.hlo.reading import graph_name, module_of, node_names, read_program
from xlarank.pipelines.programs.advise import diagnosis
from xlarank.pipelines.programs.advise.diagnosis import Change, Diagnosis, Leaf
from xlarank.pipelines.programs.advise.search import LayoutSearch, Space
from xlarank.pipelines.programs.compiler import constrain as layouts
from xlarank.pipelines.programs.compiler.chips import chip_named
from xlarank.pipelines.programs.compiler.cycles import COUNTING, read_estimate
from xlarank.pipelines.programs.compiler.functions import Pasted
from xlarank.pipelines.programs.compiler.measuring import TOLERANCE
from xlarank.pipelines.programs.compiler.outcome import Journal, Outcome, Status
from xlarank.pipelines.programs.compiler.session import Compiler
from xlarank.pipelines.programs.compiler.xla import Program
from xlarank.pipelines.programs.sources import NO_CODE, digest_of, load_program, program_hash
from xlarank.pipelines.programs.timing import time_programs
from xlarank.pipelines.support.progress import Progress

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


@dataclass(frozen=True)
class Advice:
    """Diagnosis of a program and its best layouts.

    Attributes:
        replaced: note on operations replaced because this compiler has no code for them.
        best_ns, module_ns: times with the pasted code and of the edited module, which also sets
            layouts that no code can set; equal if the program is a file.
        compiled: number of configurations by status, as in `LayoutSearch.statuses`.
        difference: largest relative difference of outputs, or why unknown; None if not asked.
        lines: code to paste into a JAX program; empty if it gains nothing.
        configuration: changed rows by node, as in ``node_config_feat``.
        measured: None if not requested, or if there is nothing to measure.
    """

    program: str
    target: str
    versions: dict[str, str]
    replaced: str
    labels: str
    function: bool
    default_ns: int
    best_ns: int
    speedup: float
    module_ns: int
    compiled: dict[str, int]
    stopped: str
    diagnosis: Diagnosis
    diagnosis_after: Diagnosis
    inputs: list[Leaf]
    outputs: list[Leaf]
    changes: list[Change]
    difference: float | str | None
    lines: list[str]
    configuration: dict[str, list[int]]
    files: list[str]
    measured: Measurement | None = None

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
        if not converted:
            return ""
        copies = self.diagnosis.relayouts
        cycles = sum(copy.cycles for copy in copies if copy.tensor in converted)
        gain = 1 / (1 / (self.measured or self).speedup + cycles / max(self.diagnosis.cycles, 1))
        text = f"net gain {gain:.3f} with {', '.join(converted)} laid out anew in each call"
        if gain >= WORTHWHILE:
            return text
        return f"{text}: nothing worth doing, unless it is made in this layout"

    @property
    def difference_text(self) -> str:
        if self.difference is None:
            return "outputs were not compared"
        if isinstance(self.difference, str):
            return f"outputs were not compared on this CPU: {self.difference}"
        text = f"on this CPU outputs differ by {self.difference:.2g} of their largest value"
        if self.difference <= TOLERANCE:
            return text
        return f"warning: {text}: more than a different order of additions explains"


class Version(NamedTuple):
    """A compiled program: default, edited ``module`` (of ``code``), or ``pasted`` ``lines``."""

    cycles: int
    text: str
    code: NDArray[np.int32]
    module: Message | None = None
    lines: Sequence[str] = ()
    changes: Sequence[Change] = ()
    pasted: Pasted | None = None


@dataclass(frozen=True)
class AdviceSettings:
    """Settings of `advise` (see its options); a target that is measured implies ``measure``. Raises
    `CompilerError` for a budget below 1.
    """

    budget: int = 20
    minutes: float = 60.0
    seed: int = 0
    per_node: int = 8
    check: bool | None = None
    measure: bool = False

    def __post_init__(self) -> None:
        if self.budget < 1:
            got = f"a budget of {self.budget} compilations"
            raise CompilerError(got, expected="at least 1")


def advise(
    program: str,
    compiler: Compiler,
    settings: AdviceSettings,
    *,
    out: Path,
    progress: Progress | None = None,
) -> Advice:
    """Diagnose a program, and search layouts within a budget of compilations.

    The compiler's default is compiled first and stands unless another configuration beats it
    (`LayoutSearch`). The advice, a picture of the diagnosis, any edited module and a journal to
    resume from are written below ``out``. Raises `CompilerError` if the default does not compile.
    """
    with _measuring_device(compiler, settings) as device:
        search, replaced = _search(compiler, program, settings, out, progress)
        default = Version(search.outcomes[0].cycles, search.text(0), search.codes[0])
        edited = _edited(search, default)
        written = Pasted(program, (), (), bool(replaced))
        advised = _as_code(search, default, edited, written)
        measured = None
        if device and edited.module is not None:
            plain = search.space.program.module
            result = advised if advised.pasted else edited
            measured = _measure(device, plain, written, result, default, settings, progress)
            if measured.low <= 1:
                edited = default
                advised = default
    difference = _difference(search.space, advised, edited, settings.check)
    advice = _advice(search, replaced, default, edited, advised, measured, difference)
    return _write(advice, edited.module, out)


@contextmanager
def _measuring_device(compiler: Compiler, settings: AdviceSettings) -> Iterator[Compiler | None]:
    """Yield a compiler for the device that measures, if any; it must be what is compiled for."""
    if not compiler.target.estimated:
        yield compiler
    elif not settings.measure:
        yield None
    else:
        with Compiler(chip_named("device")) as device:
            name = compiler.target.name
            if device.target.name != name:
                got = f"there is no {name} to measure on: the device is {device.target.name}"
                raise CompilerError(got, do="leave out `measure`, or pass `target=device`")
            yield device


def _search(
    compiler: Compiler, program: str, settings: AdviceSettings, out: Path, progress: Progress | None
) -> tuple[LayoutSearch, str]:
    """Return the finished search, and a note on operations replaced for lack of code."""
    replaced = ""
    while True:
        loaded = load_program(program, compiler, one_hot=bool(replaced))
        rng = np.random.default_rng(settings.seed)
        with open_journal(out, loaded, compiler) as journal:
            search = LayoutSearch(compiler, Space.of(loaded, rng, settings.per_node), journal, rng)
            try:
                search.run(settings.budget, settings.minutes, progress)
                return search, replaced
            except CompilerError as error:
                if replaced or not NO_CODE.search(error.got):
                    raise
                note = "take_along_axis was compiled as a product with one_hot, write it so"
                replaced = f"{note}: {error.got}"


def open_journal(out: Path, program: Program, compiler: Compiler) -> Journal:
    """Open the journal that all runs of a program by this compiler share."""
    made_by = {"target": compiler.target.name, "versions": compiler.versions}
    settings = {"counting": COUNTING, "module": program_hash(program.module), **made_by}
    if modes := layouts.entry_modes(program.module):
        settings["entry"] = modes
    return Journal(out / f".{program.name}.{digest_of(settings)}.journal", settings)


def _edited(search: LayoutSearch, default: Version) -> Version:
    """Return the best configuration with explicit entry layouts, or the default if no faster."""
    if not search.best:
        return default
    code = search.codes[search.best]
    old_layouts = layouts.compiled_entry_layouts(default.text)
    new_layouts = layouts.compiled_entry_layouts(search.text(search.best))
    modes = []
    for side in zip(search.space.entry_modes[0], old_layouts, new_layouts, strict=True):
        arrays = zip(*side, strict=True)
        modes.append([mode if new == old else layouts.mode_of(new) for mode, old, new in arrays])
    module = search.space.module(code, (modes[0], modes[1]))
    ((_, outcome),) = search.compiler.compile([module], keep=True)
    # on measured targets, `_measure` compares the module with the default later
    cycles = (outcome if search.compiler.target.estimated else search.outcomes[search.best]).cycles
    if outcome.status is not Status.OK or cycles >= default.cycles:
        return default
    return Version(cycles, outcome.text or search.texts[outcome.fingerprint], code, module)


def _as_code(search: LayoutSearch, default: Version, edited: Version, written: Pasted) -> Version:
    """Return the fastest code with an edited module's layouts (the first, if measured), or the
    default if none is faster; a file has comments alone.
    """
    if edited.module is None:
        return edited
    compiler = search.compiler
    space = search.space
    program = space.program
    rows = space.rows(edited.code)
    orders = layouts.layouts_of(program.module, program.graph.configurable, rows)
    changes = diagnosis.changes_of(program.module, orders)
    if not any(program.leaves):
        return edited._replace(lines=diagnosis.operation_lines(changes), changes=changes)
    best = default._replace(changes=changes)
    entry = replace(written, lines=diagnosis.entry_lines(*_entry_changes(space, default, edited)))
    located = {change.location[:3]: change.location for change in changes if change.location}
    variants = [replace(entry, locations=[*located.values()])] if located else []
    for pasted in [*variants, entry] if entry.lines else variants:
        result = compiler.compile_pasted(pasted)
        if isinstance(result, Outcome):
            continue
        text, expressions = result
        # pasted code is not timed
        cycles = read_estimate(text)[0] if compiler.target.estimated else edited.cycles
        if cycles >= best.cycles:
            continue
        with_code = []
        for change in changes:
            code = expressions.get(change.location, "") if change.location else ""
            with_code.append(replace(change, code=code))
        reached = [change for change in with_code if change.code]
        lines = [*entry.lines, *diagnosis.operation_lines(reached)]
        best = Version(cycles, text, default.code, None, lines, with_code, pasted)
    return best


def _entry_changes(space: Space, default: Version, edited: Version) -> list[list[Leaf]]:
    """Return the changes of inputs, and of outputs."""
    sides = zip(
        ([*space.ties.keys()], [*space.ties.values()]),
        (space.inputs, space.outputs),
        layouts.compiled_entry_layouts(default.text),
        layouts.compiled_entry_layouts(edited.text),
        strict=True,
    )
    changes = list[list[Leaf]]()
    for looped, leaves, before, after in sides:
        changes.append([])
        for at, (leaf, old, new) in enumerate(zip(leaves, before, after, strict=True)):
            if old != new:
                laid_out = replace(leaf, before=old, minor_to_major=new, major_to_minor=new[::-1])
                changes[-1].append(replace(laid_out, looped=at in looped))
    return changes


def _measure(
    device: Compiler,
    plain: Message,
    written: Pasted,
    result: Version,
    default: Version,
    settings: AdviceSettings,
    progress: Progress | None,
) -> Measurement:
    """Time a program as written and as advised; raise `CompilerError` if the latter fails."""
    programs: dict[str, Message | Pasted] = {"written": plain, "advised": result.module}
    if result.pasted:
        programs = {"written": written, "advised": result.pasted}
    timings = time_programs(
        device, plain, programs, minutes=settings.minutes, min_rounds=96, progress=progress
    )
    if problem := timings.problems.get("advised"):
        got = f"the program as advised does not run ({problem})"
        raise CompilerError(got, do="leave the layouts as they are")
    expected = default.cycles / result.cycles
    return Measurement(device.target.name, expected, *timings.speedup("written", "advised"))


def _difference(
    space: Space, advised: Version, edited: Version, check: bool | None
) -> float | str | None:
    """Return the difference of outputs on this CPU, or why it is unknown; None if not compared."""
    if edited.module is None or check is False:
        return None
    with Compiler(chip_named("cpu")) as cpu:
        seconds = 900.0 if check else 60.0  # longer if requested
        result = advised.pasted or edited.module
        return cpu.compare(space.program.module, result, seconds, space.ties)


def _advice(
    search: LayoutSearch,
    replaced: str,
    default: Version,
    edited: Version,
    advised: Version,
    measured: Measurement | None,
    difference: float | str | None,
) -> Advice:
    """Return the advice of a finished search, without files."""
    chip = search.compiler.target
    space = search.space
    program = space.program
    inputs, outputs = _entry_changes(space, default, edited)
    default_ns = chip.nanoseconds(default.cycles)
    best_ns = chip.nanoseconds(advised.cycles)
    rows = zip(program.graph.configurable, space.rows(edited.code), strict=True)
    return Advice(
        program=program.name,
        target=chip.name,
        versions=search.compiler.versions,
        replaced=replaced,
        labels=f"estimated by the compiler for {chip.name}" if chip.estimated else chip.labels,
        function=any(program.leaves),
        default_ns=default_ns,
        best_ns=best_ns,
        speedup=default_ns / best_ns,
        module_ns=chip.nanoseconds(edited.cycles),
        compiled=search.statuses,
        stopped=search.stopped,
        diagnosis=diagnosis.diagnose(default.text, space.inputs, space.outputs),
        diagnosis_after=diagnosis.diagnose(advised.text, space.inputs, space.outputs),
        inputs=inputs,
        outputs=outputs,
        changes=[*advised.changes],
        lines=[*advised.lines],
        difference=difference,
        configuration={str(node): row.tolist() for node, row in rows if (row >= 0).any()},
        files=[],
        measured=measured,
    )


def _write(advice: Advice, edited: Message | None, out: Path) -> Advice:
    """Write picture, record and edited module, if any; return the advice with their paths."""
    picture = out / f"{advice.program}.diagnosis.svg"
    record = out / f"{advice.program}.advice.json"
    module = out / f"{advice.program}.advised.pb"
    with atomic_write(picture) as partial:
        title = f"{advice.program}, {advice.target}"
        partial.write_text(diagnosis.picture(advice.diagnosis, title), encoding="utf-8")
    files = [picture, record]
    if edited is None:
        module.unlink(missing_ok=True)  # left by an earlier run
    else:
        files.append(module)
        with atomic_write(module) as partial:
            partial.write_bytes(edited.SerializeToString())
    advice = replace(advice, files=list(map(str, files)))
    write_json(record, asdict(advice))
    return advice


def apply_configuration(
    program: Path, configuration: str, out: Path
) -> tuple[list[Change], list[str], Path]:
    """Convert ``FILE.npz:N`` to changes and lines that describe them, and write the edited module
    below ``out``. Operations that it sets to the default order of dimensions are only counted.

    Raises `HloError` for another program's graph, `CompilerError` for no such configuration.
    """
    name, _, number = configuration.rpartition(":")
    if not name or not number.isdigit():
        raise CompilerError(f"{configuration!r} names no configuration", expected="FILE.npz:NUMBER")
    graph = read_graph(Path(name), "layout")
    assert isinstance(graph, LayoutGraph)
    node_names(program, graph)  # raises for the graph of another program
    if int(number) >= graph.configs:
        got = f"{name} has no configuration {number}"
        raise CompilerError(got, expected=f"0 to {graph.configs - 1}")
    module = module_of(read_program(program))
    rows = graph.table.rows[graph.table.codes[int(number)]]
    orders = layouts.layouts_of(module, graph.configurable, rows)
    path = out / f"{graph_name(program)}.{Path(name).stem}.{number}.pb"
    with atomic_write(path) as partial:
        partial.write_bytes(layouts.constrain(module, orders).SerializeToString())
    reordered = {
        node: order for node, order in orders.items() if order[::-1] != tuple(range(len(order)))
    }
    changes = diagnosis.changes_of(module, reordered)
    lines = diagnosis.operation_lines(changes)
    if others := len(orders) - len(changes):
        lines.append(f"# {counted(others, 'operation')} with dimensions in their default order")
    return changes, lines, path
