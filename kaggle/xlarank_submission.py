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
# 2. the dataset made by `python run.py package-kaggle` (the code; with `--models`, trained models
#    too).
#
# With models in the dataset nothing is trained: the test graphs are ranked and that is all.
# Without, every collection is built, tuned and trained within the budget below. A right
# `submission.csv` is there from the first minute and is made better step by step; a collection that
# fails keeps the best rows it has.

# %% tags=["parameters"]
import os

# Steps run in processes of their own, which run the file of their parent again: as a script, too,
# there is none.
globals().pop("__file__", None)

# Each of these can also be set from outside, as an environment variable of the same name with
# XLARANK_ before it.
INPUT = "/kaggle/input"  # where datasets are attached
WORKING = "/kaggle/working"  # where results go
HOURS = 11.0  # budget, counted from the start of the work; Kaggle stops a session after 12
RAM_GB = 0.0  # 0: nine tenths of the machine's
SEEDS = 3  # boosters of each final model
TRIALS = 100  # most tuning trials of a collection; 0 for none
COLLECTIONS = ""  # names separated by commas; empty for all
USE_MODELS = True  # rank with attached models where there are some
# an earlier run's folder "xlarank" (its output, attached): what it finished is not done again
RESUME = ""

for name in (
    "INPUT",
    "WORKING",
    "HOURS",
    "RAM_GB",
    "SEEDS",
    "TRIALS",
    "COLLECTIONS",
    "USE_MODELS",
    "RESUME",
):
    if f"XLARANK_{name}" in os.environ:
        kind = type(globals()[name])
        text = os.environ[f"XLARANK_{name}"]
        globals()[name] = text.lower() in ("1", "true") if kind is bool else kind(text)

# %%
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def attached(*marks: str) -> list[Path]:
    """Folders at most four levels below INPUT that hold all of these.

    Kaggle mounts datasets as SLUG or datasets/OWNER/SLUG, competitions as SLUG or
    competitions/SLUG.
    """
    found = []
    for pattern in ("", "*", "*/*", "*/*/*", "*/*/*/*"):
        places = sorted(Path(INPUT).glob(pattern)) if pattern else [Path(INPUT)]
        found += [place for place in places if all((place / mark).exists() for mark in marks)]
    return found


code = attached("run.py", "xlarank/pipelines/run_all.py")
if not code:
    raise SystemExit(
        f"no dataset below {INPUT} holds xlarank: attach the output of 'run.py package-kaggle'"
    )
sys.path.insert(0, str(code[0]))

import pandas as pd
import polars as pl

import xlarank
from xlarank.data.collection import find_data_root
from xlarank.data.errors import CollectionError
from xlarank.data.workspace import Workspace
from xlarank.models.stored import model_of, trained_collections
from xlarank.pipelines.run_all import run_all
from xlarank.pipelines.submit import check_submission
from xlarank.pipelines.support.evaluation import compared, out_of_fold
from xlarank.pipelines.support.verdicts import comparison_cells
from xlarank.pipelines.training.budget import RunSettings

trees = [
    place for place in attached("npz_all/npz") + attached("npz") if code[0] not in place.parents
]
if not trees:
    raise SystemExit(
        f"no dataset below {INPUT} holds npz_all/npz or npz: attach the competition data"
    )
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
# The plan says what the budget allows: configurations kept of each training graph. Minutes are
# estimates with a safety factor; the rest of the budget goes to tuning and final models.

# %%
pd.set_option("display.width", 200, "display.max_columns", 20)


@contextmanager
def lines(what: str, total: int) -> Iterator[Callable[..., None]]:
    """Progress as lines: when a job ends, and before that every half minute."""
    began = time.monotonic()
    told = began
    done = 0

    def step(note: str = "", left: float | None = None) -> None:
        nonlocal done, told
        done += 1
        if time.monotonic() - told > 30:
            told = time.monotonic()
            print(f"  {what}: {done} of {total}, {note}", flush=True)

    try:
        yield step
    finally:
        seconds = time.monotonic() - began
        print(f"{what}: {done} of {total} in {seconds:.0f} s", flush=True)


run = run_all(
    data_root,
    workspace,
    Path(WORKING) / "submission.csv",
    RunSettings(HOURS, RAM_GB, seeds=SEEDS, trials=TRIALS, models=models[0] if models else None),
    collections=[name for name in COLLECTIONS.split(",") if name],
    progress=lines,
    on_plan=lambda plan: (
        None if models else print(pd.DataFrame(map(vars, plan)).to_string(index=False))
    ),
)

# %% [markdown]
# ## Results
#
# The trained model beside the shipped ranker and every rule, the best first: scores of models that
# saw neither the graph nor its program family, over all graphs that the ranking model was trained
# on; where parameters were tuned its score is a little lucky. Layout collections: Kendall's tau.
# Tile collections: 1 - slowdown of the best of the top 5. The best ranks the test graphs. With
# attached models no training rows are stored, and there is no comparison.

