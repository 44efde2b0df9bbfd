"""What stands behind the labels of a collection."""

from __future__ import annotations

from enum import StrEnum

from xlarank.data.collection import Collection


class LabelSource(StrEnum):
    """What stands behind labels, for people."""

    TPU = "measured on TPU"
    CPU = "measured on CPU"
    ESTIMATE = "estimated by the TPU's compiler, not measured"
    UNKNOWN = "as the files say"


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
