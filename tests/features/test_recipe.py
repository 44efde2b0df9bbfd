"""Settings, what is stored of them, and the version of the code."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import get_args

import pytest

from xlarank.data.graph import Kind
from xlarank.features import recipe as recipes
from xlarank.features.block import Tier
from xlarank.features.program.tensors import Tiling
from xlarank.features.recipe import FeatureSettings, Recipe, source_hash

KINDS: tuple[Kind, ...] = get_args(Kind)
SETTINGS = [FeatureSettings(tier, candidates) for tier in Tier for candidates in (True, False)]
ROOT = Path(recipes.__file__).parents[1]


@pytest.mark.parametrize("kind", KINDS)
def test_the_hash_changes_with_every_setting(kind):
    tilings = [Tiling(), Tiling(sublanes=16), Tiling(lanes=256)]
    chosen = [replace(settings, tiling=tiling) for settings in SETTINGS for tiling in tilings]
    by_columns = {tuple(settings.graph_columns(kind) + settings.config_columns(kind)) for settings in SETTINGS}
    assert len(by_columns) == len(SETTINGS)
    hashes = {settings.code_hash(kind) for settings in chosen}
    assert len(hashes) == len(by_columns) * len(tilings)
    assert all(len(text) == 16 and int(text, 16) >= 0 for text in hashes)


def test_the_hash_tells_kinds_apart_and_equal_settings_not():
    assert FeatureSettings().code_hash("layout") != FeatureSettings().code_hash("tile")
    assert FeatureSettings().code_hash("tile") == FeatureSettings(Tier.FULL, True, Tiling(8, 128)).code_hash("tile")


@pytest.mark.parametrize("settings", [*SETTINGS, FeatureSettings(tiling=Tiling(16, 64, fewest_sublanes=4))])
def test_a_recipe_leads_back_to_its_settings(settings):
    recipe = Recipe.of(settings, "layout", max_configs=5, seed=3)
    assert recipe.settings() == settings
    assert recipe.settings().code_hash("layout") == recipe.code_hash
    assert Recipe.parse(json.loads(json.dumps(asdict(recipe)))) == recipe


def test_a_recipe_without_a_sample_has_no_seed():
    """Or another seed would build again what is the same."""
    ways = [Recipe.of(FeatureSettings(), "tile", seed=seed) for seed in (1, 2)]
    assert ways[0] == ways[1]


@pytest.mark.parametrize("value", [{}, {"code_hash": "a"}, {"tiling": {"rows": 8}}])
def test_what_is_no_recipe_is_refused(value):
    with pytest.raises(TypeError):
        Recipe.parse(value)


# The version of the code ----------------------------------------------------------------------------------------


@pytest.fixture
def clone(tmp_path):
    """The two rooms that make numbers, and one that does not."""
    for room in ("data", "features", "models"):
        shutil.copytree(ROOT / room, tmp_path / room, ignore=shutil.ignore_patterns("sample", "__pycache__"))
    return tmp_path


def edited(clone, file, old, new):
    path = clone / file
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    source_hash.cache_clear()
    return source_hash(clone)


def test_what_cannot_change_a_number_keeps_the_version(clone):
    for file, old, new in (
        ("features/layout/copies.py", '"""Copies: a consumer', '"""A consumer'),
        ("features/layout/padding.py", '"""`PaddingByClass` with packed', '"""The same with packed'),
        ("features/program/tensors.py", "#: TPU v2/v3", "# TPU v2/v3"),
        ("features/program/tensors.py", "Ints = ", "\n\n\nInts = "),
        ("data/errors.py", "class ", "_UNUSED = 1\n\n\nclass "),
        ("features/reference.py", "# Feature columns", "# Columns"),
        ("models/ranking_data.py", "2**27", "2**26"),
    ):
        assert edited(clone, file, old, new) == source_hash(), file
    for path in clone.rglob("*.py"):  # a checkout on Windows
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert source_hash(clone) == source_hash()


def test_what_can_change_a_number_changes_the_version(clone):
    seen = {source_hash()}
    for file, old, new in (
        ("features/assemble.py", "np.float32", "np.float64"),
        ("features/program/tensors.py", "lanes: int = 128", "lanes: int = 256"),
        ("features/layout/pairs.py", "unlike & (given == 2)", "unlike & (given >= 2)"),
        ("features/tile/inner_loop.py", "_REGISTERS: Final = 16", "_REGISTERS: Final = 32"),
        ("features/instances/context.py", "1 << 21", "1 << 22"),
        ("features/store.py", "np.argsort(rows.group", "np.argsort(-rows.group"),
        ("data/config_table.py", "_BASE = MAX_RANK + 1", "_BASE = MAX_RANK + 2"),
        ("data/topology.py", "_LARGE: Final = 1000", "_LARGE: Final = 2000"),
        ("data/npz.py", "import", "import os\nimport"),
    ):
        seen.add(version := edited(clone, file, old, new))
        assert version != source_hash(), file
    (clone / "features" / "tile" / "extra.py").write_text("EXTRA = 1\n", encoding="utf-8")
    source_hash.cache_clear()
    seen.add(source_hash(clone))
    (clone / "features" / "tile" / "extra.py").rename(clone / "features" / "layout" / "extra.py")
    source_hash.cache_clear()
    seen.add(source_hash(clone))
    assert len(seen) == 12, "each change gives another version; a file's place counts"


def test_what_only_shows_columns_takes_no_part_in_computing_them():
    """A fresh process, so that nothing else has imported it."""
    shown = [f"xlarank.{file.removesuffix('.py').replace('/', '.')}" for file in recipes._PRESENTATION]
    assert all((ROOT / file).exists() for file in recipes._PRESENTATION)
    code = f"import sys, xlarank.features.assemble; print([m for m in {shown} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['xlarank.data.errors']", "which says what is wrong, and computes nothing"
