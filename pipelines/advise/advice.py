"""Diagnose a program and search faster layouts for it, by the TPU compiler without a TPU or by measuring."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from xlarank.data.errors import CompilerError
from xlarank.data.files import atomic_write, write_json
from xlarank.data.graph import LayoutGraph, read_graph
from xlarank.data.hlo.compiler.constrain import (
    compiled_entry_layouts,
    constrain,
    entry_modes,
    layouts_of,
    mode_of,
)  # fmt: skip
from xlarank.data.hlo.compiler.cycles import COUNTING
from xlarank.data.hlo.compiler.functions import Pasted
from xlarank.data.hlo.compiler.measuring import TOLERANCE
from xlarank.data.hlo.compiler.outcome import Journal, Outcome, Status
from xlarank.data.hlo.compiler.session import Compiler
from xlarank.data.hlo.compiler.targets import DEFAULT_TARGET, target_of
from xlarank.data.hlo.messages import Message
from xlarank.data.hlo.reading import graph_name, module_of, node_names, read_program
from xlarank.pipelines.advise.diagnosis import Diagnosis, diagnose, picture
from xlarank.pipelines.advise.lines import (
    Change,
    Code,
    EntryChange,
    changes_of,
    entry_lines,
    major_to_minor,
    operation_lines,
    pasted_code,
)  # fmt: skip
from xlarank.pipelines.advise.search import LayoutSearch, NoCodeError
from xlarank.pipelines.advise.space import Space
from xlarank.pipelines.programs.sources import Program, digest_of, load_program, program_hash
from xlarank.pipelines.programs.timing import time_programs
from xlarank.pipelines.support.progress import Progress, Silent

#: Seconds for comparing outputs by default, and if requested.
_CHECK, _REQUESTED_CHECK = 60.0, 900.0
#: Smallest speedup that is worth changing code.
_WORTH = 1.02
#: Minimum number of rounds of the program as written and as advised.
_ROUNDS = 96


@dataclass(frozen=True)
class Measurement:
    """Speedup of the program as advised, run in turn with the program as written, with its 95 % interval.

    Attributes:
        expected: the speedup by the estimate, or in the search of a target that is measured.
    """

    device: str
    expected: float
    speedup: float
    low: float
    high: float

    @property
    def words(self) -> str:
        interval = f"{self.low:.3f} to {self.high:.3f}, 95 %"
        words = f"measured on {self.device}: {self.speedup:.3f} times as fast ({interval}); expected "
        words += f"{self.expected:.3f}, measured {self.speedup / self.expected - 1:+.1%}"
        if self.low > 1:
            return words
        return f"{words}; {'slower' if self.high < 1 else 'cannot be told from 1.00'}, nothing is kept"


@dataclass(frozen=True)
class Advice:
    """Diagnosis of a program and its best layouts.

    Attributes:
        replaced: operations without code in this compiler, and what was compiled instead; empty if none.
        labels: says whether times are estimates by the compiler or measurements of the search.
        default_ns, best_ns, speedup: best is that of a function with ``lines`` pasted, of a file that of the module
            written, never above default.
        module_ns: of the module written, which has layouts that no code reaches, too.
        compiled: number of configurations by `xlarank.data.hlo.compiler.outcome.Status`, the compiler's default
            included; ``known`` became a program that had an estimate already.
        diagnosis, diagnosis_after: where the cycles go, as written and by the advice.
        inputs, outputs: how they should lie, where that is otherwise than now.
        difference: largest relative difference of outputs on this CPU, or why there is none.
        lines: for JAX programs, the calls to put in; empty if they gain nothing.
        configuration: rows of the changes by node, as in ``node_config_feat``.
        measured: None unless requested and there is something to measure.
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
    def worth(self) -> bool:
        """Whether the speedup justifies changing code."""
        return (self.measured or self).speedup >= _WORTH

    @property
    def conversion_words(self) -> str:
        """Inputs to lay out anew in every call; empty if none."""
        names = [change.name for change in self.inputs if change.kind == "input" and not change.looped]
        spared = sum(copy.cycles for copy in self.diagnosis.relayouts if copy.tensor in names)
        note = (
            f"; converted on the TPU, that costs about the {spared:,} cycles of the copies spared" if spared else ""
        )
        return f"not counted: laying out {', '.join(names)} anew in each call{note}" if names else ""

    @property
    def difference_words(self) -> str:
        if not isinstance(self.difference, float):
            return "outputs were not compared" + (f" on this CPU: {self.difference}" if self.difference else "")
        words = f"on this CPU outputs differ by {self.difference:.2g} of their largest value"
        more = self.difference > TOLERANCE
        return f"warning: {words}: more than a different order of additions explains" if more else words


@dataclass(frozen=True)
class AdviceSettings:
    """How to search.

    Attributes:
        budget: compilations, the compiler's default included; 1 is the diagnosis alone.
        per_node: candidate layouts of a node, the default among them.
        limit: seconds that one configuration may compile.
        check: compare outputs on this CPU; None: if that takes at most a minute.
        measure: run the program as written and as advised; always done if the target is measured.
    """

    target: str = DEFAULT_TARGET
    budget: int = 20
    minutes: float = 60.0
    seed: int = 0
    per_node: int = 8
    jobs: int = 1
    limit: float = 120.0
    check: bool | None = None
    measure: bool = False