# %%
outcomes = pd.DataFrame(map(vars, run.outcomes.values()))
print(outcomes.drop(columns=["notes", "valid", "folds"]).to_string(index=False))
chosen = {*map(str, run.outcomes)}
trained = [collection for collection in trained_collections(workspace) if str(collection) in chosen]
for collection in trained:
    try:
        card = model_of(workspace, collection).require_card()
        rows = comparison_cells(compared(out_of_fold(workspace, collection, card)))
        print(f"\n{collection}, out of fold", pd.DataFrame(rows).to_string(index=False), sep="\n")
    except CollectionError as error:
        print(error)
for outcome in run.outcomes.values():
    for note in outcome.notes:
        print(f"{outcome.collection}: {note}")
for graph, why in run.broken.items():
    print(f"not in the submission: {graph}: {why}")
sample = trees[0] / "sample_submission.csv"
checked = check_submission(run.out, sample=sample if sample.exists() else None, data_root=data_root)
print(
    f"\n{run.out}: {len(run.cover)} rows, {len(checked.problems)} problems; "
    f"{run.seconds / 60:.1f} min"
)
print(f"checked against {checked.against}", *checked.problems[:5], sep="\n")

# %% [markdown]
# ## The fastest of one graph
#
# `xlarank.rank` reads a file, computes its columns and orders its configurations: here the smallest
# test graph of each collection. A lower score is a faster configuration; scores of different graphs
# cannot be compared.

# %%
ranked = [str(collection) for collection in trained]
for name in ranked:
    files = (data_root.npz / Path(*name.split(":")) / "test").glob("*.npz")
    files = [file for file in files if f"{name} {file.stem}" not in run.broken]
    files.sort(key=lambda file: file.stat().st_size)
    if files:
        ranking = xlarank.rank(files[0], workspace.root, collection=name)
        print(f"{name}: {ranking.graph}, {len(ranking.order):,} configurations")
        with pl.Config(tbl_hide_dataframe_shape=True, tbl_hide_column_data_types=True):
            print(ranking.to_polars()["rank", "configuration", "score"].head(5))

# %% [markdown]
# ## Pictures
#
# Predicted and measured rank of the validation graph of median score, ranked by the first model,
# which was not trained on it: rank 0 is the fastest, 1 the slowest. Then the course of tuning.
# `run.py report` draws scores, columns and more as one page.

# %%
for name in ranked:
    for pattern in ("first", "tune"):
        for path in sorted(workspace.reports().glob(f"{pattern}-{name.replace(':', '-')}*.svg")):
            try:
                from IPython.display import SVG, display

                display(SVG(path.read_text(encoding="utf-8")))
            except ImportError:  # run as a script
                print(f"drew {path.name}")

# %% [markdown]
# ## Your own LightGBM
#
# `xlarank.load_rows` returns the stored rows of a collection, one for each distinct configuration.
# Here a plain `LGBMRanker` learns from up to 200 training graphs of the collection with the fewest.
# Its scores make `own.csv`, in which other collections keep their rows of `submission.csv`. With
# attached models no training rows are stored, and the cell does nothing.

# %%
import lightgbm

from xlarank.data.collection import Collection
from xlarank.features.store import read_manifest
from xlarank.pipelines.submit import submit
from xlarank.pipelines.support.results import ScoreFiles

manifests = {name: read_manifest(workspace, Collection.parse(name), "train") for name in chosen}
train_graphs = {
    name: list(manifest.graphs)
    for name, manifest in manifests.items()
    if manifest and manifest.graphs
}
if train_graphs:
    name = min(train_graphs, key=lambda name: (len(train_graphs[name]), name))
    stored = xlarank.load_rows(workspace.root, name, lazy=True)
    few = (pl.col("split") == "train") & pl.col("graph").is_in(train_graphs[name][:200])
    rows = stored.filter(few | (pl.col("split") == "test")).collect().to_pandas()
    features = [column for column in rows if "__" in column]
    test = rows[rows["split"] == "test"]
    train = rows[(rows["split"] == "train") & rows["label"].notna()].sample(frac=1, random_state=0)
    train = train.groupby("graph", observed=True).head(500).sort_values("graph")
    by_graph = train.groupby("graph", observed=True)
    # The fastest is the most relevant.
    relevance = (30 * (1 - by_graph["label"].rank(pct=True))).astype(int)
    ranker = lightgbm.LGBMRanker(n_estimators=100, num_leaves=15, random_state=0, verbose=-1)
    ranker.fit(train[features], relevance, group=by_graph.size())
    scores = test[["collection", "graph", "split", "configuration"]]
    scores = scores.assign(score=-ranker.predict(test[features]))  # lower is faster
    scores.to_parquet(workspace.root / "own.parquet")
    own = shutil.copy(run.out, Path(WORKING) / "own.csv")
    submission = submit(
        workspace, own, scores=ScoreFiles.read([workspace.root / "own.parquet"], "test"), keep=True
    )
    print(
        f"{own}: {submission.rows[name]} graphs of {name} ranked by LightGBM, "
        f"{len(submission.origin)} rows"
    )
