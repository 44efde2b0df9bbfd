# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # xlarank: compiler configurations ranked by boosted trees
#
# From the attached datasets to `submission.csv`, offline, on the CPU. Attach
#
# 1. the competition *Google - Fast or Slow? Predict AI Model Runtime*,
# 2. the dataset made by `python run.py package-kaggle` (the code; with `--models`, trained models too).
#
# With models in the dataset nothing is trained: the test graphs are ranked and that is all. Without, every
# collection is built, tuned and trained within the budget below. A right `submission.csv` is there from the first
# minute and is made better step by step; a collection that fails keeps the best rows it has.

# %% tags=["parameters"]
import os

# Steps run in processes of their own, which run the file of their parent again: as a script, too, there is none.
globals().pop("__file__", None)

# Each of these can also be set from outside, as an environment variable of the same name with XLARANK_ before it.
INPUT = "/kaggle/input"  # where datasets are attached
WORKING = "/kaggle/working"  # where results go
HOURS = 11.0  # budget, counted from the start of the work; Kaggle stops a session after 12
RAM_GB = 0.0  # 0: nine tenths of the machine's
SEEDS = 3  # boosters of each final model
TRIALS = 100  # most tuning trials of a collection; 0 for none
COLLECTIONS = ""  # names separated by commas; empty for all
USE_MODELS = True  # rank with attached models where there are some
RESUME = ""  # an earlier run's folder "xlarank" (its output, attached): what it finished is not done again

for name in ("INPUT", "WORKING", "HOURS", "RAM_GB", "SEEDS", "TRIALS", "COLLECTIONS", "USE_MODELS", "RESUME"):
    if f"XLARANK_{name}" in os.environ:
        kind, text = type(globals()[name]), os.environ[f"XLARANK_{name}"]
        globals()[name] = text == "1" if kind is bool else kind(text)

# %%
import shutil
import sys
import time
from pathlib import Path


def attached(*marks: str) -> list[Path]:
    """Folders at most three levels below INPUT that hold all of these."""
    found = []
    for pattern in ("", "*", "*/*", "*/*/*"):
        places = sorted(Path(INPUT).glob(pattern)) if pattern else [Path(INPUT)]
        found += [place for place in places if all((place / mark).exists() for mark in marks)]
    return found


code = attached("run.py", "pipelines/run_all.py")
if not code:
    raise SystemExit(f"no dataset below {INPUT} holds xlarank: attach the output of 'run.py package-kaggle'")
sys.path.insert(0, str(code[0]))

import pandas as pd
import polars as pl

import xlarank
from xlarank.cli.budget_tables import OUTCOME_HEADS, PLAN_HEADS, outcome_row, plan_rows
from xlarank.data.collection import Collection
from xlarank.data.root import find_data_root
from xlarank.data.workspace import Workspace
from xlarank.models.trained import model_of
from xlarank.pipelines.budgeting.plan import machine_budget
from xlarank.pipelines.budgeting.reports import read_first_scores
from xlarank.pipelines.check_submission import check_submission
from xlarank.pipelines.run_all import run_all
from xlarank.pipelines.support.workspace_collections import trained_collections

trees = [place for place in attached("npz_all/npz") + attached("npz") if code[0] not in place.parents]
if not trees:
    raise SystemExit(f"no dataset below {INPUT} holds npz_all/npz or npz: attach the competition data")
data_root = find_data_root(trees[0])
models = [place / "workspace" for place in attached("workspace/models")] if USE_MODELS else []
workspace = Workspace(Path(WORKING) / "xlarank")
if RESUME and not workspace.root.exists():
    shutil.copytree(RESUME, workspace.root)
print(f"code: {code[0]}\ndata: {data_root.npz}")
print(f"models: {models[0] if models else 'none attached, so they are trained'}")

# %% [markdown]
# ## The plan and the work
#
# The plan says what the budget allows: configurations kept of each graph that is learned from, trials, rounds.
# Minutes are estimates with a safety factor; the rest of the budget goes to tuning.

# %%
pd.set_option("display.width", 200, "display.max_columns", 20)


