"""Labels measured on this machine's CPU."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from xlarank.data.errors import CompilerError
from xlarank.data.hlo.compiler.session import Compiler
from xlarank.models.validation.metrics import kendall_tau
from xlarank.pipelines.programs.sources import Program, constrained

#: Shuffled rounds that everything is run in; the label is the mean of the fastest sixth of them.
ROUNDS: Final = 24
_SHARE: Final = 6


def fastest(times: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean of the fastest sixth of the rounds, ``(programs, rounds) -> (programs,)``, at least one round.

    >>> fastest(np.array([[3.0, 1.0, 2.0, 9.0, 9.0, 9.0, 1.5, 9.0, 9.0, 9.0, 9.0, 9.0]]))
    array([1.25])
    """
    count = max(1, times.shape[1] // _SHARE)
    mean: NDArray[np.float64] = np.sort(times, axis=1)[:, :count].mean(axis=1)
    return mean


def retest_tau(times: NDArray[np.float64]) -> float:
    """Kendall tau between the labels of the even and of the odd rounds: what a perfect ranker could reach."""
    return float(kendall_tau(fastest(times[:, ::2]), fastest(times[:, 1::2])))


def measured_labels(
    compiler: Compiler, program: Program, rows: NDArray[np.int8], fingerprints: list[str], seed: int
) -> tuple[NDArray[np.int64], dict[str, Any]]:
    """``(configs,)`` nanoseconds of configurations ``rows (configs, nodes, 18)``, 0 where outputs are wrong; facts.

    Configurations that became the same program share one label, so ties are real.
    Raises `CompilerError` when the program cannot be run here.
    """
    distinct = list(dict.fromkeys(fingerprints))
    first = [fingerprints.index(one) for one in distinct]
    modules = [constrained(program, rows[at]) for at in first]
    found = compiler.measure(modules, rounds=ROUNDS, seed=seed)
    sound = [at for at, times in enumerate(found) if times]
    if 0 not in sound:
        raise CompilerError(
            "the program's outputs are not the same from run to run", expected="a program without randomness"
        )
    times = np.array([found[at] for at in sound])
    label = dict(zip((distinct[at] for at in sound), np.round(fastest(times) * 1e9).astype(np.int64), strict=True))
    facts = {
        "rounds": ROUNDS,
        "distinct_programs": len(distinct),
        "retest_tau": round(retest_tau(times), 4) if len(sound) > 1 else None,
        "wrong_outputs": len(distinct) - len(sound),
    }
    return np.array([label.get(one, 0) for one in fingerprints], np.int64), facts
