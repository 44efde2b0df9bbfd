"""Settings, what is stored of them, the version of the code, and which rows a recipe keeps."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.models.contract import graph_rows
from xlarank.data.graph import Kind
from xlarank.features import recipe as recipes
from xlarank.features.block import Tier
from xlarank.features.program.tensors import Tiling
from xlarank.features.recipe import FeatureSettings, Recipe, source_hash
from xlarank.features.rows import at_most, even_ranks

SETTINGS = [FeatureSettings(tier, candidates) for tier in Tier for candidates in (True, False)]
ROOT = Path(recipes.__file__).parents[1]


def test_the_hash_changes_with_every_setting_and_with_the_code(monkeypatch):
    tilings = [Tiling(), Tiling(sublanes=16), Tiling(lanes=256)]
    chosen = [replace(settings, tiling=tiling) for settings in SETTINGS for tiling in tilings]
    hashes = [settings.code_hash(kind) for kind in get_args(Kind) for settings in chosen]
    assert len(set(hashes)) == len(hashes) and {len(text) for text in hashes} == {16}
    assert FeatureSettings().code_hash("tile") == FeatureSettings(Tier.FULL, True, Tiling(8, 128)).code_hash("tile")
    monkeypatch.setattr(recipes, "source_hash", lambda: "another version")
    assert FeatureSettings().code_hash("tile") not in hashes


def test_a_recipe_leads_back_to_its_settings():
    for settings in (*SETTINGS, FeatureSettings(tiling=Tiling(16, 64, fewest_sublanes=4))):
        recipe = Recipe.of(settings, "layout", max_configs=5, seed=3)
        assert recipe.settings() == settings
        assert Recipe.parse(json.loads(json.dumps(asdict(recipe)))) == recipe
    for value in ({}, {"code_hash": "a"}, {"tiling": {"rows": 8}}):
        with pytest.raises(TypeError):
            Recipe.parse(value)
    one, other = (Recipe.of(FeatureSettings(), "tile", seed=seed) for seed in (1, 2))
    assert one == other, "without a sample another seed would build again what is the same"


# The version of the code ----------------------------------------------------------------------------------------


def test_only_what_can_change_a_number_changes_the_version(tmp_path):
    files = {
        "features/assemble.py": '"""One."""\nfrom xlarank.data import npz\nimport xlarank.data.errors\nX = 1.0\n',
        "features/tile/extra.py": "#: Not imported by assemble.\nY: int = 2\n",
        "features/meanings.py": "TITLE = 1\n",
        "data/npz.py": "from xlarank.data import schema\ndef read():\n    'A docstring.'\n    return (1,\n 2)\n",
        "data/schema.py": "RANK = 6\n",
        "data/errors.py": "class Wrong(Exception): ...\n",
        "data/other.py": "NOT_REACHED = 1\n",
        "models/base.py": "Z = 1\n",
    }

    def version(**edits):
        for file, text in {**files, **edits}.items():
            (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / file).write_bytes(text.encode())
        source_hash.cache_clear()
        return source_hash(tmp_path)

    def edited(file, old, new):
        assert old in files[file]
        return version(**{file: files[file].replace(old, new)})

    now = version()
    for file, old, new in (
        ("features/assemble.py", "One.", "Two."),
        ("features/tile/extra.py", "Not", "Never"),
        ("data/npz.py", "A docstring", "Another"),
        ("data/npz.py", "\n 2", "  2"),
        *((file, "1", "2") for file in ("features/meanings.py", "data/other.py", "models/base.py")),
        ("data/errors.py", "Wrong", "Bad"),
        *((file, "\n", "\r\n") for file in files),  # a checkout on Windows
    ):
        assert edited(file, old, new) == now, file
    seen = {now}
    for file, old, new in (
        ("features/assemble.py", "1.0", "1"),
        ("features/tile/extra.py", "2", "3"),
        ("data/npz.py", "(1", "(2"),
        ("data/schema.py", "6", "7"),
    ):
        seen.add(edited(file, old, new))
    for file in ("features/tile/extra.py", "features/extra.py"):
        seen.add(version(**{file: "EXTRA = 1\n"}))
        (tmp_path / file).unlink()
    assert len(seen) == 7, "each change gives another version; so does a new file, by its place"


def test_the_version_is_of_all_files_that_make_numbers(monkeypatch):
    read, read_bytes = [], Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: read.append(path) or read_bytes(path))
    source_hash.cache_clear()
    source_hash()
    files = {path.relative_to(ROOT).as_posix() for path in read}
    features = {path.relative_to(ROOT).as_posix() for path in (ROOT / "features").rglob("*.py")}
    assert {file for file in files if file.startswith("features")} == features - set(recipes._PRESENTATION)
    assert {f"data/{name}.py" for name in ("config_table", "topology", "npz", "graph")} < files
    # what only shows columns takes no part: a fresh process, so that nothing else has imported it
    shown = [f"xlarank.{file.removesuffix('.py').replace('/', '.')}" for file in recipes._PRESENTATION]
    code = f"import sys, xlarank.features.assemble; print([m for m in {shown} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['xlarank.data.errors']", "which says what is wrong, and computes nothing"


# Which configurations are kept ----------------------------------------------------------------------------------


@given(st.integers(2, 60), st.integers(2, 60), st.integers(0, 3))
def test_both_ends_and_even_gaps_of_rank_are_kept(size, most, seed):
    cost = np.random.default_rng(seed).permutation(size).astype(np.float64) + 1
    kept = even_ranks(cost, most, np.random.default_rng(seed))
    assert kept.tolist() == sorted(set(kept.tolist())) and len(kept) == min(most, size)
    ranks = np.sort(cost[kept])
    assert (ranks[0], ranks[-1]) == (1, size) and np.ptp(np.diff(ranks)) <= 1
    equal = [even_ranks(np.ones(100), 10, np.random.default_rng(each)) for each in (seed, seed + 1)]
    assert not np.array_equal(*equal) and np.ptp(equal[0]) > 20, "drawn at random, not in the order of the file"


def test_a_recipe_draws_of_the_measured_rows_by_the_graphs_name():
    def recipe(most):
        return Recipe.of(FeatureSettings(), "layout", max_configs=most, seed=1)

    graph = graph_rows("a", [50, 10, 40, 20, 30])
    assert at_most(graph, recipe(5)) is graph and at_most(graph, recipe(0)) is graph
    broken = replace(graph, runtime=np.where(graph.runtime > 30, 0, graph.runtime))
    assert at_most(broken, recipe(4)).row_cost.tolist() == [10, 20, 30], "the two that failed go first"
    assert len(at_most(broken, recipe(2))) == 2 and np.isfinite(at_most(broken, recipe(2)).row_cost).all()
    unlabelled = replace(graph_rows("a", range(1, 101)), runtime=np.zeros(100, np.int64))
    kept = [at_most(replace(unlabelled, name=name), recipe(10)).ids.tolist() for name in "aab"]
    assert len(kept[0]) == 10 and kept[0] == sorted(kept[0]) and kept[0] == kept[1] != kept[2]
