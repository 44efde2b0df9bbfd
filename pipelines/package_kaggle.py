"""Package of code and models, a folder or a zip, for a Kaggle notebook without internet."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from xlarank.data.errors import ModelError, WorkspaceError, XlarankError
from xlarank.data.files import atomic_write
from xlarank.data.workspace import Workspace
from xlarank.models.card import CARD
from xlarank.models.model import Model
from xlarank.models.stored import trained_collections
from xlarank.pipelines.training.budget import first_scores

ROOT: Final = Path(__file__).resolve().parents[1]
SUBPACKAGES: Final = ("data/", "features/", "models/", "pipelines/")
METADATA = "dataset-metadata.json"
KERNEL = "kaggle/kernel-metadata.json"
_DATASET: Final = {
    "title": "xlarank code and models",
    "subtitle": "Ranks compiler configurations with boosted trees, offline",
    "licenses": [{"name": "apache-2.0"}],
}
#: Placeholder for the name of the Kaggle account.
NOBODY: Final = "YOUR-KAGGLE-NAME"
#: Tracked files that a run does not need.
_LEFT_OUT: Final = re.compile(r"(tests|benchmarks|docs|\.ci)/|\.gitignore$|(?!README)[A-Z]+\.md$")
#: Requirements of `run.py` that Kaggle's image lacks.
LACKING: Final = ("protobuf>=5", "rich>=13.7", "typer>=0.15")


def package_kaggle(
    out: Path, *, models: Path | None = None, wheelhouse: bool = False, owner: str = NOBODY
) -> tuple[dict[str, bytes], list[str]]:
    """Write atomically the dataset from which `kaggle/xlarank_submission.ipynb` runs; return the
    contents of its files by name, and the collections whose models it has.

    It holds the tracked code with the embedded sample, without tests, benchmarks and docs, and the
    trained models and best parameters of the workspace ``models``. With ``wheelhouse``, it also
    holds wheels of the packages that Kaggle's image lacks. ``owner`` is the name of the Kaggle
    account. ``out`` is a zip if it has that suffix, else a folder. A package or an empty folder is
    replaced, any other folder is refused. Equal files give equal zips.

    Raises `XlarankError` outside a clone or, with ``wheelhouse``, offline, `ModelError` for a
    workspace without models, `WorkspaceError` if ``out`` cannot be written, or if a file is a link,
    whose target is not published.
    """
    if not re.fullmatch(r"[\w-]+", owner):
        expected = "the name of a Kaggle account, as in its URL"
        raise XlarankError(f"`owner` is {owner!r}", expected=expected)
    content = {}
    for name in _tracked():  # without links, the sub-packages are folders of xlarank/
        folder = "xlarank/" if name.startswith(SUBPACKAGES) else ""
        content[folder + name] = _content(ROOT / name, ROOT)
    included = _add_models(models, content) if models is not None else []
    if wheelhouse:
        content |= _wheels()
    metadata = json.dumps({**_DATASET, "id": f"{owner}/xlarank"}, indent=2)
    content[METADATA] = f"{metadata}\n".encode()
    content[KERNEL] = content[KERNEL].replace(NOBODY.encode(), owner.encode())
    (_write_zip if out.suffix == ".zip" else _write_folder)(out, content)
    return content, included


def _tracked() -> list[str]:
    """Return the tracked files that a run needs, sorted; raises `XlarankError` outside a clone."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--full-name", "."]
    listed = ""
    reason = "it tracks no run.py there"
    try:
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        reason = getattr(error, "stderr", None) or str(error)
    needed = [name for name in listed.split("\0") if not _LEFT_OUT.match(name)]
    names = sorted(name for name in needed if (ROOT / name).is_file())
    if "run.py" not in names:
        got = f"git cannot list the files of {ROOT} ({' '.join(reason.split())})"
        do = "run package-kaggle from a clone"
        raise XlarankError(got, expected="a git clone of xlarank", do=do)
    return names


def _content(path: Path, root: Path) -> bytes:
    """Return the file's content; raises `WorkspaceError` if a link below ``root`` leads to it."""
    if path.resolve() != root.resolve() / path.relative_to(root):
        got = f"{path} leads to {path.resolve()}"
        do = "replace the link by what may be published"
        raise WorkspaceError(got, expected="files, no symbolic links", do=do)
    return path.read_bytes()


def _add_models(root: Path, content: dict[str, bytes]) -> list[str]:
    """Add a workspace's models with best parameters, trials and first scores; each must fit."""
    workspace = Workspace(root)
    collections = trained_collections(workspace)
    if not collections:
        do = "run train first, or leave `models` out"
        raise ModelError(f"there is no trained model in {root}", do=do)
    for collection in collections:
        folder = workspace.model(collection)
        study = workspace.study(collection)
        model = Model.load(folder)
        model.require()
        paths = [folder / CARD, first_scores(workspace, collection)]
        for member in model.require_card().members:
            paths += (folder / member).rglob("*")
        paths += [*study.glob("best-*.json"), *study.glob("trials-*.csv")]
        for path in sorted(path for path in paths if path.is_file()):
            content[f"workspace/{path.relative_to(root).as_posix()}"] = _content(path, root)
    return [*map(str, collections)]


def _wheels() -> dict[str, bytes]:
    """Download wheels of the requirements that the image lacks, and of their dependencies."""
    options = (
        "--quiet --disable-pip-version-check --only-binary :all: "
        "--python-version 3.12 --platform manylinux2014_x86_64"
    ).split()
    with tempfile.TemporaryDirectory(prefix="xlarank-wheels-") as folder:
        command = [sys.executable, "-m", "pip", "download", *options, "--dest", folder, *LACKING]
        download = subprocess.run(command, capture_output=True, text=True)
        if download.returncode:
            reason = " ".join(download.stderr.split())[-300:]
            got = f"pip cannot download {', '.join(LACKING)} ({reason})"
            needed = "the notebook does not need these, only run.py does"
            do = f"connect, or leave `wheelhouse` out: {needed}"
            raise XlarankError(got, expected="a connection to a package index", do=do)
        wheels = sorted(Path(folder).glob("*.whl"))
        return {f"wheelhouse/{path.name}": path.read_bytes() for path in wheels}


def _write_zip(out: Path, content: Mapping[str, bytes]) -> None:
    with atomic_write(out) as partial, zipfile.ZipFile(partial, "w", compresslevel=9) as archive:
        for name in sorted(content):
            info = zipfile.ZipInfo(name)  # dated 1980, so that equal files make equal archives
            info.compress_type = zipfile.ZIP_DEFLATED
            info.create_system = 3
            info.external_attr = 0o644 << 16
            archive.writestr(info, content[name])


def _write_folder(out: Path, content: Mapping[str, bytes]) -> None:
    is_package = all((out / name).is_file() for name in (METADATA, "run.py"))
    if out.exists() and not is_package and (not out.is_dir() or any(out.iterdir())):
        got = f"{out} is there already and is no package"
        raise WorkspaceError(got, expected="a new or empty folder", do="pass another `out`")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=out.parent, prefix=".partial-") as scratch:
            fresh = Path(scratch) / "new"
            old = Path(scratch) / "old"
            for name, data in content.items():
                (fresh / name).parent.mkdir(parents=True, exist_ok=True)
                (fresh / name).write_bytes(data)
            if out.exists():
                out.rename(old)
            fresh.rename(out)
    except OSError as error:
        got = f"cannot write {out} ({error.strerror or error})"
        raise WorkspaceError(got, expected="enough space", do="pass another `out`") from error
