"""Diagnose a program and search faster layouts for it, by the TPU compiler without a TPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xlarank.data.errors import CompilerError
from xlarank.data.files import atomic_write, write_json
from xlarank.data.graph import LayoutGraph, read_graph
from xlarank.data.hlo.compiler.constrain import (
    DEFAULT,
    compiled_entry_layouts,
    constrain,
    layouts_of,
    mode_of,
)
from xlarank.data.hlo.compiler.cycles import COUNTING
from xlarank.data.hlo.compiler.measuring import TOLERANCE
from xlarank.data.hlo.compiler.outcome import Journal, Outcome, Status
from xlarank.data.hlo.compiler.session import Compiler
from xlarank.data.hlo.compiler.targets import DEFAULT_TARGET, target_of
from xlarank.data.hlo.messages import Message, instructions
from xlarank.data.hlo.parsing import module_of, read_program
from xlarank.data.hlo.reading import node_names
from xlarank.pipelines.advise.diagnosis import Diagnosis, diagnose, picture
from xlarank.pipelines.advise.entry_lines import EntryChange, entry_lines
from xlarank.pipelines.advise.search import LayoutSearch
from xlarank.pipelines.advise.space import Space
from xlarank.pipelines.programs.jax_lines import jax_lines, major_to_minor, shape_text
from xlarank.pipelines.programs.leaves import Leaf
from xlarank.pipelines.programs.sources import Program, digest_of, load_program, program_hash
from xlarank.pipelines.support.progress import Progress, Silent

#: Seconds within which outputs are compared unless that was asked for, and where it was.
_CHECK, _ASKED_CHECK = 60.0, 900.0


@dataclass(frozen=True)
class Change:
    """One layout to set.

    Attributes:
        name, opcode, shape: of the operation in the program before layout assignment.
        source: where the program's author wrote it, as far as the module says.
        minor_to_major: TpuGraphs' and XLA's order, the dimension along the lanes first.
    """

    node: int
    name: str
    opcode: str
    shape: str
    source: str
    minor_to_major: tuple[int, ...]

    @property
    def major_to_minor(self) -> tuple[int, ...]:
        return major_to_minor(self.minor_to_major)


@dataclass(frozen=True)
class Advice:
    """What was found.

    Attributes:
        program, target, versions: what was compiled by what.
        default_ns, best_ns: estimates by the compiler, not measurements; best is that of the module written, never
            above default.
        compiled: how many configurations ended how (`xlarank.data.hlo.compiler.outcome.Status`; ``known`` became a
            program that had an estimate already), the compiler's default included.
        diagnosis, diagnosis_after: where the cycles go, as written and by the advice.
        inputs, outputs: how they should lie, where that is otherwise than now.
        difference: largest relative difference of outputs on this CPU, or why there is none.
        lines: for JAX programs, the calls to put in.
        configuration: rows of the changes by node, as in ``node_config_feat``.
    """

    program: str
    target: str
    versions: dict[str, str]
    default_ns: int
    best_ns: int
    compiled: dict[str, int]
    stopped: str
    diagnosis: Diagnosis
    diagnosis_after: Diagnosis
    inputs: list[EntryChange] = field(default_factory=list)
    outputs: list[EntryChange] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    difference: float | str | None = None
    lines: list[str] = field(default_factory=list)
    configuration: dict[str, list[int]] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)

    @property
    def speedup(self) -> float:
        """Estimate of the compiler's default over that of the best; at least 1."""
        return self.default_ns / self.best_ns

    @property
    def differs(self) -> bool:
        """Whether outputs differ by more than a different order of additions explains."""
        return isinstance(self.difference, float) and self.difference > TOLERANCE

    def as_json(self) -> dict[str, Any]:
        named = "program target versions default_ns best_ns speedup compiled stopped difference lines configuration"
        value = {key: getattr(self, key) for key in (*named.split(), "files")}
        value["labels"] = f"estimated by the compiler for {self.target}"
        value["changes"] = [asdict(one) | {"major_to_minor": one.major_to_minor} for one in self.changes]
        for key in ("inputs", "outputs"):
            value[key] = [one.as_json() for one in getattr(self, key)]
        return value | {
            "diagnosis": self.diagnosis.as_json(),
            "diagnosis_after": {"cycles": self.diagnosis_after.cycles, "moved_cycles": self.diagnosis_after.moved},
        }