def advise(program: str, settings: AdviceSettings, *, out: Path, progress: Progress | None = None) -> Advice:
    """Diagnose a file of HLO or ``module:function``, and search layouts within a budget of compilations.

    The compiler's default is compiled first and stands unless something beats it. Then the compiler chooses the
    layouts of inputs and outputs, and the rest of the budget goes to a search around the best. The advice, a
    picture of the diagnosis, the edited module and a journal to resume from are written below ``out``.
    Raises `CompilerError` if the compiler is missing or its default does not compile.
    """
    chip = target_of(settings.target)
    if settings.budget < 1:
        raise CompilerError(f"a budget of {settings.budget} compilations", expected="at least 1")
    replaced = ""
    with ExitStack() as stack:
        compiler = stack.enter_context(Compiler(chip, jobs=settings.jobs, limit=settings.limit))
        chip, device = compiler.target, None if chip.estimated else compiler
        if settings.measure and chip.estimated:
            device = stack.enter_context(Compiler(target_of("device")))
            if device.target.name != chip.name:
                got = f"there is no {chip.name} to measure on: the device is {device.target.name}"
                raise CompilerError(got, do="leave out `measure`, or pass `target=device`")
        try:
            search = _search(compiler, program, settings, out, progress or Silent(), False)
        except NoCodeError as error:
            replaced = f"take_along_axis was compiled as a product with one_hot, write it so: {error.got}"
            search = _search(compiler, program, settings, out, progress or Silent(), True)
        loaded, space = search.space.program, search.space
        best = _best(compiler, search)
        leaves, default = (space.inputs, space.outputs), search.outcomes[0].estimate.cycles
        inputs, outputs = (
            [EntryChange(**vars(leaf), before=old, minor_to_major=new, major_to_minor=major_to_minor(new),
                         looped=at in looped)
             for at, (leaf, old, new) in enumerate(zip(*side, strict=True)) if old != new]
            for looped, *side in zip(
                (space.ties.keys(), space.ties.values()), leaves,
                *map(compiled_entry_layouts, (search.text(0), best.text)), strict=True)
        )  # fmt: skip
        rows = search.space.rows(best.code)
        changes = changes_of(loaded.module, layouts_of(loaded.module, loaded.graph.configurable, rows))
        code = Code(best.cycles, best.text, operation_lines(changes), changes)
        if (function := any(loaded.lowered.leaves)) and best.module is not None:
            written = Pasted(program, (), (), bool(replaced))
            entry = replace(written, lines=entry_lines(inputs, outputs))
            code = pasted_code(compiler, entry, changes, Code(default, search.text(0), [], changes))
            if code.pasted and not chip.estimated:
                code = code._replace(cycles=best.cycles)
        measured = None
        if device and best.module is not None:
            pair = [written, code.pasted] if code.pasted else [loaded.module, best.module]
            expected = default / (code.cycles if code.pasted else best.cycles)
            measured = _measure(device, loaded.module, pair, expected, settings.minutes)
            if measured.low <= 1:
                best, inputs, outputs = _Best(search.codes[0], search.text(0), default), [], []
                code, rows = Code(default, best.text, [], []), search.space.rows(best.code)
        versions = compiler.versions
    files = [out / f"{loaded.name}.{name}" for name in ("diagnosis.svg", "advice.json", "advised.pb")]
    advice = Advice(
        program=loaded.name, target=chip.name, versions=versions, replaced=replaced,
        labels=f"estimated by the compiler for {chip.name}" if chip.estimated else chip.labels,
        default_ns=chip.nanoseconds(default), function=function, best_ns=chip.nanoseconds(code.cycles),
        speedup=chip.nanoseconds(default) / chip.nanoseconds(code.cycles), module_ns=chip.nanoseconds(best.cycles),
        compiled=_statuses(search.outcomes), stopped=search.stopped, diagnosis=diagnose(search.text(0), *leaves),
        diagnosis_after=diagnose(code.text, *leaves), inputs=inputs, outputs=outputs, changes=code.changes,
        difference=_difference(loaded.module, code.pasted or best.module, search.space.ties, settings.check),
        lines=code.lines, measured=measured, files=[str(file) for file in files[: 2 if best.module is None else 3]],
        configuration={str(node): row.tolist() for node, row in zip(loaded.graph.configurable, rows, strict=True)
                       if (row >= 0).any()},
    )  # fmt: skip
    with atomic_write(files[0]) as partial:
        partial.write_text(picture(advice.diagnosis, f"{advice.program}, {advice.target}"), encoding="utf-8")
    if best.module is None:
        files[2].unlink(missing_ok=True)  # of an earlier advice
    else:
        with atomic_write(files[2]) as partial:
            partial.write_bytes(best.module.SerializeToString())
    write_json(files[1], asdict(advice))
    return advice


