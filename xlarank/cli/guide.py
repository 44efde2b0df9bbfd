"""Words for newcomers: examples of every command, what to do after it, and the rankers in a line each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

RANKERS: Final = {
    "lambdarank": "trees with the lambdarank loss; fast, the default",
    "ranknet": "trees on sampled pairs; fast, often slightly better for layouts",
    "xgb-pairwise": "XGBoost on sampled pairs, independent of LightGBM",
    "sum-pooled": "adds up a score of every node and pair of a layout",
    "ensemble": "rank average of several rankers (layouts: ranknet and sum-pooled)",
    "sibling": "uses the same program at another batch size; trains for minutes",
    "time-trees": "trees that begin at an estimated time, of TPU layouts or of tiles",
}


@dataclass(frozen=True)
class Guide:
    """Examples of a command and the step that follows it.

    Attributes:
        examples: arguments of ``python run.py``.
        then: last line of the output. ``{work}`` and ``{data}`` stand for the options that name the workspace and
            the data root, ``{check}`` for the command that checks the submission.
        rankers: whether help lists the rankers.
    """

    examples: tuple[str, str]
    then: str = ""
    rankers: bool = False

    def epilog(self) -> str:
        """The end of a command's help."""
        lines = ["Examples:", *(f"python run.py {example}" for example in self.examples)]
        if self.rankers:
            lines += ["", "Rankers:", *(f"{name}: {text}" for name, text in RANKERS.items())]
        return "\n".join(lines)


GUIDES: Final = {
    "info": Guide(("info --data-root ~/data/tpugraphs -c 'layout:*'", "info GRAPH.npz"),
                  "python run.py build-features{data}"),
    "build-features": Guide(
        ("build-features", "build-features --data-root ~/data/tpugraphs --max-configs 1000"),
        "python run.py train{work}, after tune --trials 50 for better parameters",
    ),
    "explain-feature": Guide(("explain-feature padding__output_waste__mean", "explain-feature 'disagreement__*'")),
    "tune": Guide(("tune --trials 200", "tune --trials 20 -c tile:xla --model ranknet"),
                  "python run.py train{work} takes these parameters", rankers=True),
    "train": Guide(("train --seeds 5", "train -c layout:mine:random --fine-tune shipped"),
                   "python run.py evaluate{work}, then rank GRAPH.npz or report", rankers=True),
    "evaluate": Guide(("evaluate", "evaluate --official-indices eval_indices --json scores.json"),
                      "python run.py report{work} shows this with pictures; calibrate says how certain it is"),
    "cross-validate": Guide(
        ("cross-validate --model lambdarank --model ranknet", "cross-validate --by kind -c tile:xla"),
        "python run.py train{work} --model NAME trains the ranker of your choice", rankers=True,
    ),
    "leaderboard": Guide(("leaderboard", "leaderboard -c tile:xla --metric tau --csv leaderboard.csv")),
    "rank": Guide(("rank net__a.npz", "rank own/npz/tile/tpu-estimate/train --csv orders.csv"),
                  "measure the first five; python run.py explain GRAPH.npz says why they are first"),
    "submit": Guide(("submit --out submission.csv", "submit --model-from layout:xla:random --strict"),
                    "upload the file; python run.py {check}{work} checks it anywhere"),
    "check-submission": Guide(("check-submission submission.csv",
                               "check-submission submission.csv --sample sample_submission.csv")),
    "explain": Guide(("explain net__a.npz --against default", "explain net__a.npz --config 17 --svg why.svg"),
                     "python run.py explain-feature NAME says what a column means"),
    "calibrate": Guide(("calibrate", "calibrate -c layout:cpu:random --threads 2"),
                       "python run.py rank GRAPH.npz and report{work} now say how certain they are"),
    "report": Guide(("report", "report --out report.html --compare other-workspace"), "open the page in a browser"),
    "import-hlo": Guide(("import-hlo step.hlo.pb --out own", "import-hlo dump/*.pb --out own --split train"),
                        "python run.py propose GRAPH.npz --out candidates.npz"),
    "propose": Guide(("propose net__a.npz --out candidates.npz",
                      "propose step.hlo.pb --search evolve --configs 200 --out candidates.npz"),
                     "python run.py rank on that file"),
    "collect": Guide(("collect --program mynet:program --configs 64 --out own",
                      "collect --tiles --program step.hlo.pb --out own"),
                     "python run.py build-features{data}, then train"),
    "advise": Guide(("advise mynet:program --budget 1", "advise step.hlo.pb --budget 20 --minutes 30 --out advice"),
                    "measure before you keep a layout: docs/advise.md"),
    "run-all": Guide(("run-all --budget-hours 11", "run-all --models trained --out submission.csv"),
                     "upload the file; python run.py report{work} shows the scores behind it"),
    "package-kaggle": Guide(("package-kaggle --owner NAME", "package-kaggle --out xlarank.zip --models work"),
                            "upload it as a dataset: kaggle/README.md"),
    "demo": Guide(("demo", "demo --trials 20 --workspace work/demo")),
}  # fmt: skip
