"""The demo: every step on the embedded sample."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from typer import Typer

from xlarank.cli import options
from xlarank.cli.console import program, say
from xlarank.cli.ranking import show_ranking
from xlarank.cli.scoring import show_evaluation
from xlarank.data.errors import counted

#: Collections of the demo: one of each kind, so that it takes only minutes.
DEMO: Final = ("layout:cpu:random", "tile:cpu")

app = Typer()


@app.command()
def demo(workspace: options.Work = Path("work/demo")) -> None:
    """Run every step, from build-features to report, on two collections of the embedded sample."""
    from xlarank.data.collection import SAMPLE, find_data_root
    from xlarank.data.workspace import Workspace
    from xlarank.pipelines.build_features import build_features
    from xlarank.pipelines.evaluate import evaluate
    from xlarank.pipelines.rank import rank
    from xlarank.pipelines.report import report
    from xlarank.pipelines.submit import submit
    from xlarank.pipelines.train import train

    root = find_data_root(SAMPLE)
    work = Workspace(workspace)
    say("The embedded sample: layouts and tiles of small programs, measured on a CPU", "bold")
    built = build_features(root, work, collection=DEMO)
    rows = sum(part["rows"] for part in built.splits)
    say(f"built {rows:,} rows in {built.seconds:.1f} s")
    train(work, collection=DEMO)
    show_evaluation(evaluate(work, collection=DEMO), graphs=False, has_metrics=False)
    submission = submit(work.reports() / "submission.csv", work, collection=DEMO)
    say(f"wrote {submission.out}: {counted(len(submission.ranked), 'row')}, checked")
    say("")
    show_ranking(rank(root.npz / "layout/cpu/random/valid/unet__a.npz", work), top=5)
    page = work.reports() / "report.html"
    report(work, page, collection=DEMO)
    say("")
    say(f"Open {page} in a browser. A graph of your own: {program()} rank GRAPH.npz")
