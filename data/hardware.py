"""Names of the hardware that configurations are ranked for, and where they come from."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from xlarank.data.errors import ParameterError
from xlarank.data.schema import LEVELS, SPLITS

#: Hardware of the files of the TpuGraphs dataset, whose layouts XLA chose on a TPU v3. Other names
#: are chips, for constraints that are set in a program of one's own.
TPUGRAPHS: Final = "tpugraphs"
#: Sources of the TpuGraphs dataset.
_DATASET: Final = ("xla", "nlp")
TPUS: Final = ("tpu-v3", "tpu-v4", "tpu-v5e", "tpu-v6e")
#: Chip of the dataset's measurements, which programs are compiled for by default.
DEFAULT_CHIP: Final = TPUS[0]
#: Prefixes of GPUs.
GPUS: Final = ("nvidia-", "amd-", "gpu-")
#: Names that `--target` takes, for messages.
WORDS: Final = (
    f"{TPUGRAPHS} for a file of the TpuGraphs dataset, or the chip of your own program: "
    f"{', '.join(TPUS)}, cpu or nvidia-..."
)


def is_hardware(name: str) -> bool:
    """Return whether a name means the dataset or a chip.

    >>> [is_hardware(name) for name in ("tpugraphs", "tpu-v4", "nvidia-h100", "mycompiler", "")]
    [True, True, True, False, False]
    """
    return name in (TPUGRAPHS, "cpu") or name.startswith(("tpu-v", *GPUS))


def hardware_of(source: str) -> str:
    """Return the hardware that the name of a source begins with; empty if it names none.

    >>> sources = ("xla", "cpu-mine", "tpu-estimate", "tpu-v4-estimate", "nvidia-h200-mine", "mine")
    >>> [hardware_of(source) for source in sources]
    ['tpugraphs', 'cpu', 'tpu-v3', 'tpu-v4', 'nvidia-h200', '']
    """
    if source in _DATASET:
        return TPUGRAPHS
    beginning, _, rest = source.partition("-")
    if beginning == "cpu":
        return "cpu"
    if beginning == "tpu" and rest.startswith("estimate"):
        return "tpu-v3"
    if is_hardware(source):
        return "-".join(source.split("-")[:2])
    return ""


def require_hardware(name: str) -> str:
    """Return a name of hardware; raise `ParameterError` for any other."""
    if not is_hardware(name):
        raise ParameterError(f"`target` is {name!r}", expected=WORDS)
    return name


def collection_parts(path: Path) -> tuple[str, ...] | None:
    """Return the folders of the collection that holds a graph file; None outside a data root."""
    parts = path.resolve().parts
    for kind, levels in LEVELS.items():
        folders = parts[-2 - levels.count("/") - 1 : -2]
        if folders[:1] == (kind,) and parts[-2] in SPLITS:
            return folders
    return None