@dataclass(frozen=True)
class AdviceSettings:
    """How to search.

    Attributes:
        budget: compilations, the compiler's default included; 1 is the diagnosis alone.
        per_node: candidate layouts of a node, the default among them.
        limit: seconds that one configuration may compile.
        check: compare outputs on this CPU; None: where that is done within a minute.
    """

    target: str = DEFAULT_TARGET
    budget: int = 20
    minutes: float = 60.0
    seed: int = 0
    per_node: int = 8
    jobs: int = 1
    limit: float = 120.0
    check: bool | None = None


def advise(program: str, settings: AdviceSettings, *, out: Path, progress: Progress | None = None) -> Advice:
    """Diagnose a file of HLO or ``module:function``, and search layouts within a budget of compilations.

    The compiler's default is compiled first and stands unless something beats it. Then the compiler chooses how
    inputs and outputs lie, and the rest of the budget goes to a search around the best. Outcomes are written below
    ``out`` as they come: the same command goes on where it was. The advice, a picture of the diagnosis and the
    edited module are written there, too.
    Raises `CompilerError` where the compiler is missing or its default does not compile.
    """
    chip = target_of(settings.target)
    if not chip.estimated:
        raise CompilerError(
            f"{chip.name} has no estimates", expected="a TPU", do="use collect to measure on the CPU"
        )
    if settings.budget < 1:
        raise CompilerError(f"a budget of {settings.budget} compilations", expected="at least 1")
    with Compiler(chip, jobs=settings.jobs, limit=settings.limit) as compiler:
        loaded = load_program(program, compiler, fixed=True)
        rng = np.random.default_rng(settings.seed)
        space = Space.of(loaded, rng, settings.per_node)
        with open_journal(out, loaded, compiler) as journal:
            search = LayoutSearch(compiler, space, journal, rng, progress or Silent())
            search.run(settings.budget, settings.minutes)
        space = search.space
        found = _Found.of(compiler, search)
        versions = compiler.versions
    plain = search.text(0)
    leaves = (space.inputs, space.outputs)
    inputs, outputs = _entry_changes(leaves, plain, found.text)
    rows = space.rows(found.code)
    changes, configuration, lines = _changes(loaded.module, loaded.graph, rows, loaded.written)
    advice = Advice(
        program=loaded.name,
        target=chip.name,
        versions=versions,
        default_ns=chip.nanoseconds(search.outcomes[0].estimate.cycles),
        best_ns=chip.nanoseconds(found.cycles),
        compiled=_statuses(search.outcomes),
        stopped=search.stopped,
        diagnosis=diagnose(plain, *leaves),
        diagnosis_after=diagnose(found.text, *leaves),
        inputs=inputs,
        outputs=outputs,
        changes=changes,
        difference=_difference(loaded.module, found, settings) if found.edited else None,
        lines=[*(entry_lines(inputs, outputs) if any(loaded.leaves) else []), *lines],
        configuration=configuration,
    )
    _write(advice, found.module if found.edited else None, out)
    return advice


def open_journal(out: Path, program: Program, compiler: Compiler) -> Journal:
    """Outcomes of earlier runs; they depend on the program and the compiler alone."""
    about = {
        "counting": COUNTING,
        "module": program_hash(program.module),
        "target": compiler.target.name,
        "versions": compiler.versions,
    }
    return Journal(out / f".{program.name}.{digest_of(about)}.journal", about)


@dataclass(frozen=True, eq=False)
class _Found:
    """The best configuration with the entry layouts that the compiler chose written out."""

    code: NDArray[np.int32]
    module: Message
    text: str
    cycles: int
    edited: bool

    @classmethod
    def of(cls, compiler: Compiler, search: LayoutSearch) -> _Found:
        """The best of a search, or the program as it is where the written module does not keep the promise."""
        space, best = search.space, search.best
        plain = cls(
            search.codes[0], space.program.module, search.text(0), search.outcomes[0].estimate.cycles, False
        )
        if not best:
            return plain
        sides = [
            [mode_of(after) if after != before else DEFAULT for before, after in zip(*pair, strict=True)]
            for pair in zip(*map(compiled_entry_layouts, (search.text(0), search.text(best))), strict=True)
        ]
        module = space.module(search.codes[best], (sides[0], sides[1]))
        ((_, outcome),) = compiler.compile([module], keep=True)
        if outcome.status is not Status.OK or outcome.estimate.cycles >= plain.cycles:
            return plain
        text = outcome.text or search.texts[outcome.fingerprint]
        return cls(search.codes[best], module, text, outcome.estimate.cycles, True)


