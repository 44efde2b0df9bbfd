"""Rankers by name: a loss, or an ensemble of losses, with their parameters."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from xlarank.data.errors import ParameterError, did_you_mean
from xlarank.data.graph import Kind
from xlarank.models.estimators import ESTIMATORS
from xlarank.models.losses import LOSSES
from xlarank.models.member import Member
from xlarank.models.params import Interval, ParamSpec, Specs, complete_params

DEFAULT: Final = "lambdarank"
ENSEMBLE: Final = "ensemble"


def _complete_members(kind: Kind, values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    for name in dict(values):
        if f"weight_{name.replace('-', '_')}" not in _WEIGHTS:
            names = ", ".join(_losses_of_ensemble())
            raise ParameterError(f"{name!r} is not a member of an ensemble", expected=names)
    return {
        name: complete_params(name, LOSSES[name].params, kind, values.get(name))
        for name in _losses_of_ensemble()
    }


#: Weights of the losses of an ensemble.
_weight = partial(
    ParamSpec,
    1.0,
    check=Interval(0),
    search=Interval(0.0, 1.0),
    meaning="weight of the ranks of this loss",
)
_WEIGHTS: Final[Specs] = {
    "weight_lambdarank": _weight(),
    "weight_ranknet": _weight(),
    "weight_xgb_pairwise": _weight(),
}
_ENSEMBLE: Final[Specs] = {
    "members": ParamSpec(
        {}, None, meaning="parameters of each member, by loss", complete=_complete_members
    ),
    **_WEIGHTS,
}


def _losses_of_ensemble() -> list[str]:
    return [name.removeprefix("weight_").replace("_", "-") for name in _WEIGHTS]


def rankers() -> list[str]:
    """Return the names of all rankers, the default first."""
    return [*LOSSES, ENSEMBLE]


def specs_of(ranker: str) -> Specs:
    """Return the parameters of a ranker; raises `ParameterError` for an unknown name."""
    if ranker == ENSEMBLE:
        return _ENSEMBLE
    if ranker in ESTIMATORS:
        return ESTIMATORS[ranker].params
    if ranker not in LOSSES:
        do = did_you_mean(str(ranker), rankers())
        raise ParameterError(f"{ranker!r} is not a model", expected=", ".join(rankers()), do=do)
    return LOSSES[ranker].params


def params_of(ranker: str, kind: Kind, changes: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the parameters of a ranker: the defaults for a kind of graphs, updated by ``changes``.

    Raises `ParameterError` for unknown names and bad values.
    """
    params = complete_params(ranker, specs_of(ranker), kind, changes)
    if ranker == ENSEMBLE and not any(params[name] > 0 for name in _WEIGHTS):
        raise ParameterError("the weights are all 0", expected="one member that counts")
    return params


def members_of(ranker: str, kind: Kind, params: Mapping[str, Any]) -> list[Member]:
    """Return the unfitted members of a ranker; members of an ensemble have positive weights."""
    if ranker != ENSEMBLE:
        return [Member((LOSSES | ESTIMATORS)[ranker], params, kind)]
    members = []
    for name, weight_name in zip(_losses_of_ensemble(), _WEIGHTS, strict=True):
        if params[weight_name] > 0:
            members.append(Member(LOSSES[name], params["members"][name], kind, params[weight_name]))
    return members
