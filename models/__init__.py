"""The model (`model.Model`), its losses and boosters, and validation."""

import os

# LightGBM's OpenMP threads spin while they wait for each other: on two busy cores a training of 0.2
# s took 33 s. The variable must be set before the library loads.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
