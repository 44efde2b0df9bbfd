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
# 2. a dataset with the wheel of xlarank (`kaggle/README.md` in the clone).
#
# Every step keeps what is finished: after an interruption, run the cells again.

# %% tags=["parameters"]
import os

INPUT = "/kaggle/input"  # folder of the attached datasets
WORKING = "/kaggle/working"  # folder of the results
COLLECTIONS = ""  # names separated by commas; empty: all
MAX_CONFIGS = 1000  # configurations of a training graph, drawn at random
SEEDS = 3  # boosters of each model
# folder of an attached workspace (the output folder "xlarank" of an earlier run, or models that
# were trained elsewhere) to begin with
WORKSPACE = ""

# Each of these can also be set from outside, as an environment variable such as XLARANK_SEEDS.
for name in ("INPUT", "WORKING", "COLLECTIONS", "MAX_CONFIGS", "SEEDS", "WORKSPACE"):
    if f"XLARANK_{name}" in os.environ:
        globals()[name] = type(globals()[name])(os.environ[f"XLARANK_{name}"])

# %%
import shutil
import sys
import tempfile
from pathlib import Path

# Kaggle mounts datasets as SLUG or datasets/OWNER/SLUG, competitions as SLUG or competitions/SLUG.
wheels = sorted(Path(INPUT).glob("**/xlarank-*.whl"))
if not wheels:
    raise SystemExit(f"no dataset below {INPUT} has the wheel of xlarank: see kaggle/README.md")
code = tempfile.mkdtemp(prefix="xlarank-")
shutil.unpack_archive(wheels[-1], code, "zip")
sys.path.insert(0, code)

import pandas as pd

import xlarank
from xlarank.data.collection import find_data_root, graph_files
from xlarank.data.errors import XlarankError
from xlarank.data.workspace import Workspace
from xlarank.models.stored import trained_collections
from xlarank.pipelines.build_features import BuildRequest, build_features
from xlarank.pipelines.submit import check_submission, submit
from xlarank.pipelines.train import TrainSettings, train

roots = [root for name in ("npz_all", "npz") for root in sorted(Path(INPUT).glob(f"**/{name}"))]
if not roots:
    raise SystemExit(f"no dataset below {INPUT} has npz_all or npz: attach the competition")
data_root = find_data_root(roots[0])
workspace = Workspace(Path(WORKING) / "xlarank")
if WORKSPACE and not workspace.root.exists():
    shutil.copytree(WORKSPACE, workspace.root)
chosen = [name for name in COLLECTIONS.split(",") if name]
files = graph_files(data_root.npz, chosen, where=str(data_root.path))
collections = sorted({str(file.collection) for file in files})
# with a model: of WORKSPACE, or of a run before this one
learned = {str(collection) for collection in trained_collections(workspace)}
missing = [name for name in collections if name not in learned]
out = Path(WORKING) / "submission.csv"
print(f"code: xlarank {xlarank.__version__}\ndata: {data_root.npz}, {len(files)} graphs")
print(f"to train: {', '.join(missing) or 'nothing'}")

# %% [markdown]
# ## Build
#
# The test graphs first: they are ranked without training, by formulas and the rankers that come
# with xlarank, so a right `submission.csv` is there early.

# %%
try:
    first = submit(workspace, out, data_root=data_root, collections=chosen)
    print(f"{out}: {len(first.ranked)} rows, before training")
except XlarankError as error:
    print(f"nothing is ranked before training: {error}")
if missing:
    splits = ["train", "valid", "test"]
    request = BuildRequest(collections=missing, splits=splits, max_configs=MAX_CONFIGS)
    for part in build_features(data_root, workspace, request).splits:
        print(f"{part.collection} {part.split}: {part.graphs} graphs, {part.rows:,} rows")
        for graph, why in part.broken.items():
            print(f"  {graph} is left out: {why}")

# %% [markdown]
# ## Train
#
# Of the trained model and what ranks without training, the highest mean score on families that were
# held out ranks: Kendall's tau for layouts, 1 - slowdown of the best of the top 5 for tiles.

# %%
for name in missing:
    try:
        settings = TrainSettings(collections=[name], seeds=SEEDS, with_valid=True)
        (result,) = train(workspace, settings)
    except XlarankError as error:
        print(f"{name} is not trained: {error}")
        continue
    print(f"{name} is ranked by {result.ranked_by} ({result.seconds:.0f} s)")

# %% [markdown]
# ## Submit

# %%
submission = submit(workspace, out, collections=chosen)
ranked = {"test graphs": submission.rows, "ranked by": submission.models}
print(pd.DataFrame(ranked).to_string())
for name, why in submission.ranked_by.items():
    print(f"{name} is ranked by {why}")
for name, why in submission.left_out.items():
    print(f"{name} is not ranked by a model: {why}")
for graph, why in submission.broken.items():
    print(f"not in the submission: {graph}: {why}")
checked = check_submission(out, data_root=data_root, collections=collections)
print(f"{out}: {len(submission.ranked)} rows, {len(checked.problems)} problems")
