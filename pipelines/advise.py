"""Search faster layouts for a program, compiled by the TPU compiler without a TPU."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from xlarank.data.collection import choose
from xlarank.data.errors import CompilerError
from xlarank.data.files import atomic_write, write_json
from xlarank.data.hlo.candidates import (
    Candidates,
    Codes,
    Score,
    breed,
    candidate_rows,
    evolve,
    random_configurations,
)
from xlarank.data.hlo.compiler.constrain import constrain, instructions, layouts_of
from xlarank.data.hlo.compiler.outcome import Outcome, Status
from xlarank.data.hlo.compiler.session import Compiler
from xlarank.data.hlo.compiler.targets import target_of
from xlarank.data.workspace import Workspace
from xlarank.models.pretrained import pretrained_model
from xlarank.models.trained import TrainedModel, model_of
from xlarank.pipelines.programs.jax_lines import jax_lines, major_to_minor, shape_text
from xlarank.pipelines.programs.sources import Program, compiled, load_program, model_score
from xlarank.pipelines.support.progress import Progress, Silent
from xlarank.pipelines.support.workspace_collections import trained_collections

#: Configurations compiled before the next are chosen: fewer learn more from each, more use several processes.
BATCH: Final = 4
#: The fastest configurations so far, from which the genetic search breeds.
_PARENTS: Final = 8
#: Limit on compilations: this multiple of the time of the compiler's own choice, but at least so many seconds.
_LIMIT_FACTOR: Final = 4.0
_LEAST_LIMIT: Final = 10.0


@dataclass(frozen=True)
class Change:
    """One layout to set.

    Attributes:
        node: its number in the graph.
        name, opcode, shape: of the operation in the program before layout assignment.
        source: where the program's author wrote it, as far as the module says.
        minor_to_major: TpuGraphs' and XLA's order, the dimension along the lanes first.
        major_to_minor: JAX's order, the reverse.
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
class Verified:
    """One configuration that was compiled: its estimate in ns (0: it failed) and how many layouts it sets."""

    estimate_ns: int
    layouts: int
    status: str


@dataclass(frozen=True)
class Advice:
    """What was found.

    Attributes:
        program, target, versions: what was compiled by what.
        ranked_by: collection of the model that ordered the candidates, or None.
        default_ns, best_ns: estimates by the compiler, not measurements; best is never above default.
        verified: everything compiled, in order; the compiler's own choice is the first.
        changes: what the best one sets; empty when nothing beats the compiler's own choice.
        lines: for JAX programs, the calls to put in.
        configuration: its rows by node, as in ``node_config_feat``.
        files: what was written.
    """

    program: str
    target: str
    versions: dict[str, str]
    ranked_by: str | None
    default_ns: int
    best_ns: int
    verified: list[Verified]
    changes: list[Change]
    lines: list[str]
    configuration: dict[str, list[int]]
    files: list[str]

    @property
    def speedup(self) -> float:
        """Estimate of the compiler's own choice over that of the best; at least 1."""
        return self.default_ns / self.best_ns

    def as_json(self) -> dict[str, Any]:
        value = asdict(self) | {"speedup": self.speedup, "labels": f"estimated by the compiler for {self.target}"}
        for change, plain in zip(self.changes, value["changes"], strict=True):
            plain["major_to_minor"] = list(change.major_to_minor)
        return value


@dataclass(frozen=True)
class AdviceSettings:
    """How to search.

    Attributes:
        target: a TPU, as ``tpu-v4``.
        budget: compilations, the compiler's own choice included.
        per_node: candidate layouts of a node, the default among them.
        jobs: configurations compiled at a time.
        limit: seconds that one configuration may compile.
    """

    target: str = "tpu-v4"
    budget: int = 60
    seed: int = 0
    per_node: int = 8
    jobs: int = 1
    limit: float = 120.0


def advise(
    program: str,
    settings: AdviceSettings,
    *,
    out: Path | None = None,
    workspace: Workspace | None = None,
    collection: str | None = None,
    shipped: bool = False,
    progress: Progress | None = None,
) -> Advice:
    """Search layouts for a file of HLO or ``module:function`` within a budget of compilations.

    The compiler's own choice is compiled first and stands unless something beats it. Half of the others are bred
    from the fastest so far; the other half are random, or, where there is a model, the best of a genetic search by
    its scores. The model is the one that `layout_model` finds in ``workspace`` (``collection`` names another), else
    with ``shipped`` the one that comes with xlarank. With ``out``, the advice, the configuration and the edited
    module are written there.
    Raises `CompilerError` where the compiler is missing or its own choice does not compile.
    """
    target, budget = settings.target, settings.budget
    chip = target_of(target)
    if not chip.estimated:
        raise CompilerError(f"{target} has no estimates", expected="a TPU", do="use collect to measure on the CPU")
    if budget < 1:
        raise CompilerError(f"a budget of {budget} compilations", expected="at least 1")
    model = layout_model(workspace, collection) or (pretrained_model() if shipped else None)
    with Compiler(chip, jobs=settings.jobs, limit=settings.limit) as compiler:
        loaded = load_program(program, compiler)
        rng = np.random.default_rng(settings.seed)
        candidates = candidate_rows(loaded.graph, rng, per_node=settings.per_node)
        search = LayoutSearch(compiler, loaded, candidates, rng)
        score = None if model is None else model_score(loaded.graph, candidates, model)
        search.run(budget, score, progress or Silent())
        versions = compiler.versions
    best = search.best
    rows = candidates.expand(search.codes[best][None])[0]
    layouts = layouts_of(loaded.module, loaded.graph.configurable, rows)
    operations = [instruction for _, instruction in instructions(loaded.module)]
    changes = [
        Change(node, one.name, one.opcode, shape_text(one.shape), one.metadata.op_name, given.output)
        for node, given in layouts.items()
        for one in (operations[node],)
    ]
    position = loaded.graph.configurable.tolist().index
    advice = Advice(
        program=loaded.name,
        target=target,
        versions=versions,
        ranked_by=None if model is None else model.card.collection,
        default_ns=chip.nanoseconds(search.outcomes[0].estimate.cycles),
        best_ns=chip.nanoseconds(search.outcomes[best].estimate.cycles),
        verified=[
            Verified(chip.nanoseconds(one.estimate.cycles), int((code > 0).sum()), str(one.status))
            for code, one in zip(search.codes, search.outcomes, strict=True)
        ],
        changes=changes,
        lines=jax_lines([(operations[change.node], change.minor_to_major) for change in changes], loaded.written),
        configuration={str(change.node): rows[position(change.node)].tolist() for change in changes},
        files=[],
    )
    if out is not None:
        edited = constrain(loaded.module, layouts)
        path = out / f"{loaded.name}.advised.pb"
        with atomic_write(path) as partial:
            partial.write_bytes(edited.SerializeToString())
        advice.files.extend([str(path), str(out / f"{loaded.name}.advice.json")])
        write_json(out / f"{loaded.name}.advice.json", advice.as_json())
    return advice


