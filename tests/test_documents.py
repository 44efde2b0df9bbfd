"""Code blocks of the pages, run in order; links and tables; contents of the wheel."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.results.stored import PAGES, README, in_page, in_readme, path_of, read

ROOT = README.parent
DOCUMENTS = [README, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *PAGES]
for pattern in ("[!.]*/README.md", "[!.]*/*/README.md"):
    DOCUMENTS += sorted(ROOT.glob(pattern))
SUBPACKAGES = ("data", "features", "models", "pipelines")
CODE = [path.relative_to(ROOT) for name in SUBPACKAGES for path in (ROOT / name).rglob("*.py")]
#: Tolerances of figures; smaller for slowdowns, which are near 1.
TOLERANCE = 0.05
SLOWDOWN_TOLERANCE = 0.01
_BLOCK = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.M | re.S)
_NUMBER = re.compile(r"-?\d+\.\d+")


def blocks(page):  # language, title and text
    return _BLOCK.findall(page.read_text(encoding="utf-8"))


def require(shown, printed):
    """Check that lines were printed, in order; ``...`` matches anything."""
    lines = iter(printed.splitlines())
    for expected in filter(None, map(str.strip, shown.splitlines())):
        pattern = re.escape(_NUMBER.sub("NUMBER", expected)).replace(r"\.\.\.", ".*")
        pattern = pattern.replace("NUMBER", f"({_NUMBER.pattern})") + ".*"
        matches = (re.fullmatch(pattern, line.strip()) for line in lines)
        match = next(filter(None, matches), None)
        assert match, f"not printed: {expected}\n{printed}"
        tolerance = SLOWDOWN_TOLERANCE if "slowdown" in expected else TOLERANCE
        numbers = pytest.approx([*map(float, _NUMBER.findall(expected))], rel=0, abs=tolerance)
        assert [*map(float, match.groups())] == numbers, (expected, match[0])


#: Pages whose blocks are run.
RUN = (
    "README.md",
    "docs/tutorials/first-ranking.md",
    "docs/tutorials/own-program.md",
    "docs/tutorials/public-dataset.md",
    "docs/how-to/measurements.md",
    "CONTRIBUTING.md",
    "docs/how-to/own-model.md",
)


@pytest.mark.slow
@pytest.mark.parametrize("page", RUN)
def test_the_blocks_of_a_page_run_and_print_the_shown_lines(page, tmp_path, request):
    """Run the blocks in a folder that looks like a clone, with the package alone."""
    folder = tmp_path / "clone"
    folder.mkdir()
    for name in ("run.py", "data"):
        (folder / name).symlink_to(ROOT / name)
    if page.endswith("own-program.md"):
        pytest.importorskip("libtpu", reason="no libtpu: pip install -e '.[collect]'")
    if page.endswith("measurements.md"):
        pytest.importorskip("jaxlib", reason="no parser of HLO text: pip install -e '.[hlo]'")
    if page.endswith("public-dataset.md"):
        (tmp_path / "data").mkdir()
        (tmp_path / "data/tpugraphs").symlink_to(request.getfixturevalue("real_data"))
    # scikit-learn, which is for tests, is not installed
    (tmp_path / "path").mkdir()
    (tmp_path / "path/sklearn.py").write_text("raise ImportError('not installed')")
    settings = {"PYTHONPATH": f"{tmp_path / 'path'}{os.pathsep}{ROOT}", "HOME": str(tmp_path)}
    settings |= {"COLUMNS": "120", "OMP_NUM_THREADS": "2"}
    settings["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    options = {"cwd": folder, "env": os.environ | settings, "capture_output": True, "text": True}
    printed = None
    for language, title, text in blocks(ROOT / page):
        if title:
            (folder / title).write_text(text, encoding="utf-8")
        elif language == "text":
            require(text, printed or "")
        elif language == "python" or (language == "sh" and page != "README.md"):
            words = ["bash", "-euc", text] if language == "sh" else [sys.executable, "-c", text]
            done = subprocess.run(words, **options, timeout=900)
            assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
            printed = done.stdout
    assert printed is not None
    if page.endswith("own-model.md"):
        assert "ID,TopConfigs" in (folder / "blend.csv").read_text()


def test_the_page_of_json_has_all_fields_of_the_schema():
    page = (ROOT / "docs/reference/json.md").read_text(encoding="utf-8")
    schema = json.loads((ROOT / "docs/reference/schema.json").read_text(encoding="utf-8"))
    rows = re.findall(r"^\| `([a-z-]+)` \| (.*) \|$", page, re.M)
    for name, row in rows:
        definition = schema["$defs"][name]
        fields = definition.get("items", definition).get("properties", ())
        assert [field for field in fields if f"`{field}`" not in row] == [], name
    commands = ("info", "rank", "explain", "evaluate", "train", "tune", "submit", "advise")
    assert {*commands} <= {name for name, _ in rows}


def test_the_readme_and_its_code_are_short():
    lines = README.read_text(encoding="utf-8").splitlines()
    (code,) = (code for language, _, code in blocks(README) if language == "python")
    assert len(lines) <= 110 and len(list(filter(None, code.splitlines()))) <= 10


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_tables_are_of_this_version(page):
    text = page.read_text(encoding="utf-8")
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", text) + re.findall(r'src="([^"]+)"', text)
    assert [link for link in links if not (page.parent / link).exists()] == []
    written = (in_readme if page == README else in_page)(text, read(path_of()))
    assert written == text, "run: python -m benchmarks.results"
    assert text.count("<!-- table: ") == text.count("\n<!-- end of table -->\n")


def test_subpackages_are_relative_links_and_every_folder_of_code_is_a_package():
    links = [str((ROOT / "xlarank" / name).readlink()) for name in SUBPACKAGES]
    assert links == [f"../{name}" for name in SUBPACKAGES]
    assert [path for path in CODE if not (ROOT / path).with_name("__init__.py").is_file()] == []


@pytest.mark.slow
def test_xlarank_is_imported_in_the_folder_that_contains_the_clone(tmp_path):
    """A clone called xlarank looks like a namespace package there."""
    (tmp_path / "xlarank").symlink_to(ROOT)
    code = f"import sys; sys.path.append({str(ROOT)!r}); from xlarank.pipelines.rank import rank"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env={}, check=True)
