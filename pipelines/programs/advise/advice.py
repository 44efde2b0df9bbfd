"""Diagnosis of a program and search for faster layouts, by the TPU compiler without a TPU or by
measuring.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from xlarank.data.errors import CompilerError
from xlarank.data.files import atomic_write, write_json
from xlarank.data.graph import LayoutGraph, read_graph
from xlarank.data.hlo.messages import Message
from xlarank.data.hlo.reading import graph_name, module_of, node_names, read_program
from xlarank.pipelines.programs.advise import diagnosis
from xlarank.pipelines.programs.advise.diagnosis import Change, Diagnosis, EntryChange, Version
from xlarank.pipelines.programs.advise.search import LayoutSearch, NoCodeError, Space
from xlarank.pipelines.programs.compiler import constrain as layouts
from xlarank.pipelines.programs.compiler.cycles import COUNTING
from xlarank.pipelines.programs.compiler.functions import Pasted
from xlarank.pipelines.programs.compiler.measuring import TOLERANCE
from xlarank.pipelines.programs.compiler.outcome import Journal, Status
from xlarank.pipelines.programs.compiler.session import Compiler
from xlarank.pipelines.programs.compiler.targets import DEFAULT_TARGET, target_of
from xlarank.pipelines.programs.sources import (
    Program,
    digest_of,
    load_program,
    program_hash,
    time_programs,
)
from xlarank.pipelines.support.progress import Progress

#: Speedup that justifies changing code.
WORTHWHILE = 1.02


@dataclass(frozen=True)
class Measurement:
    """Speedup of the advised program with its 95 % interval; ``expected``: as estimated or timed by
    the search.
    """

    device: str
    expected: float
    speedup: float
    low: float
    high: float

    @property
    def text(self) -> str:
        interval = f"{self.low:.3f} to {self.high:.3f}, 95 %"
        text = (
            f"measured on {self.device}: {self.speedup:.3f} times as fast ({interval}); expected "
        )
        text += f"{self.expected:.3f}, measured {self.speedup / self.expected - 1:+.1%}"
        if self.low > 1:
            return text
        return (
            f"{text}; {'slower' if self.high < 1 else 'cannot be told from 1.00'}, nothing is kept"
        )


@dataclass(frozen=True)
class Advice:
    """Diagnosis of a program and its best layouts.

    Attributes:
        replaced: note on the operations that were replaced because this compiler has no code for
            them, or empty.
        best_ns, module_ns: times with the pasted code and of the edited module, which also sets
            layouts that no code can set; equal if the program is a file.
        compiled: number of configurations by status, as in `LayoutSearch.statuses`.
        difference: largest relative difference of outputs on this CPU, or why it is unknown; None
            if not compared.
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
    inputs: list[EntryChange]
    outputs: list[EntryChange]
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
    def converted(self) -> list[str]:
        """Inputs that must be laid out anew in every call, as the search does not count."""
        return [
            change.name for change in self.inputs if change.kind == "input" and not change.looped
        ]

    @property
    def net_speedup(self) -> float:
        """Speedup if converting inputs costs as much as the copies that it spares."""
        copies = self.diagnosis.relayouts
        cycles = sum(copy.cycles for copy in copies if copy.tensor in self.converted)
        return 1 / (1 / (self.measured or self).speedup + cycles / max(self.diagnosis.cycles, 1))

    @property
    def net_text(self) -> str:
        """Note on the net gain; empty if nothing must be converted in every call."""
        if not self.converted:
            return ""
        names = ", ".join(self.converted)
        text = f"net gain {self.net_speedup:.3f} with {names} laid out anew in each call"
        if self.net_speedup >= WORTHWHILE:
            return text
        return f"{text}: nothing worth doing, unless it is made in this layout"

    @property
    def difference_text(self) -> str:
        if not isinstance(self.difference, float):
            return "outputs were not compared" + (
                f" on this CPU: {self.difference}" if self.difference else ""
            )
        text = f"on this CPU outputs differ by {self.difference:.2g} of their largest value"
        if self.difference <= TOLERANCE:
            return text
        return f"warning: {text}: more than a different order of additions explains"


@dataclass(frozen=True)
class AdviceSettings:
    """Settings of `advise` (see its options); a target that is measured implies ``measure``."""

    target: str = DEFAULT_TARGET
    budget: int = 20
    minutes: float = 60.0
    seed: int = 0
    per_node: int = 8
    jobs: int = 1
    limit: float = 120.0
    check: bool | None = None
    measure: bool = False


