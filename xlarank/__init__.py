"""Rank compiler configurations without running them: gradient-boosted trees on TpuGraphs data.

The rooms ``data``, ``features``, ``models`` and ``pipelines`` are sub-packages. In a clone their folders stand
beside this one, at the top level; in an installed xlarank they stand below it.
"""

from pathlib import Path as _Path

__version__ = "0.2.0"

_here = _Path(__file__).resolve().parent
if not (_here / "data").is_dir():  # a clone
    __path__.append(str(_here.parent))
