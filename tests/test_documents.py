"""The README and the tutorials do what they say: their blocks are run, in order; what a wheel holds."""

import inspect
import os
import pydoc
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from benchmarks.results import stored
from benchmarks.results.stored import README, in_page, in_readme, path_of, read
from xlarank.data import errors

ROOT = README.parent
PAGES = [README, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted(ROOT.glob("*/README.md"))]
PAGES += [*sorted(ROOT.glob("*/*/README.md")), *stored.PAGES]
#: A figure of a model may move by so much before the text is wrong: a slowdown@5 less, as it is always near 1.
TOLERANCE, OF_SLOWDOWNS = 0.05, 0.01
_BLOCK = re.compile(r"^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.M | re.S)
_NUMBER = re.compile(r"-?\d+\.\d+")


def blocks(page):
    """Language, title and text of each fenced block."""
    for found in _BLOCK.finditer(page.read_text(encoding="utf-8")):
        yield found[1], found[2] or "", found[3]


def require(shown, printed):
    """Every line that is shown was printed, in order; ``...`` stands for anything, decimals for nearly the same."""
    lines = iter(printed.splitlines())
    for wanted in filter(None, map(str.strip, shown.splitlines())):
        pattern = re.escape(_NUMBER.sub("NUMBER", wanted)).replace(r"\.\.\.", ".*")
        pattern = pattern.replace("NUMBER", r"(-?\d+\.\d+)")
        for line in lines:
            if found := re.fullmatch(f"{pattern}.*", line.strip()):
                numbers = zip(map(float, found.groups()), map(float, _NUMBER.findall(wanted)), strict=True)
                most = OF_SLOWDOWNS if "slowdown" in wanted else TOLERANCE
                assert all(abs(one - other) <= most for one, other in numbers), (wanted, line)
                break
        else:
            raise AssertionError(f"not printed: {wanted}\n{printed}")


def run_blocks(page, folder, languages=("sh", "python"), **variables):
    """Run the blocks of a page in a folder that looks like a clone; what they print is what the page shows."""
    for name in ("run.py", "data"):
        (folder / name).symlink_to(ROOT / name)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    place = {"PYTHONPATH": str(ROOT), "HOME": str(folder), "COLUMNS": "120", "OMP_NUM_THREADS": "2", "PATH": path}
    printed, ran = "", 0
    for language, title, text in blocks(page):
        if title:
            (folder / title).write_text(text, encoding="utf-8")
        elif language == "text":
            require(text, printed)
        elif language in languages:
            words = ["bash", "-euc", text] if language == "sh" else [sys.executable, "-c", text]
            done = subprocess.run(words, cwd=folder, env={**os.environ, **place, **variables}, capture_output=True,
                                  text=True, timeout=900)  # fmt: skip
            assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
            printed, ran = done.stdout, ran + 1
    assert ran


#: What the blocks of a page leave: a file, and text in it.
RUN = {
    "README.md": ("", ""), "docs/tutorials/first-ranking.md": ("", ""), "docs/tutorials/jax-program.md": ("", ""),
    "docs/how-to/own-lightgbm.md": ("blend.csv", "ID,TopConfigs"),
    "docs/how-to/extend.md": ("work/models/layout/cpu/random/model.json", "mine__odd_minor__share"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("page", RUN)
def test_what_pages_show_runs(page, tmp_path):
    if page.endswith("jax-program.md"):
        pytest.importorskip("libtpu", reason="no libtpu: pip install -e '.[collect]'")
    run_blocks(ROOT / page, tmp_path, ("python",) if page == "README.md" else ("sh", "python"))
    file, text = RUN[page]
    assert not file or text in (tmp_path / file).read_text()


@pytest.mark.slow
def test_the_public_dataset(tmp_path, real_data):
    home, folder = tmp_path / "home", tmp_path / "clone"
    folder.mkdir()
    (home / "data").mkdir(parents=True)
    (home / "data" / "tpugraphs").symlink_to(real_data)
    run_blocks(ROOT / "docs/tutorials/public-dataset.md", folder, HOME=str(home))


def test_the_readme_is_short_and_holds_the_figures_of_this_version():
    text = README.read_text(encoding="utf-8")
    (code,) = (code for language, _, code in blocks(README) if language == "python")
    assert len(text.splitlines()) <= 130 and len([line for line in code.splitlines() if line]) <= 10
    own = next(code for language, _, code in blocks(ROOT / "docs/how-to/own-lightgbm.md") if language == "python")
    assert len([line for line in own.splitlines() if line]) <= 20, "it is said to take about 20 lines"
    assert in_readme(text, read(path_of())) == text, "run: python -m benchmarks.results"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_can_be_read_in_the_repository(page):
    """Links lead to files that are there, and tables of results are those of this version."""
    text = page.read_text(encoding="utf-8")
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", text)
    assert [link for link in links if not (page.parent / link).exists()] == []
    assert in_page(text, read(path_of())) == text, "run: python -m benchmarks.results"
    begun, ended = (re.findall(f"^<!-- {line} -->$", text, re.M) for line in ("table: .*", "end of table"))
    assert len(begun) == len(ended)
    assert "<!-- table: measured -->\n\n**" in text or page.name != "index.md"


def test_the_examples_of_the_python_page_are_sections():
    """Text that begins with >>> is a quotation to Markdown."""
    page = (ROOT / "docs/reference/api.md").read_text(encoding="utf-8")
    named = [pydoc.locate(name) for name in re.findall("^::: (.+)$", page, re.M)]
    shown = [*named, *(one for one in vars(errors).values() if isinstance(one, type))]
    texts = [inspect.getdoc(one) or "" for one in shown if one is not errors]
    assert sum("Examples:" in text for text in texts) == 5
    assert [text for text in texts if re.search("^>>>", text, re.M)] == []


SUBPACKAGES = ("data", "features", "models", "pipelines")
CODE = [path.relative_to(ROOT) for name in SUBPACKAGES for path in (ROOT / name).rglob("*.py")]


def test_subpackages_are_relative_links_and_every_folder_of_code_is_a_package():
    links = [str((ROOT / "xlarank" / name).readlink()) for name in SUBPACKAGES]
    assert links == [f"../{name}" for name in SUBPACKAGES]
    assert [path for path in CODE if not (ROOT / path).with_name("__init__.py").is_file()] == []


@pytest.mark.slow
def test_it_is_imported_from_the_folder_that_contains_the_clone(tmp_path):
    """A clone called xlarank looks like a package without files from there; the one that is installed must win."""
    (tmp_path / "xlarank").symlink_to(ROOT)
    code = "import sys; sys.path.append(sys.argv[1]); import xlarank.pipelines.rank; print(xlarank.__version__)"
    assert subprocess.check_output([sys.executable, "-c", code, str(ROOT)], cwd=tmp_path, env={}).strip()


@pytest.mark.slow
def test_a_wheel_holds_code_and_data_as_files(tmp_path):
    clone = tmp_path / "clone"  # a build leaves files in it
    ignored = shutil.ignore_patterns(".*", "work", "build", "tests", "*.egg-info")
    shutil.copytree(ROOT, clone, symlinks=True, ignore=ignored)
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(clone)]
    subprocess.run(build, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    expected = {f"xlarank/{path}" for path in CODE}
    expected |= {f"xlarank/cli/{path.name}" for path in ROOT.glob("xlarank/cli/*.py")}
    assert expected | {"xlarank/data/sample/npz/tile/cpu/test/swish__a.npz", "xlarank/py.typed"} <= names
    assert any(name.startswith("xlarank/models/shipped/") for name in names)
    assert not [name for name in names if name.startswith(("tests/", "benchmarks/", "data/", "run.py"))]