class LayoutSearch:
    """Compiles proposed configurations until a budget is spent.

    Attributes:
        codes, outcomes: everything compiled, the compiler's own choice first.
    """

    def __init__(
        self, compiler: Compiler, program: Program, candidates: Candidates, rng: np.random.Generator
    ) -> None:
        self.compiler, self.program, self.candidates, self.rng = compiler, program, candidates, rng
        self.codes: Codes = np.zeros((0, candidates.nodes), np.int32)
        self.outcomes: list[Outcome] = []

    @property
    def best(self) -> int:
        """The fastest by the estimate; of equals the one that sets fewest layouts, then the first."""
        return int(np.lexsort([(self.codes > 0).sum(axis=1), self._costs()])[0])

    def run(self, budget: int, score: Score | None, progress: Progress) -> None:
        """Compile up to ``budget`` configurations; ``score`` is a ranker's, lower is faster.

        Raises `CompilerError` when not even the compiler's own choice compiles or has an estimate.
        """
        progress.begin(f"compiling {self.program.name} for {self.compiler.target.name}", budget)
        try:
            self._compile(np.zeros((1, self.candidates.nodes), np.int32), progress)
            default = self.outcomes[0]
            if default.status is not Status.OK or not default.estimate.cycles:
                raise CompilerError(
                    f"the compiler's own choice has no estimate ({default.message or 'no operation has cycles'})",
                    expected="a program that compiles within the limit",
                    do="check the program, or give it more seconds",
                )
            proposals = first_proposals(self.candidates, score, budget, self.rng)
            while len(self.codes) < budget:
                count = min(BATCH, budget - len(self.codes))
                codes = next_batch(self.candidates, proposals, self.codes, self._costs(), count, self.rng)
                if not len(codes):
                    break
                self._compile(codes, progress)
        finally:
            progress.end()

    def _compile(self, codes: Codes, progress: Progress) -> None:
        found: dict[int, Outcome] = {}
        for at, outcome in compiled(self.compiler, self.program, self.candidates, codes, limit=self._limit()):
            found[at] = outcome
            progress.step(outcome.message[:60])
        self.codes = np.concatenate([self.codes, codes])
        self.outcomes += [found[at] for at in range(len(codes))]

    def _limit(self) -> float | None:
        """Seconds for one compilation: a much slower one makes much more code, and a slower program with it."""
        return max(_LEAST_LIMIT, _LIMIT_FACTOR * self.outcomes[0].seconds) if self.outcomes else None

    def _costs(self) -> NDArray[np.float64]:
        """``(configs,)`` estimated cycles, infinite for what failed."""
        return np.array([one.estimate.cycles if one.status is Status.OK else np.inf for one in self.outcomes])


def first_proposals(candidates: Candidates, score: Score | None, count: int, rng: np.random.Generator) -> Codes:
    """``(configs, nodes)`` the compiler's choice, then the best by ``score``, or random ones without a score."""
    if score is None:
        return random_configurations(candidates, count, rng)
    return evolve(candidates, score, count, rng)


def next_batch(
    candidates: Candidates,
    proposals: Codes,
    tried: Codes,
    cost: NDArray[np.float64],
    count: int,
    rng: np.random.Generator,
) -> Codes:
    """``(configs, nodes)`` up to ``count`` new ones: half of them the next proposals, half bred from the fastest.

    ``cost`` is that of ``tried``, lower is faster. There are fewer where the candidates allow no more.
    """
    known = {code.tobytes() for code in tried}
    fresh = proposals[[code.tobytes() not in known for code in proposals]][: (count + 1) // 2]
    parents = tried[np.argsort(cost, kind="stable")[:_PARENTS]]
    bred = breed(candidates, parents, count - len(fresh), rng, known=np.concatenate([tried, fresh]))
    return np.concatenate([fresh, bred])


def layout_model(workspace: Workspace | None, collection: str | None) -> TrainedModel | None:
    """Return the model of ``collection``, or else one trained on labels of TPUs, estimated or measured, or None.
    Raises `xlarank.data.errors.ModelError` when the one asked for is missing.
    """
    known = [] if workspace is None else trained_collections(workspace)
    if workspace is not None and collection is not None:
        (chosen,) = choose([collection], known, where=f"the models of {workspace.root}")
        return model_of(workspace, chosen)
    for source in ("estimate", "xla", "nlp"):
        for one in known:
            if workspace is not None and one.kind == "layout" and one.parts[1].endswith(source):
                return model_of(workspace, one)
    return None
