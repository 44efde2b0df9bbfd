"""Commands for HLO programs: import, collect labels, advise layouts."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from typer import Argument, Option, Typer

from xlarank.cli import console, options
from xlarank.cli.console import finish, list_lines, say, show_rows, write_json
from xlarank.data.errors import counted
from xlarank.data.hardware import DEFAULT_CHIP

if TYPE_CHECKING:
    from xlarank.pipelines.programs.advise.advice import Advice
    from xlarank.pipelines.programs.advise.diagnosis import Diagnosis

app = Typer()
#: Display names of statuses of configurations (`Advice.compiled`), if others.
_STATUS: Final = {"ok": "compiled", "known": "duplicates of known programs"}
#: Maximum number of operations and copies shown in a table; --json lists all.
_SHOWN: Final = 10

_Chip = Annotated[
    str, Option(help="tpu-v3, tpu-v4, tpu-v5e, tpu-v6e (estimated), cpu or device (measured here).")
]
_Jobs = Annotated[int, Option(min=1, help="Number of configurations compiled at a time.")]


@app.command()
def import_hlo(
    files: Annotated[
        list[Path], Argument(help="HLO (binary or text), StableHLO, TpuGraphs protobufs, folders.")
    ],
    out: Annotated[Path, Option(help="Data root to write to; graphs go into its npz/.")],
    target: options.Target = None,
    collection: Annotated[
        str | None, Option("--collection", "-c", help="Default: layout:own:default, tile:own.")
    ] = None,
) -> None:
    """Convert HLO programs or TpuGraphs protobufs to graph files in TpuGraphs format."""
    from xlarank.pipelines.import_hlo import import_hlo as run

    graphs, left_out, broken = run(files, out, target=target, collection=collection)
    show_rows(
        {
            "graph": graph["graph"],
            "collection": graph["collection"],
            ">nodes": f"{graph['nodes']:,}",
            ">edges": f"{graph['edges']:,}",
            ">configurable": f"{graph['configurable']:,}",
            ">configurations": f"{graph['configs']:,}",
            "labels": "yes" if graph["labelled"] else "-",
        }
        for graph in graphs
    )
    for graph in graphs:
        list_lines(f"note ({graph['graph']})", list(graph["notes"]))
        if graph["configurable"]:
            console.current_run.keep(graph["path"])
    list_lines("left out", left_out)
    if graphs:
        say(f"wrote {counted(len(graphs), 'graph')} below {out}")
    finish(broken)


@app.command()
def collect(
    program: Annotated[str, Option(help="HLO file, or module:function.")],
    out: Annotated[Path, Option(help="Data root to write to; graphs go below its npz/.")],
    target: _Chip = DEFAULT_CHIP,
    configs: Annotated[int, Option(min=1, help="Configurations, the default included.")] = 64,
    minutes: Annotated[float, Option(min=0, help="Most minutes of measuring.")] = 10.0,
    jobs: _Jobs = 1,
    seed: options.Seed = 0,
) -> None:
    """Label layouts: estimated by the TPU compiler (no TPU needed) or measured on this machine."""
    from xlarank.pipelines.programs.collect import collect as run
    from xlarank.pipelines.programs.kinds import error_of_labels

    path, manifest, is_new = run(
        program, out, target=target, configs=configs, minutes=minutes, jobs=jobs, seed=seed
    )
    console.current_run.keep(out)
    statuses = Counter(record["status"] for record in manifest["configurations"])
    counts = ", ".join(f"{count} {status}" for status, count in statuses.items())
    done = "wrote" if is_new else "there already:"
    say(f"{done} {path} ({counts}); labels are {manifest['source']}")
    tried = statuses.total()
    if tried < configs:
        say(f"{tried} of {counted(configs, 'configuration')}: no others of this program differ")
    if error := error_of_labels(manifest):
        say(error)
    if manifest.get("loops_counted_once"):
        say("a loop's number of runs is not known; its body was counted once")


@app.command()
def advise(
    program: Annotated[str, Argument(help="HLO file, or module:function.")],
    target: _Chip = DEFAULT_CHIP,
    budget: Annotated[int, Option(min=1, help="Number of compilations; 1: diagnosis only.")] = 20,
    measure: Annotated[
        bool, Option("--measure", help="Run as written and as advised in turn; keep gains.")
    ] = False,
    out: Annotated[Path, Option(help="Folder for the advice and the edited module.")] = options.WORK
    / "advice",
    minutes: Annotated[float, Option(min=0, help="Stop after this many minutes.")] = 60.0,
    jobs: _Jobs = 1,
    json_file: options.Json = None,
) -> None:
    """Show the copies that layouts force, and search for faster layouts (no TPU needed)."""
    from xlarank.pipelines.programs.advise.advice import advise as run

    advice = run(
        program, target=target, budget=budget, measure=measure, out=out, minutes=minutes, jobs=jobs
    )
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
    variants = [("compiler's default", "", advice.default_ns)]
    if advice.code_ns is not None:
        variants.append(("code to paste", inputs, advice.code_ns))
    laid_out = f"{inputs}, {counted(len(advice.changes), 'operation')}"
    variants.append(("edited module", laid_out, advice.module_ns))
    if advice.is_worthwhile and advice.net_text:
        say(advice.net_text)
    show_rows(
        {
            advice.labels: name,
            "layouts set": laid_out,
            ">ms": f"{ns / 1e6:.4f}",
            ">times as fast": f"{advice.default_ns / ns:.3f}",
        }
        for name, laid_out, ns in variants
    )
    if advice.measured:
        say(advice.measured["summary"])
    if not advice.is_worthwhile:
        do = "leave the layouts to the compiler"
        say(f"{advice.speedup:.3f}: nothing worth doing (less than 2 %); {do}")
        return
    show_rows(
        {
            "lay out": leaf.kind,
            "name": leaf.name,
            "shape": leaf.shape,
            "minor to major now": _order(leaf.before),
            "then": _order(leaf.minor_to_major),
        }
        for leaf in (*advice.inputs, *advice.outputs)
    )
    if before := advice.diagnosis.moved_cycles:
        after = advice.diagnosis_after.moved_cycles
        say(f"copies forced by layouts: {before:,} cycles before, {after:,} after")
    for line in advice.lines:
        say(line)
    if advice.changes:
        say("only the edited module lays out operations: write these constraints into the source")
    say("measure before you keep a layout: docs/reference/programs.md")


def _show_diagnosis(diagnosis: Diagnosis) -> None:
    costs = diagnosis.operations[:_SHOWN]
    if costs:
        say(f"{diagnosis.cycles:,} estimated cycles, the {len(costs)} slowest operations:")
    show_rows(
        {
            "operation": cost["name"],
            ">cycles": f"{cost['cycles']:,}",
            ">share": f"{cost['cycles'] / diagnosis.cycles:.1%}",
            "shape": cost["shape"],
            "source": Path(cost["source"]).name,
            "from": cost["origin"],
        }
        for cost in costs
    )
    say(diagnosis.summary)
    show_rows(
        {
            "copy": copy["name"],
            ">cycles": f"{copy['cycles']:,}",
            ">share": f"{copy['cycles'] / diagnosis.cycles:.1%}",
            "shape": copy["shape"],
            "from layout": _order(copy["before"]),
            "to layout": _order(copy["after"]),
            "of": copy["kind"],
            "name": copy["tensor"],
            "source": Path(copy["source"]).name,
        }
        for copy in diagnosis.copies[:_SHOWN]
    )


def _order(dimensions: tuple[int, ...]) -> str:
    return ",".join(map(str, dimensions))
