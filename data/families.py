"""Families of programs, by the names of their files.

A family is a program at any size, precision or batch. Folds hold out whole families, and too narrow
ones inflate scores, so an ambiguous name belongs to the broader family (all sizes of BERT are one).
"""

from __future__ import annotations

import re

#: Names and spellings. The first match wins: compound names (``mask_rcnn_resnet50``) belong to the
#: more specific architecture.
_ARCHITECTURES = {
    "maskrcnn": "mask_?rcnn",
    "albert": "albert",
    "talking_heads": "talking_heads?",
    # ELECTRA and TensorFlow Hub's experts/bert/* are BERT with other weights
    "bert": "(?:bert|electra|experts_(?:pubmed|wiki))",
    "retinanet": "retinanet",
    "efficientnet": "efficientnet",
    "mobilenet": "mobilenet",
    "mnasnet": "mnasnet",
    "shapemask": "shapemask",
    "resnet": "resnet",
    "unet": "unet",
    "inception": "inception",
    "xception": "xception",
    "alexnet": "alexnet",
    "transformer": "transformer",
    "magenta": "magenta",
    "ssd": "ssd",
    "nmt": "nmt",
}
#: Words that describe how a program is run; a name is cut at the first one.
_SETTING = re.compile(
    r"[._](?:batch|bs|train|eval|test|inference|fp16|fp32|bf16|f16|f32|\d+x\d+|l_\d+|v\d+|\d+"
    r"|dynamic|optimized|natural|official|imagenet|size|shard|seq|sequence)(?=[._]|\d|$)"
)
_SUITE = re.compile(r"^(?:mlperf|tf2|tf|small|experts)_")
_FINGERPRINT = re.compile(r"_-?[0-9a-f]{8,16}$")
_ANONYMOUS = re.compile(r"^[0-9a-f]{32}$")


def program_family(name: str) -> str:
    """Return the family of a program, from its file name without ``.npz``.

    >>> program_family("resnet50.4x4.fp16"), program_family("resnet_v1_50_official_batch_128_bf16")
    ('resnet', 'resnet')
    >>> program_family("cnn_train__a"), program_family("alexnet_train_batch_32_-3006cd0d02fa72c4")
    ('cnn', 'alexnet')

    A file name that is only a hash (Kaggle's test graphs) is its own family.
    """
    if _ANONYMOUS.match(name):
        return name
    if "__" in name:  # family__variant; a training step belongs to the family of its program
        return name.split("__", 1)[0].removesuffix("_train") or name
    plain = _FINGERPRINT.sub("", name).lower().replace("-", "_")
    for family, spelling in _ARCHITECTURES.items():
        if re.search(rf"(?:^|[._]){spelling}", plain):
            return family
    plain = _SUITE.sub("", plain)
    cut = _SETTING.search(plain)
    stem = plain[: cut.start()] if cut else plain
    return stem.rstrip("0123456789_.") or name
