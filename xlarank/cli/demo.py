"""The demo: every step on the embedded sample."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from typer import Typer

from xlarank.cli import options
from xlarank.cli.console import headline, say
from xlarank.cli.explaining import report
from xlarank.cli.learning import train, tune
from xlarank.cli.ranking import rank, submit
from xlarank.cli.scoring import evaluate
from xlarank.data.errors import counted
from xlarank.data.workspace import Workspace

#: Collections of the demo: one of each kind, so that it takes only minutes.
DEMO: Final = ("layout:cpu:random", "tile:cpu")

app = Typer()


@app.command()
def demo(workspace: options.Work = Path("work/demo"), trials: options.Trials = 8) -> None:
    """Run every step, from build-features to report, on two collections of the embedded sample."""
    from xlarank.data.collection import SAMPLE, find_data_root
    from xlarank.pipelines.build_features import BuildRequest

    root = find_data_root(SAMPLE)
    work = Workspace(workspace)
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
