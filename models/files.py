"""Models on disk: a card, which names a folder and a checksum for each member."""

from __future__ import annotations

import hashlib
import platform
import secrets
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path

from xlarank.data.errors import ModelError, WorkspaceError
from xlarank.data.files import read_bytes, remedy, write_json
from xlarank.models.card import CARD, ModelCard, read_card, unusable
from xlarank.models.estimators import ESTIMATORS
from xlarank.models.losses import LOSSES, params_of
from xlarank.models.member import Member

_PREFIX = "members-"


def write_model(folder: Path, members: Sequence[Member], card: ModelCard) -> ModelCard:
    """Write a model in place of an earlier one: members, then their card, which is returned.

    Raises `WorkspaceError`, and `ModelError` if the members could not be read back.
    """
    new_folder = folder / f"{_PREFIX}{secrets.token_hex(4)}"
    try:
        new_folder.mkdir(parents=True)
        checksums = {}
        for number, member in enumerate(members):
            path = new_folder / f"{number:02}-{member.loss.name}"
            path.mkdir()
            member.save(path)
            checksums[f"{new_folder.name}/{path.name}"] = _checksum(path)
        card = replace(card, versions=library_versions(), members=checksums)
        read_members(folder, card)
        write_json(folder / CARD, asdict(card))
    except BaseException as error:
        shutil.rmtree(new_folder, ignore_errors=True)
        if not isinstance(error, OSError):
            raise
        got = f"cannot write {folder} ({error.strerror or error})"
        do = remedy(error, "pass another `workspace`")
        expected = "enough space and a folder that can be written to"
        raise WorkspaceError(got, expected=expected, do=do) from error
    for old in {*folder.glob(f"{_PREFIX}*")} - {new_folder}:
        shutil.rmtree(old, ignore_errors=True)
    return card


def read_model(folder: Path) -> tuple[ModelCard, list[Member]]:
    """Read the card and the members; raises `ModelError` if any is missing or damaged."""
    while True:
        card = read_card(folder)
        try:
            return card, read_members(folder, card)
        except ModelError:
            if read_card(folder).members == card.members:
                raise  # otherwise another process has replaced the model


def read_members(folder: Path, card: ModelCard) -> list[Member]:
    """Read the members that a card names; raises `ModelError` if any is damaged."""
    members = []
    try:
        for name, checksum in card.members.items():
            path = (folder / name).resolve()
            if path != folder.resolve() / name or Path(name).is_absolute():
                raise ValueError(f"{name} lies outside the model")
            if _checksum(path) != checksum:
                raise ValueError(f"{name} has changed since it was written")
            members.append(Member.load(path, LOSSES | ESTIMATORS, card.kind, card.columns))
        if bool(members) == bool(card.rule):
            raise ValueError("both members and a rule" if members else "no members")
        if not {*card.rule} <= {*card.columns}:
            raise ValueError("its rule is of other columns")
        params_of(card.model, card.kind, card.params)  # raises for unknown names and bad values
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise unusable(folder / CARD, error) from error
    return members


def _checksum(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if not path.is_dir()):
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + read_bytes(path))
    return digest.hexdigest()


def library_versions() -> dict[str, str]:
    """Return the versions of Python and of the libraries that scores depend on."""
    versions = {"python": platform.python_version()}
    for name in ("lightgbm", "xgboost", "xgboost-cpu", "numpy", "scipy", "xlarank"):
        versions[name] = "not installed"  # optional, or a clone that was not installed
        with suppress(ModuleNotFoundError):
            versions[name] = version(name)
    return versions
