"""One folder or zip that a Kaggle notebook without internet can run from."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement  # comes with optuna

from xlarank.data.errors import ModelError, WorkspaceError, XlarankError
from xlarank.data.files import atomic_write
from xlarank.data.workspace import Workspace
from xlarank.models.trained import CARD, load_model
from xlarank.pipelines.support.budget import first_scores
from xlarank.pipelines.support.workspace_collections import trained_collections

ROOT: Final = Path(__file__).resolve().parents[1]
SUBPACKAGES: Final = ("data", "features", "models", "pipelines")
METADATA, KERNEL = "dataset-metadata.json", "kaggle/kernel-metadata.json"
_DATASET: Final = {
    "title": "xlarank code and models",
    "subtitle": "Ranks compiler configurations with boosted trees, offline",
    "licenses": [{"name": "apache-2.0"}],
}
#: Where brought models lie in the package: a workspace of its own, beside the code's ``models``.
BROUGHT: Final = "workspace"
#: What git tracks but a run does not need.
_LEFT_OUT: Final = re.compile(r"(tests|benchmarks|docs|\.ci)/|\.gitignore$|[A-Z]+\.md$")
_KEPT: Final = ("README.md",)
#: Versions in Kaggle's image for Python; ``None``: there, in a version nobody pinned.
IMAGE_PYTHON: Final = "3.12"
IMAGE: Final[Mapping[str, str | None]] = {
    "lightgbm": "4.6.0", "xgboost": "3.2.0", "numpy": "2.0", "pandas": "2.2", "polars": "1.35", "scipy": "1.16",
    "pyarrow": "18", "networkx": "3.6", "optuna": None,
}  # fmt: skip
#: The same module by another name.
_SAME: Final = {"xgboost-cpu": "xgboost"}
#: The markers of pyproject.toml are about this machine.
_ENVIRONMENT: Final = {
    "python_version": IMAGE_PYTHON, "platform_system": "Linux", "platform_machine": "x86_64",
    "sys_platform": "linux", "extra": "",
}  # fmt: skip
_PLATFORMS: Final = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")
#: No date before this one fits into a zip.
_DATE: Final = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class Package:
    """What was written: ``files`` of ``size`` bytes in all (before compression).

    ``models`` are the collections whose models it holds, ``wheels`` the packages that the image lacks.
    """

    out: Path
    files: int
    size: int
    models: tuple[str, ...]
    wheels: tuple[str, ...]


def package_kaggle(
    out: Path, *, models: Path | None = None, wheelhouse: bool = False, owner: str = "YOUR-KAGGLE-NAME"
) -> Package:
    """Write the dataset that `kaggle/xlarank_submission.ipynb` runs from, whole or not at all.

    It holds the code as git tracks it, with the embedded sample (1 MB) so that everything can be tried on Kaggle,
    without tests, benchmarks and docs. ``out`` is a zip if it is called so, else a folder; an older package in its
    place is replaced, any other folder is refused. The same clone gives the same zip, byte by byte.

    Args:
        models: a workspace; its trained models and the best parameters of its studies come along.
        wheelhouse: also download what Kaggle's image lacks (`missing_requirements`) as wheels; needs the internet.
        owner: the name of the Kaggle account, for the metadata.

    Raises `XlarankError` outside a clone or offline, `ModelError` for a workspace without models, `WorkspaceError`
    where ``out`` cannot be written and for files that are links: what they point to is not published.
    """
    if not re.fullmatch(r"[\w-]+", owner):
        raise XlarankError(f"--owner is {owner!r}", expected="the name of a Kaggle account, as in its URL")
    content = {_place(name): _own_file(ROOT / name, ROOT) for name in _tracked()}
    brought = _models(models, content) if models is not None else ()
    with tempfile.TemporaryDirectory(prefix="xlarank-package-") as scratch:
        made = Path(scratch)
        wheels = _wheels(made / "wheelhouse") if wheelhouse else ()
        content |= {f"wheelhouse/{path.name}": path for path in sorted(made.glob("wheelhouse/*.whl"))}
        kernel = content[KERNEL].read_text(encoding="utf-8").replace("YOUR-KAGGLE-NAME", owner)
        metadata = json.dumps({**_DATASET, "id": f"{owner}/xlarank"}, indent=2) + "\n"
        for name, text in ((METADATA, metadata), (KERNEL, kernel)):
            content[name] = made / Path(name).name
            content[name].write_text(text, encoding="utf-8")
        size = sum(path.stat().st_size for path in content.values())
        (_write_zip if out.suffix == ".zip" else _write_folder)(out, content)
    return Package(out, len(content), size, brought, wheels)


def missing_requirements(dependencies: list[str]) -> list[str]:
    """Those of a project's dependencies that Kaggle's image lacks or has too old.

    >>> missing_requirements(["numpy>=2.0", "polars>=2", "rich>=13.7", "pywin32; sys_platform == 'win32'"])
    ['polars>=2', 'rich>=13.7']
    """
    missing = []
    for line in dependencies:
        requirement = Requirement(line)
        if requirement.marker is not None and not requirement.marker.evaluate(dict(_ENVIRONMENT)):
            continue
        name = _SAME.get(requirement.name, requirement.name)
        there = IMAGE.get(name)
        if name not in IMAGE or (there is not None and not requirement.specifier.contains(there)):
            missing.append(f"{requirement.name}{requirement.specifier}")
    return missing


def _tracked() -> list[str]:
    """Files of the package that git tracks, sorted; raises `XlarankError` outside a clone."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--full-name", "."]
    try:
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        why = getattr(error, "stderr", None) or str(error)
        raise XlarankError(
            f"git cannot list the files of {ROOT} ({' '.join(why.split())})",
            expected="a git clone of xlarank",
            do="run package-kaggle from a clone",
        ) from error
    names = sorted(name for name in listed.split("\0") if name and (ROOT / name).is_file())
    names = [name for name in names if name in _KEPT or not _LEFT_OUT.match(name)]
    if "run.py" not in names:
        raise XlarankError(f"git tracks no run.py in {ROOT}", expected="a clone", do="run it from a clone")
    return names