def advise(
    program: str, settings: AdviceSettings, *, out: Path, progress: Progress | None = None
) -> Advice:
    """Diagnose a file of HLO or ``module:function``, and search layouts within a budget of
    compilations.

    The compiler's default is compiled first and stands unless another configuration beats it
    (`LayoutSearch`). The advice, a picture of the diagnosis, any edited module and a journal to
    resume from are written below ``out``. Raises `CompilerError` if the compiler is missing or its
    default does not compile.
    """
    chip = target_of(settings.target)
    if settings.budget < 1:
        raise CompilerError(f"a budget of {settings.budget} compilations", expected="at least 1")
    with ExitStack() as stack:
        compiler = stack.enter_context(Compiler(chip, jobs=settings.jobs, limit=settings.limit))
        chip, device = compiler.target, None if chip.estimated else compiler
        if settings.measure and chip.estimated:
            device = stack.enter_context(Compiler(target_of("device")))
            if device.target.name != chip.name:
                got = f"there is no {chip.name} to measure on: the device is {device.target.name}"
                raise CompilerError(got, do="leave out `measure`, or pass `target=device`")
        search, replaced = _search(compiler, program, settings, out, progress)
        space = search.space
        loaded = search.space.program
        default = Version(search.outcomes[0].estimate.cycles, search.text(0), search.codes[0])
        edited = advised = _edited(compiler, search, default)
        inputs, outputs = _entry_changes(space, default, edited)
        is_function = any(loaded.lowered.leaves)
        measured = None
        if edited.module is not None:
            orders = layouts.layouts_of(
                loaded.module, loaded.graph.configurable, space.rows(edited.code)
            )
            changes = diagnosis.changes_of(loaded.module, orders)
            advised = edited._replace(lines=diagnosis.operation_lines(changes), changes=changes)
            written = Pasted(program, (), (), bool(replaced))
            if is_function:
                entry = replace(written, lines=diagnosis.entry_lines(inputs, outputs))
                advised = diagnosis.pasted_code(compiler, entry, default._replace(changes=changes))
                if advised.pasted and not chip.estimated:
                    advised = advised._replace(cycles=edited.cycles)  # pasted code was not timed
            if device:
                pair = (
                    (written, advised.pasted) if advised.pasted else (loaded.module, edited.module)
                )
                expected = default.cycles / (advised if advised.pasted else edited).cycles
                measured = _measure(device, loaded.module, pair, expected, settings.minutes)
                if measured.low <= 1:
                    edited = default
                    advised = default
                    inputs = []
                    outputs = []
    difference = None
    if edited.module is not None and settings.check is not False:
        with Compiler(target_of("cpu")) as cpu:
            seconds = 900.0 if settings.check else 60.0  # longer if requested
            difference = cpu.compare(
                loaded.module, advised.pasted or edited.module, seconds, space.ties
            )
    files = [
        out / f"{loaded.name}.{name}" for name in ("diagnosis.svg", "advice.json", "advised.pb")
    ]
    before, after = (
        diagnosis.diagnose(text, space.inputs, space.outputs)
        for text in (default.text, advised.text)
    )
    default_ns, best_ns, module_ns = (
        chip.nanoseconds(version.cycles) for version in (default, advised, edited)
    )
    advice = Advice(
        program=loaded.name,
        target=chip.name,
        versions=compiler.versions,
        replaced=replaced,
        labels=f"estimated by the compiler for {chip.name}" if chip.estimated else chip.labels,
        function=is_function,
        default_ns=default_ns,
        best_ns=best_ns,
        speedup=default_ns / best_ns,
        module_ns=module_ns,
        compiled=search.statuses,
        stopped=search.stopped,
        diagnosis=before,
        diagnosis_after=after,
        inputs=inputs,
        outputs=outputs,
        changes=[*advised.changes],
        lines=[*advised.lines],
        difference=difference,
        measured=measured,
        files=[str(file) for file in files[: 2 if edited.module is None else 3]],
        configuration={
            str(node): row.tolist()
            for node, row in zip(loaded.graph.configurable, space.rows(edited.code), strict=True)
            if (row >= 0).any()
        },
    )
    with atomic_write(files[0]) as partial:
        partial.write_text(
            diagnosis.picture(before, f"{advice.program}, {advice.target}"), encoding="utf-8"
        )
    if edited.module is None:
        files[2].unlink(missing_ok=True)  # left by an earlier run
    else:
        with atomic_write(files[2]) as partial:
            partial.write_bytes(edited.module.SerializeToString())
    write_json(files[1], asdict(advice))
    return advice


