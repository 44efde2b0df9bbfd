"""Child processes on this machine, which end with their parent; connections to Dask clusters."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing import resource_tracker
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Any, Final

from xlarank.data.errors import XlarankError

if TYPE_CHECKING:  # optional dependency, imported only if a cluster is used
    from distributed import Client

SAME_CODE: Final = "install the same xlarank on all machines"
#: Seconds to wait for the scheduler, and for its first worker.
_MAX_WAIT: Final = 20.0


@contextmanager
def environment(**variables: str) -> Iterator[None]:
    """Set environment variables for processes started within the block."""
    before = {name: os.environ[name] for name in variables if name in os.environ}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            del os.environ[name]
        os.environ.update(before)


@contextmanager
def interrupts_held_back() -> Iterator[None]:
    """Block Ctrl-C for processes started within the block; this process receives it afterwards."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    # starting the tracker unblocks the signal, so it comes first; its warnings about killed
    # processes are hidden
    with environment(PYTHONWARNINGS="ignore::UserWarning:multiprocessing.resource_tracker"):
        resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_with_parent() -> None:
    """Ignore interrupts, print warnings as single lines, and exit as soon as the parent is gone."""
    warnings.showwarning = _print_warning
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # partial files are removed
    parent = multiprocessing.parent_process()

    def exit_with_parent() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=exit_with_parent, daemon=True).start()


def end_children(children: Iterable[BaseProcess]) -> None:
    """End worker processes; one that is at work removes its partial files first."""
    for child in children:
        while child.is_alive():
            child.terminate()
            child.join(0.2)


def _print_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    print(f"note: {' '.join(str(message).split())}", file=sys.stderr)


@contextmanager
def connected(scheduler: str) -> Iterator[Client]:
    """Yield a client of a scheduler that has workers."""
    try:
        from distributed import Client
    except ImportError as error:
        got = "a cluster was asked for, and Dask is not installed"
        do = "pip install 'xlarank[dask]'"
        raise XlarankError(got, expected="the extra dask", do=do) from error
    with ExitStack() as stack:
        # these loggers report every lost worker
        for name in ("distributed", "distributed.client", "tornado.application"):
            logger = logging.getLogger(name)
            stack.callback(logger.setLevel, logger.level)
            logger.setLevel(logging.CRITICAL + 1)
        try:
            client = Client(scheduler, timeout=_MAX_WAIT, set_as_default=False)
            stack.enter_context(client)
        except (OSError, RuntimeError, ValueError, TypeError, ImportError) as error:
            reason = (str(error) or repr(error)).splitlines()[0]
            got = f"no Dask scheduler answers at {scheduler} ({reason})"
            do = "start one with `dask scheduler`, or check `scheduler`"
            raise XlarankError(got, expected="host:port of a running scheduler", do=do) from error
        require_workers(client, _MAX_WAIT)
        yield client


def require_workers(client: Client, timeout: float) -> int:
    """Return the threads of all workers; raise `XlarankError` if there is none in ``timeout`` s."""
    try:
        client.wait_for_workers(1, timeout=timeout)
    except TimeoutError as error:
        address = client.scheduler.address
        start = f"dask worker {address} --nthreads 1 --nworkers N"
        do = f"start some with `{start}` and run the same command again"
        got = f"the scheduler at {address} has no workers"
        raise XlarankError(got, expected="one or more", do=do) from error
    return sum(client.nthreads().values())
