"""Measurements run by hand; each prints what it found against a floor or a peer."""

import os

# Before LightGBM loads, as the command line does: threads of OpenMP spin while they wait.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
