"""Instances as they were frozen, each by itself: sums over a configuration's hide which of them has which value.

`tests.features.test_snapshots` says how they are frozen anew.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.features.helpers import SAMPLE, load
from tests.graphs import Arrays
from xlarank.data.graph import read_graph
from xlarank.features.assemble import assemble

FROZEN = Path(__file__).parent / "snapshots" / "instance_rows.npz"
GRAPHS = ("random/train/gan__c", "random/train/dlrm__a")


def instance_rows() -> Arrays:
    """``values`` is ``(columns, instances)``, graph after graph, ordered by what an instance is in words."""
    names, values = [""], []
    for name in GRAPHS:
        rows = assemble(read_graph(SAMPLE / f"layout/cpu/{name}.npz"))
        assert rows.instances is not None
        table = rows.instances.value
        at = {part.text: part.instance for config in range(table.configs) for part in table.parts(config)}
        assert set(at.values()) == set(range(len(table)))
        names = table.columns
        values.append(table.values[[at[text] for text in sorted(at)]])
    return {"names": np.array(names), "values": np.concatenate(values).T}


def test_each_instance_is_as_it_was_frozen() -> None:
    before, now = (
        dict(zip(each["names"], each["values"], strict=True)) for each in (load(FROZEN), instance_rows())
    )
    assert before.keys() == now.keys(), "freeze new columns: see the top of test_snapshots.py"
    assert [name for name in before if not np.allclose(now[name], before[name], rtol=1e-5, atol=1e-6)] == []
