"""Rankers by name, and the file of their best parameters, written by tuning and read by training."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from xlarank.data.errors import ModelError, ParameterError, did_you_mean
from xlarank.data.files import from_json, read_text, write_json
from xlarank.data.graph import Kind
from xlarank.models.base import Ranker
from xlarank.models.params import RankerParams
from xlarank.models.rankers.ensemble import MEMBERS, Ensemble
from xlarank.models.rankers.sibling import SiblingRanker
from xlarank.models.rankers.time_trees import TimeTrees
from xlarank.models.rankers.wide_rows import LambdaRank

RANKERS: Final[dict[str, type[Ranker[Any]]]] = {
    **MEMBERS,
    **{ranker.name: ranker for ranker in (Ensemble, SiblingRanker, TimeTrees)},
}
DEFAULT: Final = LambdaRank.name


def ranker_class(name: str) -> type[Ranker[Any]]:
    """Return the class of a ranker; raises `ParameterError` for an unknown name."""
    if name not in RANKERS:
        do = did_you_mean(str(name), RANKERS)
        raise ParameterError(f"{name!r} is not a model", expected=", ".join(RANKERS), do=do)
    return RANKERS[name]


@dataclass(frozen=True)
class BestParams:
    """Best trial of a study.

    Attributes:
        mean, std, graphs: out-of-fold scores.
        select: criterion of the choice, one of `xlarank.models.validation.metrics.SELECTIONS`.
        folds: families held out in each fold.
    """

    model: str
    params: dict[str, Any]
    rounds: int
    mean: float
    std: float
    select: str
    graphs: dict[str, float]
    trial: int
    folds: list[list[str]]
    code_hash: str

    def save(self, folder: Path) -> None:
        write_json(best_file(folder, self.model), asdict(self))


def best_file(folder: Path, model: str) -> Path:
    return folder / f"best-{model}.json"


def load_best(folder: Path, model: str) -> BestParams | None:
    """Return the best parameters of a ranker, or None without a study; raises `ModelError` for a broken file."""
    path = best_file(folder, model)
    if not path.exists():
        return None
    try:
        best = from_json(BestParams, json.loads(read_text(path)))
        if best.model != model:
            raise ValueError(f"it is about {best.model!r}")
        return best
    except (OSError, ValueError, TypeError, RecursionError) as error:
        got = f"{path} cannot be read ({error})"
        raise ModelError(got, expected="the best parameters", do="remove it, or tune again") from error


def params_for(folder: Path, model: str, kind: Kind) -> tuple[RankerParams, bool]:
    """Return the parameters of a ranker and whether any were tuned; ensemble members have their own studies."""
    best = load_best(folder, model)
    values = dict(best.params) if best else {}
    members = tuned_members(folder, model, kind)
    if members:
        values["members"] = {**values.get("members", {}), **members}
    try:
        params = ranker_class(model).params_class.of(kind, values)
    except ModelError as error:
        got = f"{best_file(folder, model)} cannot be used: {error.got}"
        do = f"{error.do + ', or ' if error.do else ''}remove it, or tune again"
        raise ModelError(got, expected=error.expected, do=do) from error
    return params, best is not None or bool(members)


def tuned_members(folder: Path, model: str, kind: Kind) -> dict[str, dict[str, Any]]:
    """Return the parameters of an ensemble's tuned members; empty for other rankers."""
    if "members" not in ranker_class(model).params_class.declared():
        return {}
    members = {name: params_for(folder, name, kind) for name in ranker_class(model).part_names}
    return {name: params.values() for name, (params, tuned) in members.items() if tuned}
