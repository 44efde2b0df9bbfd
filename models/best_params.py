"""The best parameters that a study found, as a file: written by tuning, read by training."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from data.errors import ModelError
from data.files import write_json
from data.graph import Kind
from models.contract import Params
from models.zoo import ranker_class

_FILE: Final = "best.json"


@dataclass(frozen=True)
class BestParams:
    """Outcome of a study.

    Attributes:
        model: name of the ranker.
        params, rounds: of the best trial.
        mean, std: its out-of-fold score over graphs.
        select: what the choice went by, one of `models.selection.SELECTIONS`.
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
        write_json(folder / _FILE, asdict(self))


def load_best(folder: Path) -> BestParams | None:
    """The best parameters of a study, or None where nothing was tuned; raises `ModelError` if broken."""
    path = folder / _FILE
    if not path.exists():
        return None
    try:
        best = BestParams(**json.loads(path.read_text(encoding="utf-8")))
        ranker_class(best.model)
        return replace(best, params=dict(best.params))
    except (OSError, ValueError, TypeError) as error:
        raise ModelError(
            f"{path} cannot be read ({error})", expected="the best parameters", do="remove it, or tune again"
        ) from error


def params_for(folder: Path, model: str, kind: Kind) -> tuple[Params, bool]:
    """Parameters for a ranker and whether they were tuned: a study about this very ranker, else its defaults."""
    best, defaults = load_best(folder), ranker_class(model).default_params(kind)
    if best is None or best.model != model:
        return defaults, False
    return {**defaults, **best.params}, True
