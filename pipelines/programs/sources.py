"""Programs with settable layouts: loading, compilation, graph files of their configurations and manifests."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xlarank.data.errors import CompilerError, XlarankError
from xlarank.data.files import read_text
from xlarank.data.graph import LayoutGraph
from xlarank.data.hlo.compiler.constrain import constrain, layouts_of
from xlarank.data.hlo.compiler.outcome import Journal, Outcome, Status
from xlarank.data.hlo.compiler.session import Compiler
from xlarank.data.hlo.compiler.xla import Lowered
from xlarank.data.hlo.messages import HloModuleProto, Message, ModuleTuningData
from xlarank.data.hlo.reading import graph_name, module_graph, module_of, read_program
from xlarank.data.writing import write_graph
from xlarank.pipelines.programs.candidates import Candidates, candidate_rows, tied_candidates


@dataclass(frozen=True, kw_only=True)
class SearchSettings:
    """Search of configurations; raises `XlarankError` for an unknown search or tie.

    Attributes:
        search: ``random``, or ``evolve``: a genetic search around the compiler's default.
        configs: number of configurations, including the compiler's default.
        tie: ``rule``: tied nodes share their layouts, as in Google's files; ``none``: nodes are independent.
        per_node: maximum number of candidate rows of a node that is not tied, including the compiler's default.
    """

    search: str = "random"
    configs: int = 64
    seed: int = 0
    tie: str = "rule"
    per_node: int = 8

    def __post_init__(self) -> None:
        for name, choices in (("search", ("random", "evolve")), ("tie", ("rule", "none"))):
            if (value := getattr(self, name)) not in choices:
                raise XlarankError(f"the {name} is {value!r}", expected=" or ".join(choices))
        if self.configs < 1:
            raise XlarankError(f"{self.configs} configurations were asked for", expected="at least 1")

    def candidates(self, graph: LayoutGraph, rng: np.random.Generator, min_elements: int = 1024) -> Candidates:
        """Return the candidate rows of a graph's nodes; smaller outputs are left to the compiler."""
        if self.tie == "rule":
            return tied_candidates(graph, min_elements=min_elements)
        return candidate_rows(graph, rng, per_node=self.per_node, min_elements=min_elements)


@dataclass(frozen=True, eq=False)
class Program:
    """A program before layout assignment; node ``i`` of its graph is the i-th instruction of its module."""

    name: str
    lowered: Lowered

    @cached_property
    def module(self) -> Message:
        return HloModuleProto.FromString(self.lowered.module)

    @cached_property
    def graph(self) -> LayoutGraph:
        return module_graph(self.module, Path(f"{self.name}.pb"))

    def constrained(self, rows: NDArray[np.int8]) -> Message:
        """Return the module with one configuration ``rows (nodes, 18)`` set."""
        return constrain(self.module, layouts_of(self.module, self.graph.configurable, rows))


def load_program(program: str, compiler: Compiler, name: str | None = None, *, one_hot: bool = False) -> Program:
    """Load a file of HLO, or ``module:function``, in its state before layout assignment.

    A ``ModuleTuningData`` of TpuGraphs is in that state already. Raises `xlarank.data.errors.HloError` if the file
    is not a program, `CompilerError` if the compiler rejects it.
    """
    path = Path(program)
    if ":" in program and not path.exists():
        name = name or program.replace(":", ".").rpartition(".")[2]
        lowered = compiler.lower(function=program, one_hot=one_hot)
    else:
        message = read_program(path)
        name, module = name or graph_name(path), module_of(message)
        is_tuning = isinstance(message, ModuleTuningData)
        lowered = Lowered(module.SerializeToString()) if is_tuning else compiler.lower(module=module)
        restored = HloModuleProto.FromString(lowered.module)  # the compiler drops aliases and entry modes
        restored.input_output_alias.CopyFrom(module.input_output_alias)
        restored.frontend_attributes.CopyFrom(module.frontend_attributes)
        lowered = replace(lowered, module=restored.SerializeToString())
    if not re.fullmatch(r"[\w][\w.\-]*", name):
        raise CompilerError(f"{name!r} cannot be the name of a file", do="pass `name`")
    return Program(name, lowered)