def _entry_changes(
    leaves: tuple[Sequence[Leaf], Sequence[Leaf]], before: str, after: str
) -> tuple[list[EntryChange], list[EntryChange]]:
    """Inputs and outputs that lie differently in two compiled programs."""
    inputs, outputs = (
        [EntryChange(leaf, old, new) for leaf, old, new in zip(*side, strict=True) if old != new]
        for side in zip(leaves, compiled_entry_layouts(before), compiled_entry_layouts(after), strict=True)
    )
    return inputs, outputs


def _changes(
    module: Message, graph: LayoutGraph, rows: NDArray[np.int8], written: frozenset[tuple[int, ...]] | None
) -> tuple[list[Change], dict[str, list[int]], list[str]]:
    """Layouts that rows of configurable nodes set: for people, as rows by node, and as lines for JAX."""
    layouts = layouts_of(module, graph.configurable, rows)
    operations = [instruction for _, instruction in instructions(module)]
    changes = [
        Change(node, one.name, one.opcode, shape_text(one.shape), one.metadata.op_name, given)
        for node, given in layouts.items()
        for one in (operations[node],)
    ]
    position = graph.configurable.tolist().index
    lines = jax_lines([(operations[change.node], change.minor_to_major) for change in changes], written)
    return changes, {str(change.node): rows[position(change.node)].tolist() for change in changes}, lines


def _statuses(outcomes: Sequence[Outcome]) -> dict[str, int]:
    programs = {one.fingerprint for one in outcomes if one.status is Status.OK}
    counts = Counter(str(one.status) for one in outcomes)
    known = counts[Status.OK] - len(programs)
    return dict(counts) | {"ok": len(programs)} | ({"known": known} if known else {})


def _difference(plain: Message, found: _Found, settings: AdviceSettings) -> float | str | None:
    """Largest relative difference of outputs of both modules on this CPU, or why it is not known."""
    if settings.check is False:
        return None
    with Compiler(target_of("cpu")) as compiler:
        return compiler.compare(plain, found.module, _ASKED_CHECK if settings.check else _CHECK)


def _write(advice: Advice, module: Message | None, out: Path) -> None:
    names = [f"{advice.program}.diagnosis.svg", f"{advice.program}.advice.json", f"{advice.program}.advised.pb"]
    advice.files.extend(str(out / name) for name in names[: 3 if module is not None else 2])
    with atomic_write(out / names[0]) as partial:
        partial.write_text(picture(advice.diagnosis, f"{advice.program}, {advice.target}"), encoding="utf-8")
    if module is not None:
        with atomic_write(out / names[2]) as partial:
            partial.write_bytes(module.SerializeToString())
    else:
        (out / names[2]).unlink(missing_ok=True)  # of an earlier advice
    write_json(out / names[1], advice.as_json())


@dataclass(frozen=True)
class Applied:
    """One configuration of a graph file as changes and lines; ``file`` is the edited module."""

    changes: list[Change]
    lines: list[str]
    file: str


def apply_configuration(program: Path, configuration: str, out: Path) -> Applied:
    """Turn ``FILE.npz:N`` into lines for the program it was made from, and write the edited module below ``out``.

    Nothing is compiled. Raises `HloError` where the graph is not that of the program, `CompilerError` where it has
    no such configuration.
    """
    name, _, number = configuration.rpartition(":")
    if not name or not number.isdigit():
        raise CompilerError(f"{configuration!r} names no configuration", expected="FILE.npz:NUMBER")
    graph, module = read_graph(Path(name), "layout"), module_of(read_program(program))
    assert isinstance(graph, LayoutGraph)
    node_names(program, graph)
    if int(number) >= graph.configs:
        raise CompilerError(f"{name} has no configuration {number}", expected=f"0 to {graph.configs - 1}")
    rows = graph.table.rows[graph.table.codes[int(number)]].astype(np.int8)
    changes, _, lines = _changes(module, graph, rows, None)
    edited = constrain(module, layouts_of(module, graph.configurable, rows))
    path = out / f"{program.name.partition('.')[0]}.{Path(name).stem}.{number}.pb"
    with atomic_write(path) as partial:
        partial.write_bytes(edited.SerializeToString())
    return Applied(changes, lines, str(path))
