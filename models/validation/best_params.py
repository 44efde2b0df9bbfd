"""The best parameters that a study found, as a file: written by tuning, read by training."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from xlarank.data.errors import ModelError
from xlarank.data.files import write_json
from xlarank.data.graph import Kind
from xlarank.models.base import Params
from xlarank.models.registry import ranker_class


@dataclass(frozen=True)
class BestParams:
    """Outcome of a study.

    Attributes:
        model: name of the ranker.
        params, rounds: of the best trial.
        mean, std: its out-of-fold score over graphs.
        select: what the choice went by, one of `xlarank.models.validation.selection.SELECTIONS`.
        graphs: the score of each graph.
        trial: its number in the study.
        folds: families held out together.
        code_hash: of the rows it was tuned on.
    """

    model: str
    params: Params
    rounds: int
    mean: float
    std: float
    select: str
    graphs: dict[str, float]
    trial: int
    folds: list[list[str]]
    code_hash: str

    def save(self, folder: Path) -> None:
        """Write ``best-<model>.json``; those of other rankers stay."""
        write_json(best_file(folder, self.model), asdict(self))


def best_file(folder: Path, model: str) -> Path:
    """Where the best parameters of a ranker lie in the folder of a collection's studies."""
    return folder / f"best-{model}.json"


def load_best(folder: Path, model: str) -> BestParams | None:
    """The best parameters of a ranker, or None where it was not tuned; raises `ModelError` if broken."""
    path = best_file(folder, model)
    if not path.exists():
        return None
    try:
        best = BestParams(**json.loads(path.read_text(encoding="utf-8")))
        if best.model != model:
            raise ValueError(f"it is about {best.model!r}")
        return replace(best, params=dict(best.params))
    except (OSError, ValueError, TypeError) as error:
        raise ModelError(
            f"{path} cannot be read ({error})", expected="the best parameters", do="remove it, or tune again"
        ) from error


def params_for(folder: Path, model: str, kind: Kind) -> tuple[Params, bool]:
    """Parameters for a ranker, and whether any were tuned: those of its own study, else its defaults.

    The members of an ensemble take the parameters of their own studies, where there are any, in place of those
    that the ensemble was tuned with.
    """
    best = load_best(folder, model)
    params = {**ranker_class(model).default_params(kind), **(best.params if best else {})}
    members = tuned_members(folder, model, kind)
    if members:
        params["members"] = {**params["members"], **members}
    return params, best is not None or bool(members)


def tuned_members(folder: Path, model: str, kind: Kind) -> dict[str, Params]:
    """Parameters of the members of an ensemble that have a study of their own; empty for other rankers."""
    names = ranker_class(model).default_params(kind).get("members", {})
    return {name: params for name in names for params, tuned in [params_for(folder, name, kind)] if tuned}
