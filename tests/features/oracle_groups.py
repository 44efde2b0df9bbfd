"""Columns of groups of tied nodes, one node of one configuration at a time."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from tests.features.oracle_configs import Configuration, Configured
from xlarank.data.hlo.ties import Tied

KINDS = ("convolution", "dot", "reshape")


def group_columns(graph: Configured, config: Configuration, tied: Sequence[Tied]) -> dict[str, float]:
    """The rule of ties is handed in: it has its own tests."""
    groups: dict[object, list[int]] = {}
    for place in graph.places:
        groups.setdefault(tied[place].signature, []).append(place)
    given, turned, size = {}, {}, {}
    for place in graph.places:
        minor = int(config.rows[place, 0])
        orders = tied[place].orders
        first = orders[0][:1] if orders else ()
        given[place] = minor >= 0
        turned[place] = minor >= 0 and (minor,) != first
        tensor = graph.slot(place, 0)
        size[place] = 0 if tensor is None else tensor.bytes

    def mean(which: dict[int, bool], kinds: Sequence[str] = KINDS) -> float:
        shares = [
            sum(which[place] for place in places) / len(places)
            for places in groups.values()
            if kinds is KINDS or tied[places[0]].signature[0] in kinds
        ]
        return fmean(shares) if shares else 0.0

    def bytes_of(which: dict[int, bool], kind: str | None = None) -> float:
        chosen = [place for place in graph.places if which[place] and kind in (None, tied[place].signature[0])]
        return sum(size[place] for place in chosen) / graph.slot_bytes(0)

    columns = {
        "groups__set__share": mean(given),
        "groups__turned__share": mean(turned),
        "groups__turned_bytes__share": bytes_of(turned),
    }
    for kind in KINDS:
        columns[f"groups__{kind}_turned__share"] = mean(turned, [kind])
        columns[f"groups__{kind}_turned_bytes__share"] = bytes_of(turned, kind)
        columns[f"groups__{kind}_set_bytes__share"] = bytes_of(given, kind)
    return columns
