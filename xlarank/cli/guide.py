"""Guidance for new users: examples of each command, the next command, and one line per ranker."""

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
    """Examples of a command and the command that follows it.

    Attributes:
        examples: arguments of ``python run.py``.
        then: arguments of the next command, optionally with a comment (``#``). ``{work}``, ``{data}``, ``{model}``,
            ``{collection}`` and ``{blocks}`` are replaced by options of the finished command, ``{file}`` by an
            argument that it records; if it records none, no next command is shown.
        rankers: whether help lists the rankers.
    """

    examples: tuple[str, str]
    then: str = ""
    rankers: bool = False

    def epilog(self) -> str:
        """Return the epilog of a command's help."""
        lines = ["Examples:", *(f"python run.py {example}" for example in self.examples)]
        if self.rankers:
            lines += ["", "Rankers:", *(f"{name}: {text}" for name, text in RANKERS.items())]
        return "\n".join(lines)


_CHECK: Final = "check-submission {file}{work}{collection} # then upload the file"
GUIDES: Final = {
    "info": Guide(("info --data-root ~/data/tpugraphs -c 'layout:*'", "info GRAPH.npz"),
                  "build-features{data}{collection}"),
    "build-features": Guide(("build-features", "build-features --data-root ~/data/tpugraphs --max-configs 1000"),
                            "train{work}{collection} # tune first for better parameters"),
    "explain-feature": Guide(("explain-feature padding__output_waste__mean", "explain-feature 'disagreement__*'")),
    "tune": Guide(("tune --trials 200", "tune --trials 20 -c tile:xla --model ranknet"),
                  "train{work}{collection}{model} # takes these parameters", rankers=True),
    "train": Guide(("train --seeds 5", "train -c layout:mine:random --fine-tune shipped"),
                   "evaluate{work}{collection} # then rank a graph", rankers=True),
    "evaluate": Guide(("evaluate", "evaluate --official-indices eval_indices --json scores.json"),
                      "leaderboard{work}{collection} # all rankers side by side; report has pictures"),
    "cross-validate": Guide(
        ("cross-validate --model lambdarank --model ranknet", "cross-validate --by kind -c tile:xla"),
        "train{work}{collection} # --model chooses the ranker", rankers=True,
    ),
    "leaderboard": Guide(("leaderboard", "leaderboard -c tile:xla --metric tau --csv leaderboard.csv")),
    "rank": Guide(("rank net__a.npz", "rank own/npz/tile/tpu-estimate/train --csv orders.csv"),
                  "explain {file}{work}{collection}{blocks} # why the first is first; measure the first five"),
    "submit": Guide(("submit --out submission.csv", "submit --model-from layout:xla:random --strict"), _CHECK),
    "check-submission": Guide(("check-submission submission.csv",
                               "check-submission submission.csv --sample sample_submission.csv")),
    "explain": Guide(("explain net__a.npz --against default", "explain net__a.npz --config 17 --svg why.svg"),
                     "explain-feature {file} # the meaning of a column"),
    "calibrate": Guide(("calibrate", "calibrate -c layout:cpu:random --threads 2"),
                       "report{work}{collection} # shows how certain rankings are, as rank does"),
    "report": Guide(("report", "report --out report.html --compare other-workspace")),
    "import-hlo": Guide(("import-hlo step.hlo.pb --out own", "import-hlo dump/*.pb --out own --split train"),
                        "propose {file} --out candidates.npz"),
    "propose": Guide(("propose net__a.npz --out candidates.npz",
                      "propose step.hlo.pb --search evolve --configs 200 --out candidates.npz"),
                     "rank {file}{work}{collection}{blocks}"),
    "collect": Guide(("collect --program mynet:program --configs 64 --out own",
                      "collect --tiles --program step.hlo.pb --out own"),
                     "build-features --data-root {file} # then train"),
    "advise": Guide(("advise mynet:program --budget 1", "advise step.hlo.pb --budget 20 --minutes 30 --out advice"),
                    "advise {file} # searches; measure before you keep a layout"),
    "run-all": Guide(("run-all --budget-hours 11", "run-all --models trained --out submission.csv"), _CHECK),
    "package-kaggle": Guide(("package-kaggle --owner NAME", "package-kaggle --out xlarank.zip --models work")),
    "demo": Guide(("demo", "demo --trials 20 --workspace work/demo")),
}  # fmt: skip
