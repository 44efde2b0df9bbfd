"""What stands behind the labels of a collection, and the columns that tell rankers of several collections.

They are no features of a graph: no stored row has them, and the same rows take others for another collection.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from xlarank.data.collection import Collection


class LabelSource(StrEnum):
    """What stands behind labels, for people."""

    TPU = "measured on TPU"
    CPU = "measured on CPU"
    ESTIMATE = "estimated by the TPU's compiler, not measured"
    UNKNOWN = "as the files say"


#: Columns of the source -> their meaning. They are constant within a graph.
SOURCE_COLUMNS: Final = {
    "source__measured_on_tpu__flag": "1 where the labels were measured on a TPU",
    "source__measured_on_cpu__flag": "1 where the labels were measured on a CPU",
    "source__estimated__flag": "1 where the labels are estimates of the TPU's compiler",
    "source__collection__number": "0 for the ranker's own collection, else the place among those also learned from",
}


def label_source(collection: Collection) -> LabelSource:
    """As far as the collection's name says.

    >>> [label_source(Collection.parse(name)).name for name in ("layout:tpu-estimate:random", "tile:xla")]
    ['ESTIMATE', 'TPU']
    """
    name = collection.parts[1]
    if name == "cpu":
        return LabelSource.CPU
    if "estimate" in name:
        return LabelSource.ESTIMATE
    return LabelSource.TPU if name in ("xla", "nlp") else LabelSource.UNKNOWN


def source_values(collection: Collection, number: int) -> dict[str, float]:
    """Values of `SOURCE_COLUMNS` for rows of a collection, which is 0 or the ``number``-th also learned from.

    >>> list(source_values(Collection.parse("layout:cpu:random"), 2).values())
    [0.0, 1.0, 0.0, 2.0]
    """
    found = label_source(collection)
    flags = [float(found is one) for one in (LabelSource.TPU, LabelSource.CPU, LabelSource.ESTIMATE)]
    return dict(zip(SOURCE_COLUMNS, [*flags, float(number)], strict=True))
