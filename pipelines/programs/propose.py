"""Candidate configurations of a program, and the compiler's estimates of some of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from xlarank.data.collection import Collection
from xlarank.data.errors import CompilerError, ParameterError, naming
from xlarank.data.graph import LayoutGraph, read_graph
from xlarank.data.hardware import DEFAULT_CHIP, TPUGRAPHS, TPUS, WORDS, require_hardware
from xlarank.data.hlo.encoding import shape_text
from xlarank.data.hlo.messages import Message, instructions
from xlarank.data.hlo.reading import module_graph, module_of, read_program, require_unoptimised
from xlarank.pipelines.programs.candidates import random_configurations, tied_candidates
from xlarank.pipelines.programs.compiler.chips import chip_named
from xlarank.pipelines.programs.compiler.session import Compiler
from xlarank.pipelines.programs.compiler.xla import Program
from xlarank.pipelines.programs.kinds import is_function, is_module
from xlarank.pipelines.programs.sources import load_program
from xlarank.pipelines.support.progress import steps_of


def propose(
    program: str | Path,
    target: str | None = None,
    collection: str | None = None,
    *,
    configs: int = 64,
    seed: int = 0,
) -> tuple[LayoutGraph, Message | None]:
    """Return random configurations of a program, and its module unless it is a graph file.

    The compiler's default comes first; nodes are tied as in Google's random collections.
    ``program`` is an HLO file, ``module:function`` (lowered for the hardware or, if that is a GPU,
    for the CPU), or a layout graph's npz file. The hardware is ``target``, else that of
    ``collection``, else that of the graph file. Raises `ParameterError` if none of them names it,
    and `GraphFileError` if no layout can be chosen.
    """
    hardware = target or (Collection.parse(collection).hardware if collection else "")
    if hardware:
        require_hardware(hardware)
    elif is_module(Path(program)):
        got = f"{program} does not say its hardware"
        raise ParameterError(got, expected=WORDS, do="name it by `target`")
    graph, module = _read(program, hardware)
    graph = replace(graph, target=hardware or graph.target)
    candidates = tied_candidates(graph)
    with naming(graph.name):
        codes = random_configurations(candidates, configs, np.random.default_rng(seed))
    return candidates.graph(graph, codes), module


def configurable_nodes(program: str | Path) -> list[dict[str, Any]]:
    """Return the configurable nodes of a program in the order of ``node_config_ids``.

    Functions are lowered for `DEFAULT_CHIP`; layouts are minor to major, if any.
    """
    graph, module = _read(program, DEFAULT_CHIP)
    assert module is not None
    parts = [instruction for _, instruction in instructions(module)]
    return [
        {
            "node": node,
            "name": parts[node].name,
            "opcode": parts[node].opcode,
            "shape": shape_text(parts[node].shape),
            "layout": ",".join(map(str, parts[node].shape.layout.minor_to_major)),
            "source": parts[node].metadata.op_name,
        }
        for node in graph.configurable.tolist()
    ]


def _read(program: str | Path, target: str) -> tuple[LayoutGraph, Message | None]:
    """Return the graph of a program and its module, if it has one."""
    if is_function(str(program)):
        chip = DEFAULT_CHIP if target == TPUGRAPHS else target
        with Compiler(chip if chip in TPUS else "cpu") as compiler:
            loaded = load_program(str(program), compiler)
        return loaded.graph, loaded.module
    path = Path(program)
    if path.suffix == ".npz":
        return cast(LayoutGraph, read_graph(path)), None  # tiles are no program: `is_program`
    module = module_of(read_program(path))
    require_unoptimised(module, path.name)
    return module_graph(module, path), module


def estimates(
    graph: LayoutGraph, module: Message | None, configurations: Sequence[int], target: str
) -> dict[int, int | None]:
    """Return the compiler's estimated nanoseconds of configurations, None if one does not compile.

    ``graph`` and ``module`` are of `propose`. Raises `CompilerError` for a target without
    estimates, and without a module.
    """
    chip = chip_named(target)
    if not chip.estimated:
        got = f"nothing is estimated for {target}"
        raise CompilerError(got, expected="a TPU", do="measure configurations with collect")
    if module is None:
        got = f"{graph.name} is a graph, and `check` compiles a program"
        raise CompilerError(got, expected="an HLO program or module:function")
    program = Program(module.SerializeToString(), name=graph.name)
    table = graph.table
    modules = (program.constrained(table.rows[table.codes[at]]) for at in configurations)
    found: dict[int, int | None] = dict.fromkeys(configurations)
    title = f"compiling {program.name} for {target}"
    with Compiler(target) as compiler, steps_of(title, len(configurations)) as step:
        for at, outcome in compiler.compile(modules):
            step("")
            if outcome.ok:
                found[configurations[at]] = chip.nanoseconds(outcome.cycles)
    return found