class Lines:
    """Progress as lines: when a job begins and ends, and in between every half minute."""

    def begin(self, what: str, total: int) -> None:
        self.what, self.total, self.done, self.began = what, total, 0, time.monotonic()
        self.told = self.began

    def step(self, note: str = "") -> None:
        self.done += 1
        if time.monotonic() - self.told > 30:
            self.told = time.monotonic()
            print(f"  {self.what}: {self.done} of {self.total}, {note}", flush=True)

    def end(self) -> None:
        seconds = time.monotonic() - self.began
        print(f"{self.what}: {self.done} of {self.total} in {seconds:.0f} s", flush=True)


def show_plan(plan) -> None:
    if not models:
        table = pd.DataFrame(plan_rows(plan), columns=[head.lstrip(">") for head in PLAN_HEADS])
        print(table.to_string(index=False))
        print(*plan.notes, "", sep="\n")


summary = run_all(
    data_root,
    workspace,
    Path(WORKING) / "submission.csv",
    machine_budget(Path(WORKING), hours=HOURS, ram_gb=RAM_GB),
    collections=[name for name in COLLECTIONS.split(",") if name],
    seeds=SEEDS,
    trials=TRIALS,
    models=models[0] if models else None,
    progress=Lines(),
    tell=show_plan,
)

# %% [markdown]
# ## Results
#
# *Valid* is scored by the first model, which learned from the training graphs alone; *out of fold* is scored by
# models that saw neither the graph nor its program family, over all graphs that the ranking model learned from;
# where parameters were tuned it is a little lucky. Layout collections: Kendall's tau. Tile collections: 1 -
# slowdown of the best of the top 5.

# %%
heads = [head.lstrip(">") for head in OUTCOME_HEADS]
print(pd.DataFrame(map(outcome_row, summary.outcomes), columns=heads).to_string(index=False))
for outcome in summary.outcomes:
    for note in outcome.notes:
        print(f"{outcome.collection}: {note}")
for graph, why in summary.broken.items():
    print(f"not in the submission: {graph}: {why}")
sample = trees[0] / "sample_submission.csv"
checked = check_submission(summary.out, sample=sample if sample.exists() else None, data_root=data_root)
print(f"\n{summary.out}: {summary.rows} rows, {len(checked.problems)} problems; {summary.seconds / 60:.1f} min")
print(f"checked against {checked.against}", *checked.problems[:5], sep="\n")

# %% [markdown]
# ## The fastest of one graph
#
# `xlarank.rank` reads a file, computes its columns and orders its configurations: here the smallest test graph of
# each collection. A lower score is a faster configuration; scores of different graphs cannot be compared.

# %%
chosen = {outcome.collection for outcome in summary.outcomes}
ranked = [name for name in map(str, trained_collections(workspace)) if name in chosen]
for name in ranked:
    files = (data_root.npz / Path(*name.split(":")) / "test").glob("*.npz")
    files = [file for file in files if f"{name} {file.stem}" not in summary.broken]
    files.sort(key=lambda file: file.stat().st_size)
    if files:
        ranking = xlarank.rank(files[0], workspace.root, collection=name)
        print(f"{name}: {ranking.graph}, {len(ranking.order):,} configurations")
        with pl.Config(tbl_hide_dataframe_shape=True, tbl_hide_column_data_types=True):
            print(ranking.to_polars()["rank", "configuration", "score"].head(5))

# %% [markdown]
# ## Pictures

# %%
import matplotlib.pyplot as plt

plt.rcParams.update({"figure.dpi": 90, "axes.spines.top": False, "axes.spines.right": False, "font.size": 9})
BAR, LINE, FAINT = "#4c78a8", "#d1495b", "#9aa5b1"