def _search(
    compiler: Compiler, program: str, settings: AdviceSettings, out: Path, progress: Progress, one_hot: bool
) -> LayoutSearch:
    loaded = load_program(program, compiler, one_hot=one_hot)
    rng = np.random.default_rng(settings.seed)
    with open_journal(out, loaded, compiler) as journal:
        search = LayoutSearch(compiler, Space.of(loaded, rng, settings.per_node), journal, rng, progress)
        search.run(settings.budget, settings.minutes)
    return search


def open_journal(out: Path, program: Program, compiler: Compiler) -> Journal:
    """Open the outcomes of earlier runs; they depend on the program and the compiler alone."""
    made_by = {"target": compiler.target.name, "versions": compiler.versions}
    settings = {"counting": COUNTING, "module": program_hash(program.module), **made_by}
    if modes := entry_modes(program.module):
        settings["entry"] = modes
    return Journal(out / f".{program.name}.{digest_of(settings)}.journal", settings)


class _Best(NamedTuple):
    """The best configuration and its compiled program; without a module it is the compiler's default."""

    code: NDArray[np.int32]
    text: str
    cycles: int
    module: Message | None = None


def _best(compiler: Compiler, search: LayoutSearch) -> _Best:
    """Return the best of a search with its entry layouts written out; the default if that module is no faster."""
    plain = _Best(search.codes[0], search.text(0), search.outcomes[0].estimate.cycles)
    if not search.best:
        return plain
    code = search.codes[search.best]
    inputs, outputs = (
        [mode_of(after) if after != before else own for own, before, after in zip(*three, strict=True)]
        for three in zip(
            search.space.sides[0], *map(compiled_entry_layouts, (plain.text, search.text(search.best))), strict=True
        )
    )
    module = search.space.module(code, (inputs, outputs))
    ((_, outcome),) = compiler.compile([module], keep=True)
    # a target that is measured runs it against the default later
    estimate = (outcome if compiler.target.estimated else search.outcomes[search.best]).estimate
    if outcome.status is not Status.OK or estimate.cycles >= plain.cycles:
        return plain
    text = outcome.text or search.texts[outcome.fingerprint]
    return _Best(code, text, estimate.cycles, module)


def _measure(
    device: Compiler, plain: Message, pair: Sequence[Message | Pasted], expected: float, minutes: float
) -> Measurement:
    """Run a program as written and as advised; raises `CompilerError` if the second fails on the device."""
    programs = dict(zip(("written", "advised"), pair, strict=True))
    timings = time_programs(device, plain, programs, minutes=minutes, least=_ROUNDS)
    if problem := timings.problems.get("advised"):
        raise CompilerError(f"the program as advised does not run ({problem})", do="leave the layouts as they are")
    return Measurement(device.target.name, expected, *timings.speedup("written", "advised"))


def _statuses(outcomes: Sequence[Outcome]) -> dict[str, int]:
    programs = {outcome.fingerprint for outcome in outcomes if outcome.status is Status.OK}
    counts = Counter(str(outcome.status) for outcome in outcomes)
    known = counts[Status.OK] - len(programs)
    return dict(counts) | {"ok": len(programs)} | ({"known": known} if known else {})


def _difference(
    plain: Message, edited: Message | Pasted | None, ties: Mapping[int, int], check: bool | None
) -> float | str | None:
    """Return the largest relative difference of outputs of both on this CPU, or why it is not known."""
    if edited is None or check is False:
        return None
    with Compiler(target_of("cpu")) as compiler:
        return compiler.compare(plain, edited, _REQUESTED_CHECK if check else _CHECK, ties)


@dataclass(frozen=True)
class Applied:
    """One configuration of a graph file as changes and lines; ``file`` is the edited module."""

    changes: list[Change]
    lines: list[str]
    file: str


def apply_configuration(program: Path, configuration: str, out: Path) -> Applied:
    """Turn ``FILE.npz:N`` into lines for the program it was made from, and write the edited module below ``out``.

    Nothing is compiled. Raises `HloError` if the graph is not the program's, `CompilerError` if it has no such
    configuration.
    """
    name, _, number = configuration.rpartition(":")
    if not name or not number.isdigit():
        raise CompilerError(f"{configuration!r} names no configuration", expected="FILE.npz:NUMBER")
    graph = read_graph(Path(name), "layout")
    assert isinstance(graph, LayoutGraph)
    node_names(program, graph)
    if int(number) >= graph.configs:
        raise CompilerError(f"{name} has no configuration {number}", expected=f"0 to {graph.configs - 1}")
    rows = graph.table.rows[graph.table.codes[int(number)]].astype(np.int8)
    module = module_of(read_program(program))
    layouts = layouts_of(module, graph.configurable, rows)
    changes = changes_of(module, layouts)
    path = out / f"{graph_name(program)}.{Path(name).stem}.{number}.pb"
    with atomic_write(path) as partial:
        partial.write_bytes(constrain(module, layouts).SerializeToString())
    return Applied(changes, operation_lines(changes), str(path))