def _search(
    compiler: Compiler, program: str, settings: AdviceSettings, out: Path, progress: Progress | None
) -> tuple[LayoutSearch, str]:
    """Search layouts of a program; return the search, and a note on operations replaced for lack of
    code.
    """
    replaced = ""
    while True:
        loaded = load_program(program, compiler, one_hot=bool(replaced))
        rng = np.random.default_rng(settings.seed)
        with open_journal(out, loaded, compiler) as journal:
            search = LayoutSearch(compiler, Space.of(loaded, rng, settings.per_node), journal, rng)
            try:
                search.run(settings.budget, settings.minutes, progress)
                return search, replaced
            except NoCodeError as error:
                if replaced:
                    raise
                replaced = (
                    "take_along_axis was compiled as a product with one_hot, write it so: "
                    f"{error.got}"
                )


def open_journal(out: Path, program: Program, compiler: Compiler) -> Journal:
    """Open the journal that all runs share: outcomes depend only on the program and the
    compiler.
    """
    made_by = {"target": compiler.target.name, "versions": compiler.versions}
    settings = {"counting": COUNTING, "module": program_hash(program.module), **made_by}
    if modes := layouts.entry_modes(program.module):
        settings["entry"] = modes
    return Journal(out / f".{program.name}.{digest_of(settings)}.journal", settings)


def _edited(compiler: Compiler, search: LayoutSearch, default: Version) -> Version:
    """Return the best configuration with explicit entry layouts, or the default if that module is
    no faster.
    """
    if not search.best:
        return default
    code = search.codes[search.best]
    texts = (default.text, search.text(search.best))
    inputs, outputs = (
        [layouts.mode_of(new) if new != old else mode for mode, old, new in zip(*side, strict=True)]
        for side in zip(
            search.space.entry_modes[0], *map(layouts.compiled_entry_layouts, texts), strict=True
        )
    )
    module = search.space.module(code, (inputs, outputs))
    ((_, outcome),) = compiler.compile([module], keep=True)
    # on measured targets, `_measure` compares the module with the default later
    estimate = (outcome if compiler.target.estimated else search.outcomes[search.best]).estimate
    if outcome.status is not Status.OK or estimate.cycles >= default.cycles:
        return default
    return Version(estimate.cycles, outcome.text or search.texts[outcome.fingerprint], code, module)


def _entry_changes(space: Space, default: Version, edited: Version) -> list[list[EntryChange]]:
    """Return the changes of inputs, and of outputs."""
    texts = (
        layouts.compiled_entry_layouts(default.text),
        layouts.compiled_entry_layouts(edited.text),
    )
    sides = zip(
        ([*space.ties], [*space.ties.values()]), (space.inputs, space.outputs), *texts, strict=True
    )
    return [
        [
            EntryChange(
                **vars(leaf),
                before=old,
                minor_to_major=new,
                major_to_minor=new[::-1],
                looped=at in looped,
            )
            for at, (leaf, old, new) in enumerate(zip(leaves, before, after, strict=True))
            if old != new
        ]
        for looped, leaves, before, after in sides
    ]


def _measure(
    device: Compiler,
    plain: Message,
    pair: tuple[Message | Pasted, ...],
    expected: float,
    minutes: float,
) -> Measurement:
    """Run a program as written and as advised; raises `CompilerError` if the advised one fails on
    the device.
    """
    programs = dict(zip(("written", "advised"), pair, strict=True))
    timings = time_programs(device, plain, programs, minutes=minutes, min_rounds=96)
    if problem := timings.problems.get("advised"):
        raise CompilerError(
            f"the program as advised does not run ({problem})", do="leave the layouts as they are"
        )
    return Measurement(device.target.name, expected, *timings.speedup("written", "advised"))


def apply_configuration(
    program: Path, configuration: str, out: Path
) -> tuple[list[Change], list[str], Path]:
    """Convert ``FILE.npz:N`` to changes and lines of code, and write the edited module below
    ``out``.

    Raises `HloError` if the graph is not the program's, `CompilerError` if the file has no such
    configuration.
    """
    name, _, number = configuration.rpartition(":")
    if not name or not number.isdigit():
        raise CompilerError(f"{configuration!r} names no configuration", expected="FILE.npz:NUMBER")
    graph = read_graph(Path(name), "layout")
    assert isinstance(graph, LayoutGraph)
    node_names(program, graph)  # raises for the graph of another program
    if int(number) >= graph.configs:
        raise CompilerError(
            f"{name} has no configuration {number}", expected=f"0 to {graph.configs - 1}"
        )
    module = module_of(read_program(program))
    orders = layouts.layouts_of(
        module, graph.configurable, graph.table.rows[graph.table.codes[int(number)]]
    )
    changes = diagnosis.changes_of(module, orders)
    path = out / f"{graph_name(program)}.{Path(name).stem}.{number}.pb"
    with atomic_write(path) as partial:
        partial.write_bytes(layouts.constrain(module, orders).SerializeToString())
    return changes, diagnosis.operation_lines(changes), path