def panels(names: list, width: float, height: float) -> list:
    """One panel for each name, in rows of at most three."""
    columns = min(3, len(names))
    rows = -(-len(names) // columns)
    size = width * columns, height * rows
    _, axes = plt.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained")
    for axis in axes.flat[len(names) :]:
        axis.axis("off")
    return list(axes.flat[: len(names)])


def metric(name: str) -> str:
    return "Kendall's tau" if name.startswith("layout") else "1 - slowdown@5"


# %% [markdown]
# ### Score of each graph
#
# Out of fold where the collection has several program families, else on valid by the first model.

# %%
scores = {}
for name in ranked:
    folds = model_of(workspace, Collection.parse(name)).card.folds
    valid = read_first_scores(workspace, Collection.parse(name)).get("report", {})
    if folds:
        scores[name] = "out of fold", {graph: values["score"] for graph, values in folds.items()}
    elif valid:
        scores[name] = "valid", valid["score"]["graphs"]

if scores:
    for axis, (name, (judged, of_graph)) in zip(panels(list(scores), 5.2, 3.6), scores.items(), strict=True):
        values = pd.Series(of_graph).sort_values()
        few = len(values) <= 60
        axis.bar(range(len(values)), values, color=BAR, width=0.8 if few else 1.0)
        axis.axhline(values.mean(), color=LINE, lw=1.2)
        title = f"{name}, {judged}\n{len(values)} graphs, mean {values.mean():.3f} (red)"
        axis.set_title(title, loc="left")
        axis.set_ylabel(metric(name))
        axis.margins(x=0.01)
        axis.set_xticks(range(len(values)) if few else [])
        if few:
            labels = [label if len(label) <= 26 else f"{label[:13]}…{label[-12:]}" for label in values.index]
            axis.set_xticklabels(labels, rotation=90, fontsize=6.5 if len(values) <= 40 else 5)
    plt.show()

# %% [markdown]
# ### The course of tuning

# %%
studies = {}
for name in ranked:
    path = workspace.study(Collection.parse(name)) / "trials-lambdarank.csv"
    if path.exists():
        trials = pd.read_csv(path)
        trials = trials[trials.state == "COMPLETE"]
        if len(trials):
            studies[name] = trials

if studies:
    for axis, (name, trials) in zip(panels(list(studies), 4.6, 2.8), studies.items(), strict=True):
        axis.scatter(trials.number, trials.value, s=14, color=FAINT, label="trial")
        axis.step(trials.number, trials.value.cummax(), where="post", color=LINE, lw=1.4, label="best so far")
        axis.set_title(name, loc="left")
        axis.xaxis.get_major_locator().set_params(integer=True)
        axis.set_xlabel("trial")
        axis.set_ylabel(f"out of fold, {metric(name)}")
        axis.legend(frameon=False, fontsize=8, loc="best")
    plt.show()
else:
    print("nothing was tuned")

# %% [markdown]
# ### What the trees look at
#
# Share of the gain of all splits, the 12 largest. `run.py explain-feature NAME` says what a column means.

# %%
if ranked:
    for axis, name in zip(panels(ranked, 5.6, 2.9), ranked, strict=True):
        shares = model_of(workspace, Collection.parse(name)).rankers[0].importance()
        top = list(shares.items())[:12][::-1]
        axis.barh([column for column, _ in top], [100 * share for _, share in top], color=BAR)
        axis.tick_params(axis="y", labelsize=7)
        axis.set_title(name, loc="left")
        axis.set_xlabel("% of gain")
    plt.show()

# %% [markdown]
# ### Predicted and measured rank
#
# The validation graph of median score, ranked by the first model, which did not learn from it. Rank 0 is the
# fastest.

# %%
examples = {name: read_first_scores(workspace, Collection.parse(name)).get("example") for name in ranked}
examples = {name: example for name, example in examples.items() if example}
if examples:
    for axis, (name, example) in zip(panels(list(examples), 3.7, 3.6), examples.items(), strict=True):
        ranks = [pd.Series(example[side]).rank() - 1 for side in ("predicted", "measured")]
        axis.plot([0, len(ranks[0])], [0, len(ranks[0])], color=FAINT, lw=0.8)
        axis.scatter(*ranks, s=9, color=BAR, alpha=0.6, lw=0)
        title = f"{name}\n{example['graph'][:40]}: {metric(name)} {example['score']:.2f}"
        axis.set_title(title, loc="left", fontsize=8.5)
        axis.set_xlabel("predicted rank")
        axis.set_ylabel("measured rank")
    plt.show()
