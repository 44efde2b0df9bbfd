"""Best parameters of studies, kept in the workspace for `train`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from xlarank.data.errors import ModelError
from xlarank.data.files import read_text, write_json
from xlarank.data.graph import Kind
from xlarank.models.losses import params_of, specs_of


def best_file(folder: Path, ranker: str) -> Path:
    return folder / f"best-{ranker}.json"


def save_best(folder: Path, ranker: str, result: Mapping[str, Any]) -> None:
    """Write the chosen trial of a study: its ``params`` and how they were chosen."""
    write_json(best_file(folder, ranker), {"model": ranker, **result})


def load_best(folder: Path, ranker: str) -> dict[str, Any] | None:
    """Return what `save_best` wrote, None without it; raises `ModelError` for a broken file."""
    path = best_file(folder, ranker)
    if not path.exists():
        return None
    try:
        best = json.loads(read_text(path))
        if best["model"] != ranker:
            raise ValueError(f"it is about {best['model']!r}")
        return {**best, "params": dict(best["params"])}
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        got = f"{path} cannot be read ({error})"
        do = "remove it, or tune again"
        raise ModelError(got, expected="the best parameters", do=do) from error


def params_for(folder: Path, ranker: str, kind: Kind) -> tuple[dict[str, Any], bool]:
    """Return the parameters of a ranker and whether tuning changed any.

    Members of an ensemble have their own studies.
    """
    best = load_best(folder, ranker)
    values = best["params"] if best else {}
    members = tuned_members(folder, ranker, kind)
    if members:
        values["members"] = {**values.get("members", {}), **members}
    try:
        params = params_of(ranker, kind, values)
    except ModelError as error:
        got = f"{best_file(folder, ranker)} cannot be used: {error.got}"
        do = f"{error.do + ', or ' if error.do else ''}remove it, or tune again"
        raise ModelError(got, expected=error.expected, do=do) from error
    return params, params != params_of(ranker, kind)


def tuned_members(folder: Path, ranker: str, kind: Kind) -> dict[str, dict[str, Any]]:
    """Return the parameters of an ensemble's tuned members; empty for other rankers."""
    if "members" not in specs_of(ranker):
        return {}
    tuned = {}
    for name in params_of(ranker, kind)["members"]:
        params, is_tuned = params_for(folder, name, kind)
        if is_tuned:
            tuned[name] = params
    return tuned
