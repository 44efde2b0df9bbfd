"""What a study is about, so that no worker joins one whose scores it cannot add to."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from xlarank.data.errors import XlarankError

if TYPE_CHECKING:
    import optuna

    from xlarank.models.ranking_data import RankingData

#: The attribute of a study that holds it.
ABOUT: Final = "about"
#: What may differ -> how it is told, and what to do about it.
_REASONS: Final[dict[str, tuple[str, str]]] = {
    "columns": ("its columns were made by other feature code or settings", "build its rows as the others' were"),
    "rows": ("its graphs, rows or runtimes are others", "build its rows from the same files as the others'"),
    "folds": ("its folds of program families are others", "use the same version of xlarank on all machines"),
    "members": ("the members of its ensemble have other parameters", "give it the others' studies folder"),
    "rounds": ("its --rounds is {own}, the study's {study}", "pass the same --rounds to all workers"),
    "seed": ("its --seed is {own}, the study's {study}", "pass the same --seed to all workers"),
}


def about(
    data: RankingData,
    folds: Sequence[Sequence[int]],
    *,
    columns: str,
    members: dict[str, Any],
    rounds: int,
    seed: int,
) -> dict[str, Any]:
    """What all workers of a study have in common; digests are SHA-256, cut to 16 digits.

    ``columns`` is the hash of the feature code, its settings and the columns' names.
    """
    rows = hashlib.sha256(repr((data.names, data.families, data.indptr.tolist())).encode())
    rows.update(data.cost.tobytes())
    held = [sorted({data.families[g] for g in fold}) for fold in folds]
    return {
        "columns": columns,
        "rows": rows.hexdigest()[:16],
        "folds": _digest(held),
        "members": _digest(members),
        "rounds": rounds,
        "seed": seed,
    }


def require_own_study(
    storage: optuna.storages.BaseStorage, prefix: str, name: str, own: dict[str, Any], shown: str
) -> None:
    """Raise `XlarankError` unless the studies below ``prefix`` have one of this name, or there is none of them.

    A worker adds to the study that the others are at; one of its own, of other rows, would not be what they share.
    """
    studies = {study.study_name: study.user_attrs.get(ABOUT) for study in storage.get_all_studies()}
    others = {other: kept for other, kept in studies.items() if other.startswith(prefix)}
    if others and name not in others:
        other, kept = next(reversed(others.items()))
        _refuse(shown, other, own, kept or {}, tuple(_REASONS))


def require_same(study: optuna.Study, own: dict[str, Any], shown: str) -> None:
    """Raise `XlarankError` where a study is about something else; a new one keeps what it is about."""
    kept = study.user_attrs.get(ABOUT)
    if kept is None:
        study.set_user_attr(ABOUT, own)
    elif kept != own:
        _refuse(shown, study.study_name, own, kept, tuple(_REASONS))


def _refuse(shown: str, name: str, own: dict[str, Any], kept: dict[str, Any], reasons: Sequence[str]) -> None:
    differs = [reason for reason in reasons if kept.get(reason) != own[reason]] or ["rows"]
    told = [_REASONS[reason][0].format(own=own[reason], study=kept.get(reason, "unknown")) for reason in differs]
    raise XlarankError(
        f"this worker cannot join the study {name} at {shown}: {'; '.join(told)}",
        expected="the same rows and settings in all workers of a study",
        do=f"{_REASONS[differs[0]][1]}, or begin a study of these rows by the same command without --worker",
    )


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]
