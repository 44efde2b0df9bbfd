"""The demo: every step on the embedded sample."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from typer import Typer

from xlarank.cli import options
from xlarank.cli.console import program, say, show_rows, write_json
from xlarank.cli.ranking import show_ranking
from xlarank.data.errors import counted

if TYPE_CHECKING:
    from xlarank.pipelines.support.evaluation import Evaluation
    from xlarank.pipelines.train import TrainResult

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
    say("The embedded sample: layouts and tiles of small programs, measured on a CPU.", "bold")
    built = build_features(root, work, collections=DEMO)
    for name in DEMO:
        parts = [part for part in built.splits if part["collection"] == name]
        graphs = sum(part["graphs"] for part in parts)
        rows = sum(part["rows"] for part in parts)
        say(f"built {name}: {counted(graphs, 'graph')}, {rows:,} distinct configurations")
    trained = train(work, collections=DEMO)
    evaluation = evaluate(work, collections=DEMO)
    write_json(work.reports() / "valid.json", evaluation.report)
    say("")
    say("The ranker of each collection, and scores of graphs whose families were held out", "bold")
    show_rows(_row(result, evaluation) for result in trained)
    for name, reason in evaluation.ranked_by.items():
        say(f"{name} is ranked by {reason}")
    say(f"valid: {evaluation.overall}")
    submission = submit(work, work.reports() / "submission.csv", collections=DEMO)
    say(f"wrote {submission.out}: {counted(len(submission.ranked), 'row')}, checked")
    say("")
    show_ranking(rank(work, root.npz / "layout/cpu/random/valid/unet__a.npz"), top=5)
    page = work.reports() / "report.html"
    report(work, page, collections=DEMO)
    say("")
    say(f"Open {page} in a browser. A graph of your own: {program()} rank GRAPH.npz")


def _row(result: TrainResult, evaluation: Evaluation) -> dict[str, str]:
    """Return the scores of one collection: what ranks, and what it is compared with on valid."""
    first, *others = evaluation.comparison[result.collection]
    out_of_fold = {row["ranker"]: row["score"]["mean"] for row in result.comparison}
    scores = {row["ranker"]: row["score"]["mean"] for row in others}
    formula = scores.get("estimated time", first["score"]["mean"])
    counts = [score for name, score in scores.items() if name.startswith("rule: ")]
    return {
        "collection": result.collection,
        "ranked by": first["ranker"],
        ">out of fold": f"{out_of_fold[first['ranker']]:.3f}",
        ">valid": f"{first['score']['mean']:.3f}",
        ">graphs": str(first["graphs"]),
        ">estimated time": f"{formula:.3f}",
        ">best simple count": f"{max(counts):.3f}",
    }