def compile_new(
    compiler: Compiler, journal: Journal, keys: Sequence[str], module: Callable[[int], Message],
    *, settled: Collection[Status] = tuple(Status), step: Callable[[str], None] = lambda note: None, **options: Any,
) -> list[Outcome]:  # fmt: skip
    """Return the outcomes of configurations, from the journal if their status there is settled, else compiled."""
    stored = {at: journal.outcomes[key] for at, key in enumerate(keys) if key in journal.outcomes}
    outcomes = {at: outcome for at, outcome in stored.items() if outcome.status in settled}
    for outcome in outcomes.values():
        step(outcome.message[:60])
    missing = [at for at in range(len(keys)) if at not in outcomes]
    for number, outcome in compiler.compile((module(at) for at in missing), **options):
        journal.add(keys[missing[number]], outcome)
        outcomes[missing[number]] = outcome
        step(outcome.message[:60])
    return [outcomes[at] for at in range(len(keys))]


def write_configurations(
    path: Path, graph: LayoutGraph, rows: NDArray[np.int8], runtime: NDArray[np.int64]
) -> None:
    """Write a graph file with configurations ``rows (configs, nodes, 18)`` and their runtimes, 0 if unknown."""
    write_graph(
        path, node_feat=graph.node_feat, node_opcode=graph.opcode.astype(np.uint8), edge_index=graph.edges,
        node_splits=graph.splits[None], node_config_ids=graph.configurable,
        node_config_feat=rows.astype(np.float32), config_runtime=runtime,
    )  # fmt: skip


def configuration_key(rows: NDArray[np.int8]) -> str:
    """Return a configuration ``rows (nodes, 18)`` as a short text of its layouts."""
    nodes = np.flatnonzero((rows >= 0).any(axis=1))
    return " ".join(f"{node}:{''.join('-' if entry < 0 else str(entry) for entry in rows[node])}" for node in nodes)


def program_hash(module: Message) -> str:
    """Return a digest of a program without the metadata of its instructions, such as source lines."""
    digest = hashlib.sha256()
    for computation in map(deepcopy, module.computations):
        for instruction in computation.instructions:
            instruction.ClearField("metadata")
        digest.update(computation.SerializeToString(deterministic=True))
    return digest.hexdigest()


@dataclass(frozen=True)
class Collected:
    """Labels of a program; ``path``: the npz file or, for tiles, the manifest; ``fresh``: False if it existed."""

    path: Path
    manifest: dict[str, Any]
    fresh: bool

    @property
    def statuses(self) -> dict[str, int]:
        """Number of configurations, or kernels, by status."""
        key = "kernels" if "kernels" in self.manifest else "configurations"
        return dict(Counter(entry["status"] for entry in self.manifest[key]))

    @property
    def files(self) -> dict[str, int]:
        """Number of tiles of each kernel written for this program, by file."""
        kernels = self.manifest.get("kernels", ())
        return {kernel["file"]: kernel["tiles"] for kernel in kernels if kernel["status"] == "written"}


def label_settings(program: Program, compiler: Compiler, settings: Any) -> dict[str, Any]:
    """Return all that labels depend on, for the manifest; ``settings`` is a dataclass."""
    identity = {"program": program.name, "module": program_hash(program.module), **asdict(settings)}
    return identity | {"versions": dict(compiler.versions)}


def digest_of(settings: Mapping[str, Any]) -> str:
    """Return a short digest of settings, for the names of their files."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:8]


def existing_manifest(path: Path, settings: dict[str, Any]) -> dict[str, Any] | None:
    """Return the manifest at ``path``, if it exists; raises `CompilerError` if it has other settings."""
    if not path.exists():
        return None
    try:
        manifest: dict[str, Any] = json.loads(read_text(path))
    except (OSError, ValueError) as error:
        raise CompilerError(f"{path} cannot be read ({error})", do="remove it, or pass another `out`") from error
    if changed := [key for key in settings if manifest.get(key) != settings[key]]:
        got = f"{path} was collected with another {' and '.join(changed)}"
        do = "remove it, or pass another `out` or `name`"
        raise CompilerError(got, expected="the same settings and compiler, or no such file", do=do)
    return manifest
