"""Blocks of users: computed, remembered, refused, and sent to other processes."""

import json
import multiprocessing
import pickle
import re
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import numpy as np
import pytest

import xlarank
from tests.features.helpers import by_name, graph_of
from tests.graphs import layout_arrays, tile_arrays
from xlarank.data.errors import BlockError
from xlarank.data.files import from_json
from xlarank.data.graph import TileGraph
from xlarank.features import block_files
from xlarank.features.assembly import assemble
from xlarank.features.block import Cause
from xlarank.features.block_files import load_blocks
from xlarank.features.catalogue import BLOCKS
from xlarank.features.meanings import cause_of, column_meanings
from xlarank.features.rows import Recipe
from xlarank.features.settings import FeatureSettings

TILE = graph_of(tile_arrays())
LAYOUT = graph_of(layout_arrays())
TEXT = '''
import numpy as np
from xlarank.features.block import Block, Scope

class Most(Block):
    """Largest bound."""
    kinds = ("tile", "layout")
    columns = {"mine__most__max": "largest bound"}
    def compute(self, context):
        return np.full((context.configs, 1), 7.0)

class Size(Block):
    """A constant."""
    scope = Scope.GRAPH
    kinds = ("tile",)
    columns = {"mine__nodes__count": "nodes", "mine__twice__count": "twice as many"}
    def compute(self, context):
        return np.array([1.0, 2.0]) * context.graph.nodes
'''


MOST = "np.full((context.configs, 1), 7.0)"
TILE_COLUMNS = ("mine__most__max", "mine__nodes__count", "mine__twice__count")


@pytest.fixture(autouse=True)
def nothing_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_files, "_loaded", {})


def written(folder: Path, text: str = TEXT, name: str = "mine.py") -> Path:
    (folder / name).write_text(text, "utf-8")
    return folder / name


def settings_of(folder: Path, text: str = TEXT) -> FeatureSettings:
    return FeatureSettings(block_files=load_blocks(written(folder, text)))


