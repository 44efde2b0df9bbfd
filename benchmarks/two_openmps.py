"""Folds of XGBoost and of LightGBM in threads of one process, left running and overlapping: whether that ends it.

    python -m benchmarks.two_openmps [--turns 300] [--wait]

Each library brings an OpenMP of its own. A turn begins the folds of four rankers on small made-up rows and leaves
each after one to three of them. Without ``--wait`` the next begins at once, as the product does not: it waits for
folds that were left (`xlarank.models.validation.curves.in_turn`). A crash shows the stacks of all threads.
"""

from __future__ import annotations

import argparse
import faulthandler
import random

from tests.models.rows import easy_data
from xlarank.models.fit_settings import FitSettings
from xlarank.models.registry import ranker_class
from xlarank.models.training_set import TrainingSet
from xlarank.models.validation import curves
from xlarank.models.validation.folds import family_folds

RANKERS = ("xgb-pairwise", "ranknet", "xgb-pairwise", "lambdarank")


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--turns", type=int, default=300)
    parser.add_argument("--wait", action="store_true")
    asked = parser.parse_args()
    faulthandler.enable()
    training = TrainingSet("layout", easy_data(graphs=8, configs=120))
    folds = family_folds(training.data.families, 4)
    rng, begun = random.Random(0), 0
    for turn in range(asked.turns):
        for name in RANKERS:
            settings = FitSettings(30, turn, rng.choice([2, 3, 4]))
            found = curves.validate_folds(training, folds, ranker_class(name)(kind="layout"), settings)
            for _ in range(rng.randrange(1, 4)):
                next(found)
            found.close()
            if not asked.wait:
                curves._LEFT_RUNNING.clear()
            begun += 1
    print(f"{begun} times folds were begun and left; the process lives")


if __name__ == "__main__":
    main()
