"""A forked child ranks and fits as its parent does: it hung where the parent had used several threads."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import xlarank

SCRIPT = """
import os, signal, sys
import numpy as np
from tests.models.rows import COLUMNS, easy_data
from xlarank.models.fit_settings import FitSettings
from xlarank.models.registry import ranker_class

data, settings = easy_data(), FitSettings(3, threads=2)
for name in sys.argv[1:]:
    ranker = ranker_class(name)(kind="layout").fit(data, settings)
    scores = ranker.predict(data.rows, COLUMNS)
    if not (child := os.fork()):
        signal.alarm(30)
        again = ranker.clone().fit(data, settings)
        os._exit(not all(np.array_equal(one.predict(data.rows, COLUMNS), scores) for one in (ranker, again)))
    print(name, os.waitpid(child, 0)[1])
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
def test_a_forked_child_of_a_process_that_used_threads_ends() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT, "lambdarank", "xgb-pairwise"],
        cwd=Path(xlarank.__file__).parent.parent, capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout.splitlines() == ["lambdarank 0", "xgb-pairwise 0"], done.stderr