def test_own_columns_stand_beside_the_others_which_do_not_change(tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    plain = assemble(TILE)
    rows = assemble(TILE, settings)
    assert rows.graph_values[-2:].tolist() == [TILE.nodes, 2 * TILE.nodes]
    number = rows.config_columns.index("mine__most__max")
    assert (rows.config_values[:, number] == 7).all() and settings.columns("tile") == rows.columns
    assert [name for name in rows.columns if not name.startswith("mine__")] == plain.columns
    assert np.array_equal(np.delete(rows.config_values, number, axis=1), plain.config_values)
    table = xlarank.compute_features(TILE, blocks=[tmp_path / "mine.py"])
    assert table["mine__most__max"].unique().to_list() == [7.0]


def test_the_cause_that_a_block_declares_is_the_cause_of_its_columns(tmp_path: Path) -> None:
    text = TEXT.replace("import Block, ", "import Block, Cause, Column, ")
    text = text.replace('"""Largest bound."""', '"""Largest bound."""\n    cause = Cause.TRAFFIC')
    text = text.replace('"twice as many"', 'Column("twice as many", "the inner loop")')
    assert cause_of("mine__most__max") is Cause.PROGRAM
    load_blocks(written(tmp_path, text))
    assert cause_of("mine__most__max") is Cause.TRAFFIC
    assert cause_of("mine__nodes__count") is Cause.PROGRAM
    assert cause_of("mine__twice__count") is Cause.INNER, "given as text"
    assert column_meanings()["mine__nodes__count"] == "nodes"


def test_the_text_counts_and_the_name_does_not(tmp_path: Path) -> None:
    path = written(tmp_path)
    (first,) = load_blocks(path, path)
    recipe = Recipe.of(FeatureSettings(block_files=(first,)), "tile")
    most, *size = TILE_COLUMNS
    assert first.columns == {"Most": [most], "Size": size}
    assert recipe.columns_version != Recipe.of(FeatureSettings(), "tile").columns_version
    assert from_json(Recipe, json.loads(json.dumps(asdict(recipe)))) == recipe
    for text, same in ((TEXT, True), (TEXT.replace("7.0", "8.0"), False)):
        (other,) = load_blocks(written(tmp_path, text, "other.py"))
        assert (Recipe.of(FeatureSettings(block_files=(other,)), "tile") == recipe) == same


def test_a_file_is_run_only_after_it_was_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stranger's recipe names `mine.py`; the hash of its rows is known without the file."""
    path = written(tmp_path)
    recipe = Recipe.of(FeatureSettings(block_files=load_blocks(path)), "tile")
    monkeypatch.setattr(block_files, "_loaded", {})
    monkeypatch.chdir(tmp_path)
    assert recipe.settings.columns_version("tile") == recipe.columns_version
    (file,) = recipe.settings.block_files
    said = f"needs the blocks of mine.py; .* {file.source_hash}; pass `blocks=mine.py`"
    with pytest.raises(BlockError, match=said):
        assemble(TILE, recipe.settings)
    assert pickle.loads(pickle.dumps(file)) == file and not block_files._loaded
    load_blocks(written(tmp_path, TEXT.replace("7.0", "8.0")))
    with pytest.raises(BlockError, match=r"^mine.py has changed; expected .*train again"):
        assemble(TILE, recipe.settings)
    load_blocks(written(tmp_path))
    assert assemble(TILE, recipe.settings).columns == recipe.settings.columns("tile")


def own_value(graph: TileGraph, settings: FeatureSettings) -> float:
    return float(by_name(assemble(graph, settings))["mine__most__max"][0])


def test_a_worker_gets_the_code_with_the_settings(tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    (tmp_path / "mine.py").unlink()
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        assert pool.submit(own_value, TILE, settings).result() == 7.0


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("mine__most__max", next(iter(BLOCKS[-1].columns)), "is declared by .* and Most"),
        ("mine__nodes__count", "mine__most__max", "is declared by Most and Size"),
        ('"""A constant."""', "pass", "Size has no docstring"),
        ("A constant.", " ", "Size has no docstring"),
        *(
            ("mine__most__max", name, "of Most is not named block__what__how")
            for name in "one one__two a__b__c__d __two__x one____x one__two__ a__[b]__c".split()
        ),
        ('"largest bound"', '""', "has no meaning"),
        ("columns = {", "colums = {", "no attribute 'columns'"),
        ('"layout")', '"layouts")', r"kinds \('tile', 'layouts'\)"),
        ("Scope.GRAPH", "'kernel'", "'kernel' is not a valid Scope"),
        ("scope = ", "cause = 'mine'; scope = ", "'mine' is not a valid Cause"),
        ("scope = ", "tier = 'slow'; scope = ", "'slow' is not a valid Tier"),
        ("scope = ", "transductive = 'no'; scope = ", "Size has transductive 'no'"),
        ('{"mine__most__max": "largest bound"}', "{}", "Most has no columns"),
        ("scope = ", "__init__ = lambda self, k: None; scope = ", "cannot be loaded .TypeError"),
        ("import numpy", "import sys; sys.exit(0); import numpy", "line 2, cannot be .*SystemExit"),
        ("import numpy", "import nosuch", "line 2, cannot be loaded .*nosuch"),
        ("def compute", "de compute", "cannot be loaded .*line 9"),
        ("(Block)", "(object)", "has no blocks; expected subclasses of"),
    ],
)
def test_careless_files_are_refused(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in TEXT
    with pytest.raises(BlockError, match=rf"^mine.py.*{said}"):
        load_blocks(written(tmp_path, TEXT.replace(old, new)))


SUMS = """
from xlarank.features.layout.aggregation import LayoutBlock

class Sums(LayoutBlock):
    \"\"\"Two sums for one column.\"\"\"
    columns = {"mine__sum__share": "changed"}
    def prepare(self, context, aggregation):
        return aggregation.sum([context.type_changed] * 2)
"""


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("np.full((3, 1), 7.0)", r"9: Most gave values of shape \(3, 1\); expected \(4, 1"),
        ("np.full(5, 7.0)", r"9: Most gave values of shape \(5,\); expected \(4, 1\)"),
        ("[[1.0], [2.0, 3.0]]", r"9: Most gave no array .*inhomogeneous"),
        (MOST.replace("7.0", "'x'"), r"9: Most gave values of type <U1; expected"),
        (MOST.replace("7.0", "None"), r"9: Most gave values of type object; expected"),
        (MOST.replace("7.0", "np.inf"), r"9: Most gave inf in the column mine__most"),
        (MOST.replace("7.0", "np.nan"), r"9: Most gave nan in the column mine__most"),
        ("[1.0][1]", rf"10, fails on {re.escape(TILE.name)} \(IndexError"),
        ("__import__('sys').exit(0)", r"10, fails on .* \(SystemExit: 0\)"),
        ("(_ for _ in ()).throw(GeneratorExit)", r"10, fails on .* \(GeneratorExit: Gen"),
        ("context.graph.runtime.fill(1)", r"10, fails on .* \(ValueError: .*read-only"),
        ("context.graph.config_feat.fill(1)", r"10, fails on .* \(ValueError: .*read-only"),
        ("context.graph.group.fill(0)", r"10, fails on .* \(ValueError: .*read-only"),
        ("next(iter(context.columns.values())).fill(0)", r"10, fails on .* \(ValueError: .*read"),
    ],
)
def test_values_that_are_no_numbers_and_odd_errors_name_the_line(tmp_path, value, said):
    with pytest.raises(BlockError, match=f"^mine.py, line {said}"):
        assemble(TILE, settings_of(tmp_path, TEXT.replace(MOST, value)))


