"""Rankers behind one interface (`base.Ranker`), and how they are judged.

This room sees rows, costs and groups; it knows nothing of npz files or the command line.
"""

import os

# LightGBM's OpenMP threads spin while they wait for each other. Where another process wants the same core,
# that turned a training of 0.2 s into 33 s (measured on 2 cores). It must be set before the library loads.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
