"""Rankers behind one interface (`base.Ranker`), and how they are validated.

This package sees rows, costs and groups; it knows nothing of npz files or the command line.
"""

import os
import sys

# LightGBM's OpenMP threads spin while they wait for each other. Where another process wants the same core,
# that turned a training of 0.2 s into 33 s (measured on 2 cores). It must be set before the library loads.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")


def _use_one_thread() -> None:
    """Keep the boosters to one thread in a forked child.

    The OpenMP threads of the parent do not exist in the child, and the libraries would wait for them for ever.
    """
    if lightgbm := sys.modules.get("lightgbm.basic"):
        lightgbm._LIB.LGBM_SetMaxThreads(1)
    if xgboost := sys.modules.get("xgboost"):
        xgboost.set_config(nthread=1)


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_use_one_thread)