def test_blocks_of_a_graph_and_sums_of_another_shape_are_refused(tmp_path):
    for graph, text, shapes in (
        (TILE, TEXT.replace("[1.0, 2.0]", "[1.0]"), r"\(1,\); expected \(2,\)"),
        (LAYOUT, SUMS, r"\(5, 2\); expected \(5, 1\)"),
    ):
        with pytest.raises(BlockError, match=f"gave values of shape {shapes}"):
            assemble(graph, settings_of(tmp_path, text))


def test_a_block_writes_neither_into_built_in_columns_nor_to_standard_output(tmp_path, capsys):
    text = TEXT.replace(
        "        return np.full(",
        """        print("computing")
        context.dims[:] = 1
        context.bounds["output"][:] = 1
        return np.full(""",
    )
    text = f"print('loading')\n{text}".replace("Scope.GRAPH", "'graph'")
    rows = assemble(TILE, settings_of(tmp_path, text))
    plain = assemble(TILE)
    assert by_name(rows).keys() - by_name(plain).keys() == set(TILE_COLUMNS)
    for name, values in by_name(plain).items():
        np.testing.assert_array_equal(by_name(rows)[name], values)
    output = capsys.readouterr()
    assert not output.out and output.err.split() == ["loading", "computing"]


def test_kinds_that_never_meet_may_share_a_name(tmp_path: Path) -> None:
    text = TEXT.replace("mine__most__max", "bounds__kernel_0__log")
    text = text.replace('("tile", "layout")', '("layout",)')
    assert "bounds__kernel_0__log" in settings_of(tmp_path, text).columns("layout")


def test_files_that_cannot_be_used_together_or_read(tmp_path: Path) -> None:
    said = r"mine.py and two.py .*'mine__most__max' is declared by Most and Most"
    with pytest.raises(BlockError, match=said):
        load_blocks(written(tmp_path), written(tmp_path, TEXT + "X = 1\n", "two.py"))
    said = r"cannot be read .*entry point of xlarank.blocks \(none is installed\)"
    with pytest.raises(BlockError, match=said):
        load_blocks(tmp_path / "nowhere.py")


def test_too_little_memory_is_no_fault_of_a_block(tmp_path: Path) -> None:
    text = TEXT.replace(MOST, "(0 for _ in ()).throw(MemoryError)")
    with pytest.raises(MemoryError):
        assemble(TILE, settings_of(tmp_path, text))


def test_an_entry_point_names_an_installed_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, name="plugin_of_the_tests.py")
    monkeypatch.syspath_prepend(tmp_path)
    entry = EntryPoint("plugin", "plugin_of_the_tests", block_files.GROUP)
    monkeypatch.setattr(
        block_files, "entry_points", lambda **wanted: EntryPoints([entry]).select(**wanted)
    )
    settings = FeatureSettings(block_files=load_blocks("plugin"))
    assert settings.block_files[0].name == "plugin" and own_value(TILE, settings) == 7.0
    monkeypatch.setattr(block_files, "_loaded", {})
    assert own_value(TILE, settings) == 7.0, "a model that needs it finds it"
    assert pickle.loads(pickle.dumps(settings)) == settings
    entry = EntryPoint("plugin", "no_module_of_this_name", block_files.GROUP)
    said = "plugin cannot be loaded .*No module named 'no_module_of_this_name'"
    with pytest.raises(BlockError, match=said):
        load_blocks("plugin")
