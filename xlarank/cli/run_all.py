"""Commands for all steps, here or on Kaggle: run-all, demo, package-kaggle."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from typer import Option, Typer

from xlarank.cli import console, options
from xlarank.cli.console import finish, headline, list_lines, progress, say, show_rows, write_json
from xlarank.cli.explaining import report
from xlarank.cli.learning import spread, train, tune
from xlarank.cli.ranking import rank, submit
from xlarank.cli.scoring import evaluate
from xlarank.data.errors import MAX_TRIALS, counted

if TYPE_CHECKING:
    from xlarank.pipelines.run_all import RunAll
    from xlarank.pipelines.training.budget import CollectionPlan

#: Collections of the demo: one of each kind, so that it takes only minutes.
DEMO: Final = ("layout:cpu:random", "tile:cpu")

app = Typer()


@app.command()
def run_all(
    out: options.Out = Path("submission.csv"),
    budget_hours: options.Hours = 12.0,
    budget_ram_gb: options.Ram = 0.0,
    data_root: options.Root = None,
    workspace: options.Work = options.WORK,
    collection: options.Collections = None,
    seeds: options.Seeds = 3,
    trials: Annotated[int, Option(min=0, max=MAX_TRIALS)] = 100,
    jobs: options.Jobs = 0,
    models: Path | None = None,
    blocks: options.Blocks = None,
    seed: options.Seed = 0,
    json_file: options.Json = None,
) -> None:
    """Build, tune, train and submit within a budget of time and memory; rerun to resume.

    Args:
        out: Submission, improved later.
        budget_hours: Time budget in hours.
        budget_ram_gb: Gigabytes of memory; 0: 90 % of the machine's.
        trials: Maximum tuning trials per collection.
        models: Workspace with trained models to use instead of training.
    """
    from xlarank.data.collection import refuse_sample_on_kaggle
    from xlarank.pipelines.run_all import run_all as run
    from xlarank.pipelines.training.budget import RunSettings

    root = options.data_root_of(data_root)
    if data_root is None:
        refuse_sample_on_kaggle([root.path])
    opened = options.workspace_at(workspace)
    settings = RunSettings(
        budget_hours, budget_ram_gb, seeds=seeds, trials=trials, jobs=jobs, models=models, seed=seed
    )
    cores = counted(settings.cores, "core")
    say(f"budget: {settings.hours:g} h, {settings.ram_gb:.1f} GB of memory, {cores}")

    finished = run(
        root,
        opened,
        out,
        settings,
        collections=collection or (),
        progress=progress,
        on_plan=lambda plan: None if models else _show_plan(plan),
    )
    _show_run(finished)
    console.current_run.keep(out)
    result = {
        "out": out,
        "plan": finished.plan,
        "outcomes": [*finished.outcomes.values()],
        "rows": len(finished.cover),
        "broken": finished.broken,
        "seconds": finished.seconds,
        "settings": settings,
    }
    write_json(json_file, result)
    finish(finished.broken)


def _show_plan(plan: list[CollectionPlan]) -> None:
    show_rows(
        {
            "collection": part.collection,
            ">configurations kept": f"{part.max_configs:,}" if part.rows else "-",
            ">rows": f"{part.rows:,}" if part.rows else "-",
            ">min to first model": f"{part.first_seconds / 60:.1f}" if part.rows else "-",
            ">GB memory": f"{part.memory_gb:.1f}" if part.rows else "-",
        }
        for part in plan
    )


def _show_run(run: RunAll) -> None:
    show_rows(
        {
            "collection": outcome.collection,
            "ranked by": outcome.ranked_by,
            ">valid, first model": spread(outcome.valid.get("score")),
            ">trials": outcome.trials or "-",
            ">out of fold": spread(outcome.folds.get("score")),
            ">s": f"{outcome.seconds:.0f}",
        }
        for outcome in run.outcomes.values()
    )
    for outcome in run.outcomes.values():
        list_lines(f"note ({outcome.collection})", outcome.notes)
    rows = counted(len(run.cover), "row")
    say(f"wrote {run.out}: {rows}, checked; {run.seconds / 60:.1f} min")


@app.command()
def package_kaggle(
    out: Path = Path("work/kaggle-dataset"),
    models: Path | None = None,
    blocks: options.Blocks = None,
    wheelhouse: bool = False,
    owner: str = "YOUR-KAGGLE-NAME",
    json_file: options.Json = None,
) -> None:
    """Make the Kaggle dataset for the notebook in kaggle/; needs a git clone.

    Args:
        out: Folder or .zip file to write.
        models: Workspace whose trained models to include.
        wheelhouse: Include packages that Kaggle's image lacks.
        owner: Your Kaggle user name.
    """
    from xlarank.pipelines.package_kaggle import LACKING
    from xlarank.pipelines.package_kaggle import package_kaggle as run

    content, included = run(out, models=models, wheelhouse=wheelhouse, owner=owner)
    size = sum(map(len, content.values()))
    files = counted(len(content), "file")
    say(f"wrote {out}: {files}, {size / 1e6:.1f} MB; upload it as a dataset: kaggle/README.md")
    wheels = LACKING if wheelhouse else ()
    list_lines("model", included)
    list_lines("wheel", [*wheels])
    result = {"out": out, "files": len(content), "size": size, "models": included, "wheels": wheels}
    write_json(json_file, result)


@app.command()
def demo(workspace: options.Work = Path("work/demo"), trials: options.Trials = 8) -> None:
    """Run every step, from build-features to report, on two collections of the embedded sample."""
    from xlarank.data.collection import SAMPLE, find_data_root
    from xlarank.pipelines.build_features import BuildRequest

    root = find_data_root(SAMPLE)
    work = options.workspace_at(workspace)
    headline("1. build-features")
    say("layouts and tiles measured on a CPU (data/sample/README.md)")
    options.build(root, work, BuildRequest(collections=DEMO))
    names = list(DEMO)
    headline("2. tune")
    tune(trials=trials, workspace=workspace, collection=names)
    headline("3. train")
    models = train(workspace=workspace, collection=names)
    headline("4. evaluate on valid (families that were never trained on)")
    json_file = work.reports() / "valid.json"
    evaluation = evaluate(workspace=workspace, collection=names, json_file=json_file, graphs=False)
    headline("5. submit")
    out = work.reports() / "submission.csv"
    submit(out=out, data_root=root.path, workspace=workspace, collection=names)
    headline("6. rank one graph")
    rank(root.npz / "layout/cpu/random/valid/unet__a.npz", top=5, workspace=workspace)
    headline("7. report")
    page = report(workspace=workspace, collection=names)
    headline("In short")
    sizes = []
    for model in models:
        graphs = counted(model.graphs, "graph")
        sizes.append(f"{model.collection} ({model.rows:,} configurations of {graphs})")
    say(f"learned to rank {' and '.join(sizes)}")
    verdicts = evaluation.verdicts.items()
    results = (f"{name}: {text.partition(', ahead')[0]}" for name, text in verdicts)
    say(f"result on valid: {'; '.join(results)}")
    for name, used in evaluation.in_use.items():
        if used:
            say(f"{name}: {used}")
    say(f"open {page} in a browser; then rank a graph of your own: python run.py rank GRAPH.npz")
