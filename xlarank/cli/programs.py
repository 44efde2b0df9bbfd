"""Commands for HLO programs: import, propose, collect labels, advise layouts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from typer import Option, Typer

from xlarank.cli import console, options
from xlarank.cli.console import finish, list_lines, progress, say, show_rows, write_json
from xlarank.data.errors import counted
from xlarank.data.workspace import Workspace

if TYPE_CHECKING:
    from xlarank.pipelines.programs.advise.advice import Advice
    from xlarank.pipelines.programs.advise.diagnosis import Change, Cost, Diagnosis
    from xlarank.pipelines.programs.propose import Proposal
    from xlarank.pipelines.programs.sources import Collected

app = Typer()
#: Display names of statuses of a search (`advise.search.LayoutSearch.statuses`), if others.
_STATUS: Final = {
    "ok": "compiled",
    "screened": "screened out",
    "known": "duplicates of known programs",
}
#: Maximum number of operations and copies shown in a table; --json lists all.
_SHOWN: Final = 10

_Jobs = Annotated[int, Option(min=1, max=64)]
_PerNode = Annotated[int, Option(min=2)]
#: `compiler.chips.DEFAULT_CHIP`, repeated because that module imports numpy.
_DEFAULT_TARGET: Final = "tpu-v3"


@app.command()
def import_hlo(
    files: list[Path],
    out: Annotated[Path, Option()],
    collection: Annotated[str | None, Option("--collection", "-c")] = None,
    split: str = "test",
    name: str | None = None,
    json_file: options.Json = None,
) -> None:
    """Convert HLO programs or TpuGraphs protobufs to graph files in TpuGraphs format.

    Args:
        files: HLO (binary or text), StableHLO, TpuGraphs protobufs, folders.
        out: Data root to write to; graphs go into its npz/.
        collection: Default: layout:own:default, tile:own.
        name: Name of the graph, with a single file. Default: the file's.
    """
    from xlarank.pipelines.import_hlo import import_hlo as run

    report = run(files, out, collection=collection, split=split, name=name, progress=progress)
    show_rows(
        {
            "graph": graph["graph"],
            "collection": graph["collection"],
            ">nodes": f"{graph['nodes']:,}",
            ">edges": f"{graph['edges']:,}",
            ">configurable": f"{graph['configurable']:,}",
            ">configurations": f"{graph['configs']:,}",
            "labels": "yes" if graph["labelled"] else "-",
            ">s": f"{graph['seconds']:.2f}",
        }
        for graph in report.graphs
    )
    for graph in report.graphs:
        list_lines(f"note ({graph['graph']})", list(graph["notes"]))
        if graph["configurable"]:
            console.current_run.keep(graph["path"])
    list_lines("left out", report.left_out)
    if report.graphs:
        say(f"wrote {counted(len(report.graphs), 'graph')} below {out}")
    write_json(json_file, report)
    finish(report.broken)


@app.command()
def propose(
    graph: Path,
    out: options.GraphOut,
    search: str = "random",
    configs: options.Positive = 1000,
    workspace: options.Work = options.WORK,
    collection: options.ModelOf = None,
    blocks: options.Blocks = None,
    tie: str = "rule",
    per_node: _PerNode = 8,
    min_elements: options.NonNegative = 1024,
    generations: options.Positive = 12,
    check: options.NonNegative = 0,
    seed: options.Seed = 0,
    json_file: options.Json = None,
) -> None:
    """Propose layout configurations for a program and write them as a graph file.

    Args:
        graph: A layout graph's npz file, or an HLO program.
        search: random, or evolve: a genetic search by a model's scores.
        collection: Collection of the model.
        min_elements: Leave outputs with fewer elements to the compiler.
        generations: Generations of evolve.
        check: Compile the first CHECK of them (HLO program, TPU v3, no TPU).
    """
    from xlarank.pipelines.programs.propose import propose as run
    from xlarank.pipelines.programs.sources import SearchSettings

    settings = SearchSettings(search, configs, seed, tie, per_node, generations)
    work = Workspace(workspace)
    proposal = run(
        graph,
        out,
        settings,
        workspace=work,
        collection=collection,
        min_elements=min_elements,
        check=check,
        progress=progress,
    )
    low, high = proposal.choices
    choice = f"{proposal.free} of {proposal.configurable} configurable nodes have a choice"
    groups = f"{counted(proposal.groups, 'group')} of {low} to {high} rows each"
    say(f"{proposal.graph}: {choice}, in {groups} (10^{proposal.space:.1f} configurations)")
    if proposal.guided_by is not None:
        say(f"{proposal.guided_by} ranks {proposal.default_place:,} of them ahead of the default")
        say(f"it learned from {proposal.learned_from}, and may be wrong about this program")
    if proposal.configs < configs:
        say(f"only {proposal.configs:,} distinct configurations were found")
    number = counted(proposal.configs, "configuration")
    say(f"wrote {proposal.out}: {number} ({proposal.search}), {proposal.seconds:.1f} s")
    if proposal.estimates:
        _show_check(proposal)
    elif proposal.guided_by is not None:
        compile_first = "" if graph.suffix == ".npz" else "compile the first: --check 3; "
        say(f"{compile_first}search with the compiler: advise")
    console.current_run.keep(out)
    write_json(json_file, proposal)


def _show_check(proposal: Proposal) -> None:
    default = proposal.estimates[0]
    show_rows(
        {
            "configuration": number or "0, the compiler's default",
            ">estimated cycles": f"{cycles:,}" if cycles else "does not compile",
            ">times as fast": f"{default / cycles:.3f}" if default and cycles else "-",
        }
        for number, cycles in proposal.estimates.items()
    )
    if not proposal.is_check_passed:
        say("none of them is faster than the compiler's default; search with the compiler: advise")


@app.command()
def collect(
    program: Annotated[str, Option()],
    out: Annotated[Path, Option()],
    target: str = _DEFAULT_TARGET,
    search: str = "random",
    configs: options.Positive = 64,
    tiles: bool = False,
    split: str = "train",
    name: str | None = None,
    jobs: _Jobs = 1,
    limit: Annotated[float, Option(min=1)] = 120.0,
    tie: str = "rule",
    per_node: _PerNode = 8,
    effort: Annotated[float | None, Option(min=-1, max=1)] = None,
    minutes: Annotated[float, Option(min=0)] = 10.0,
    seed: options.Seed = 0,
    json_file: options.Json = None,
) -> None:
    """Label layouts of a program: estimated by the TPU compiler (no TPU needed) or measured on this
    machine.

    Args:
        out: Data root to write to; graphs go below its npz/.
        search: random, or evolve: a genetic search by the labels.
        tiles: Label tiles of each kernel instead of layouts (TPU).
        name: Name of the graph; default: the program's.
        jobs: Number of configurations compiled at a time.
        limit: Maximum seconds to compile or run a configuration (--tiles: mean per compilation).
        effort: XLA's effort; -1: faster, with other labels.
        minutes: Maximum minutes to load and measure programs (cpu, device).
    """
    from xlarank.data.collection import choose_splits
    from xlarank.pipelines.programs.collect import collect as run
    from xlarank.pipelines.programs.collect_tiles import collect_tiles, require_tiles
    from xlarank.pipelines.programs.compiler.chips import chip_named
    from xlarank.pipelines.programs.compiler.session import Compiler
    from xlarank.pipelines.programs.sources import SearchSettings

    chip = chip_named(target)
    choose_splits([split])  # before the compiler starts, which takes seconds
    if tiles:
        require_tiles(chip)
        with Compiler(chip, limit=limit) as compiler:
            labels = collect_tiles(
                program, out, compiler, limit=limit, split=split, name=name, progress=progress
            )
    else:
        settings = SearchSettings(search, configs, seed, tie, per_node)
        with Compiler(chip, jobs=jobs, limit=limit, effort=effort) as compiler:
            labels = run(
                program,
                out,
                compiler,
                settings,
                minutes=minutes,
                split=split,
                name=name,
                progress=progress,
            )
    console.current_run.keep(out)
    _show_labels(labels, tiles, configs)
    write_json(json_file, labels.manifest)


def _show_labels(labels: Collected, tiles: bool, configs: int) -> None:
    """Print what was collected, and how far it can be trusted."""
    counts = ", ".join(f"{count} {status}" for status, count in labels.statuses.items())
    if tiles:
        counts = f"kernels: {counts}"
    status = "wrote" if labels.fresh else "there already:"
    say(f"{status} {labels.path} ({counts}); labels are {labels.manifest['source']}")
    tried = sum(labels.statuses.values())
    if not tiles and tried < configs:
        say(f"{tried} of {counted(configs, 'configuration')}: no others of this program differ")
    kernels = [f"{file}: {count}" for file, count in labels.files.items()]
    list_lines("kernels, with their tiles", kernels)
    if (tau := labels.manifest.get("retest_tau")) is not None:
        root = max(tau, 0) ** 0.5
        ceiling = f"the ceiling of a ranker's tau is about its square root, {root:.3f}"
        say(f"two halves of the rounds agree with Kendall's tau {tau:.3f}; {ceiling}")
    if labels.manifest.get("loops_counted_once"):
        say("a loop's number of runs is not known; its body was counted once")


@app.command()
def advise(
    program: str,
    target: str = _DEFAULT_TARGET,
    budget: options.Positive = 20,
    minutes: Annotated[float, Option(min=0)] = 60.0,
    out: Path = options.WORK / "advice",
    check: bool | None = None,
    measure: bool = False,
    apply: str | None = None,
    jobs: _Jobs = 1,
    limit: Annotated[float, Option(min=1)] = 120.0,
    per_node: _PerNode = 8,
    seed: options.Seed = 0,
    json_file: options.Json = None,
) -> None:
    """Show the copies that layouts force and search for faster layouts (TPUs: by the compiler, no
    TPU needed).

    Args:
        budget: Number of compilations; 1: diagnosis only.
        minutes: Stop after this many minutes.
        out: Folder for the advice and the edited module.
        check: Compare outputs on this CPU. Default: if within a minute.
        measure: Run as written and as advised in turn; keep gains.
        apply: FILE.npz:N: print and write configuration N instead.
        jobs: Number of configurations compiled at a time.
        limit: Maximum seconds to compile one configuration.
        per_node: Candidate layouts of a node, the default included.
    """
    from xlarank.pipelines.programs.advise.advice import AdviceSettings, apply_configuration
    from xlarank.pipelines.programs.advise.advice import advise as run
    from xlarank.pipelines.programs.compiler.chips import chip_named
    from xlarank.pipelines.programs.compiler.session import Compiler

    if apply is not None:
        changes, lines, module = apply_configuration(Path(program), apply, out)
        _show_changes(changes)
        for line in lines:
            say(line)
        say(f"wrote {module}")
        write_json(json_file, {"changes": changes, "lines": lines, "file": str(module)})
        return
    settings = AdviceSettings(budget, minutes, seed, per_node, check, measure)
    with Compiler(chip_named(target), jobs=jobs, limit=limit) as compiler:
        advice = run(program, compiler, settings, out=out, progress=progress)
    if advice.replaced:
        say(advice.replaced)
    _show_diagnosis(advice.diagnosis)
    if budget > 1:
        _show_advice(advice)
    else:
        console.current_run.keep(program, "--target", target)
    list_lines("wrote", advice.files)
    write_json(json_file, advice)


def _show_advice(advice: Advice) -> None:
    counts = [f"{count} {_STATUS.get(name, name)}" for name, count in advice.compiled.items()]
    say(f"{advice.program} for {advice.target}: {', '.join(counts)}; {advice.stopped}")
    inputs = f"{counted(len(advice.inputs), 'input')}, {counted(len(advice.outputs), 'output')}"
    reached = sum(bool(change.code) for change in advice.changes)
    variants = [("compiler's default", "", advice.default_ns)]
    if advice.function:
        laid_out = f"{inputs}, {counted(reached, 'operation')}" if advice.lines else "nothing gains"
        variants.append(("code to paste", laid_out, advice.best_ns))
    laid_out = f"{inputs}, {counted(len(advice.changes), 'operation')}"
    variants.append(("edited module", laid_out, advice.module_ns))
    if advice.is_worthwhile and advice.net_text:
        say(advice.net_text)
    source = "measured in the search"
    if "estimated" in advice.labels:
        source = "estimated by the compiler"
    show_rows(
        {
            source: name,
            "layouts set": laid_out,
            ">ms": f"{ns / 1e6:.4f}",
            ">times as fast": f"{advice.default_ns / ns:.3f}",
        }
        for name, laid_out, ns in variants
    )
    if advice.function and reached < len(advice.changes):
        unreached = counted(len(advice.changes) - reached, "operation")
        say(f"{unreached} cannot be laid out by code: no value of the source is known to be theirs")
    if advice.measured:
        say(advice.measured.text)
    if not advice.is_worthwhile:
        do = "leave the layouts to the compiler"
        say(f"{advice.speedup:.3f}: nothing worth doing (less than 2 %); {do}")
    else:
        show_rows(
            {
                "lay out": leaf.kind,
                "name": leaf.name,
                "shape": leaf.shape,
                "minor to major now": _order(leaf.before),
                "then": _order(leaf.minor_to_major),
                "major to minor": _order(leaf.major_to_minor),
            }
            for leaf in (*advice.inputs, *advice.outputs)
        )
        _show_changes(advice.changes)
        before = advice.diagnosis.moved_cycles
        after = advice.diagnosis_after.moved_cycles
        say(f"copies forced by layouts: {before:,} cycles before, {after:,} after")
        say(advice.difference_text)
        for line in advice.lines:
            say(line)
        say("measure before you keep a layout: docs/advise.md")


def _show_diagnosis(diagnosis: Diagnosis) -> None:
    costs = diagnosis.operations[:_SHOWN]
    say(f"{diagnosis.cycles:,} estimated cycles, the {len(costs)} slowest operations:")
    rows = []
    for cost in costs:
        place = {"source": _line(cost.source), "from": cost.origin}
        rows.append({"~operation": cost.name} | _cost_cells(cost) | place)
    show_rows(rows)
    say(diagnosis.summary)
    rows = []
    for copy in diagnosis.relayouts[:_SHOWN]:
        orders = {"from layout": _order(copy.before), "to layout": _order(copy.after)}
        place = {"of": copy.kind, "~name": copy.tensor, "source": _line(copy.source)}
        rows.append({"~copy": copy.name} | _cost_cells(copy) | orders | place)
    show_rows(rows)


def _cost_cells(cost: Cost) -> dict[str, str]:
    return {">cycles": f"{cost.cycles:,}", ">share": f"{cost.share:.1%}", "shape": cost.shape}


def _show_changes(changes: list[Change]) -> None:
    no_code = "-" if any(change.code for change in changes) else ""
    show_rows(
        {
            "operation": change.name,
            "opcode": change.opcode,
            "shape": change.shape,
            "minor to major": _order(change.minor_to_major),
            "major to minor": _order(change.major_to_minor),
            "from": change.source,
            "source": f"{change.file}:{change.line}" if change.file else "",
            "expression": change.code or no_code,
        }
        for change in changes
    )


def _line(source: str) -> str:
    """Return a file and line without folders, to fit a table."""
    return source.rpartition("/")[2]


def _order(dimensions: tuple[int, ...]) -> str:
    return ",".join(map(str, dimensions))
