"""Rankers behind one interface (`base.Ranker`), and their validation."""

import os
import sys

# LightGBM's OpenMP threads spin while they wait for each other: on two busy cores a training of 0.2 s took 33 s.
# The variable must be set before the library loads.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")


def _use_one_thread() -> None:
    """Limit the boosters to one thread in a forked child: more would wait for the parent's OpenMP threads."""
    if lightgbm := sys.modules.get("lightgbm.basic"):
        lightgbm._LIB.LGBM_SetMaxThreads(1)
    if xgboost := sys.modules.get("xgboost"):
        xgboost.set_config(nthread=1)


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_use_one_thread)
