"""Command line: parse arguments, call one pipeline, show the result; a module per group."""

import os
import signal

# These variables must be set before numpy and LightGBM load. The matrix products of columns are
# small: threads of OpenBLAS only spin, and double the processor time of an NLP graph.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Threads of OpenMP spin while they wait for each other: on two busy cores a training of 0.2 s took
# 33 s.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")


def main() -> None:
    """Run the command of ``sys.argv``; an interrupted import ends in one line, too."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _leave)
    from xlarank.cli.app import main as run

    run()


def _leave(number: int, frame: object) -> None:
    os.write(2, b"error: interrupted\n")  # nothing has begun
    os._exit(128 + number)