def _place(name: str) -> str:
    """Where a file of the clone lies in the package, where links would not survive: sub-packages are real folders.

    >>> _place("features/store.py"), _place("run.py")
    ('xlarank/features/store.py', 'run.py')
    """
    return f"xlarank/{name}" if name.split("/")[0] in SUBPACKAGES else name


def _own_file(path: Path, root: Path) -> Path:
    """The path; raises `WorkspaceError` where it is a link, or lies behind one, below ``root``."""
    if path.resolve() != root.resolve() / path.relative_to(root):
        raise WorkspaceError(
            f"{path} leads to {path.resolve()}",
            expected="files, no symbolic links",
            do="replace the link by what may be published",
        )
    return path


def _models(root: Path, content: dict[str, Path]) -> tuple[str, ...]:
    """Add the models of a workspace and the best parameters of its studies; each model must load."""
    workspace = Workspace(root)
    collections = trained_collections(workspace)
    if not collections:
        raise ModelError(f"there is no trained model in {root}", do="run train first, or leave --models out")
    for collection in collections:
        folder = workspace.model(collection)
        card = load_model(folder).card
        current = card.recipe.settings().code_hash(collection.kind)
        if card.recipe.code_hash != current:
            raise ModelError(
                f"the model of {collection} was trained on rows of feature code {card.recipe.code_hash}",
                expected=f"{current}, the code of this clone",
                do="train again, or package from the clone that it was trained with",
            )
        paths = [folder / CARD, *(path for seed in card.seeds for path in (folder / seed).rglob("*"))]
        for pattern in ("best-*.json", "trials-*.csv"):
            paths += workspace.study(collection).glob(pattern)
        paths.append(first_scores(workspace, collection))
        for path in sorted(path for path in paths if path.is_file()):
            content[f"{BROUGHT}/{path.relative_to(root).as_posix()}"] = _own_file(path, root)
    return tuple(map(str, collections))


def _wheels(folder: Path) -> tuple[str, ...]:
    """Download wheels of what the image lacks, with what those need and the image may lack too."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    missing = missing_requirements(project["dependencies"])
    if not missing:
        return ()
    platforms = [word for platform in _PLATFORMS for word in ("--platform", platform)]
    options = f"--quiet --disable-pip-version-check --only-binary :all: --python-version {IMAGE_PYTHON}"
    command = [sys.executable, "-m", "pip", "download", *options.split(), "--implementation", "cp", *platforms]
    done = subprocess.run([*command, "--dest", str(folder), *missing], capture_output=True, text=True)
    if done.returncode:
        last = [line for line in done.stderr.splitlines() if "ERROR" in line] or done.stderr.splitlines()[-1:]
        raise XlarankError(
            f"pip cannot download {', '.join(missing)} ({' '.join(last)[:300]})",
            expected="a connection to a package index",
            do="connect, or leave --wheelhouse out: the notebook does not need these, only run.py does",
        )
    return tuple(missing)


def _write_zip(out: Path, content: Mapping[str, Path]) -> None:
    with (
        atomic_write(out) as partial,
        zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive,
    ):
        for name in sorted(content):
            info = zipfile.ZipInfo(name, _DATE)
            info.compress_type, info.create_system, info.external_attr = zipfile.ZIP_DEFLATED, 3, 0o644 << 16
            archive.writestr(info, content[name].read_bytes())


def _write_folder(out: Path, content: Mapping[str, Path]) -> None:
    if out.exists() and not (out / METADATA).is_file() and (not out.is_dir() or any(out.iterdir())):
        raise WorkspaceError(
            f"{out} is there already and is no package", expected="a new or empty folder", do="pass another --out"
        )
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=out.parent, prefix=".partial-") as scratch:
            fresh, old = Path(scratch) / "new", Path(scratch) / "old"
            for name, source in content.items():
                target = fresh / name
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, target)
            if out.exists():
                os.rename(out, old)
            os.rename(fresh, out)
    except OSError as error:
        raise WorkspaceError(
            f"cannot write {out} ({error.strerror or error})", expected="enough space", do="pass another --out"
        ) from error
