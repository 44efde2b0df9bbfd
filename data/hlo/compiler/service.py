"""The process that owns JAX: receives requests, forks a child for each and sends back the results.

It never compiles itself: a child forked from a process without compiled programs is cheap and free of its threads'
locks, may crash or hang alone, and is ended as soon as its optimised module turns out to be known, before code is
generated for it, which is most of the time.
"""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from xlarank.data.errors import XlarankError
from xlarank.data.hlo.compiler.cycles import Estimate, read_estimate
from xlarank.data.hlo.compiler.measuring import compare, measure
from xlarank.data.hlo.compiler.operations import read_operations
from xlarank.data.hlo.compiler.outcome import Outcome, Status, fingerprint
from xlarank.data.hlo.compiler.screening import Kernels
from xlarank.data.hlo.compiler.sweep import sweep
from xlarank.data.hlo.compiler.xla import OPTIMISED, Lowered, Xla, compiled_text, dumped, first_line

_POLL: Final = 0.02
_ANSWER: Final = "answer.pickle"


@dataclass(frozen=True)
class Request:
    """Work for a child, which is ended after ``limit`` seconds and then answered with the status ``late``."""

    limit: float
    late: Status = field(default=Status.TIMEOUT, kw_only=True)

    def run(self, xla: Xla, folder: Path) -> Any:
        """Do the work in the child and return the answer; dumps go to the folder."""
        raise NotImplementedError

    def early(self, folder: Path) -> Any:
        """Return the answer where the dumps give it while the child still works, else None."""
        return None


@dataclass(frozen=True)
class Compile(Request):
    """Request for the estimate of one module.

    Attributes:
        keep: return the compiled text, and remember its kernels.
        screen: generate no code for a program whose kernels promise no fewer cycles than these.
    """

    module: bytes
    keep: bool = False
    screen: float | None = None

    def run(self, xla: Xla, folder: Path) -> Outcome:
        text = compiled_text(xla.compile(self.module, folder))
        return Outcome(Status.OK, read_estimate(text), text=text if self.keep else "")


@dataclass(frozen=True)
class Lower(Request):
    """Request for a program as layout assignment sees it: that of ``module:function``, or a module."""

    function: str = ""
    module: bytes = b""

    def run(self, xla: Xla, folder: Path) -> None:
        if self.function:
            xla.lower_function(self.function, folder)
        else:
            xla.compile(self.module, folder, "layout-assignment")

    def early(self, folder: Path) -> Lowered | None:
        return dumped(folder)


@dataclass(frozen=True)
class Compare(Request):
    """Request for the largest relative difference between outputs of two modules on this machine."""

    modules: list[bytes]

    def run(self, xla: Xla, folder: Path) -> float:
        return compare(xla, self.modules)


@dataclass(frozen=True)
class Measure(Request):
    """Request for the run times of modules on this machine; the outputs of the first are the reference."""

    modules: list[bytes]
    rounds: int
    seed: int

    def run(self, xla: Xla, folder: Path) -> list[list[float]]:
        return measure(xla, self.modules, rounds=self.rounds, seed=self.seed)


@dataclass(frozen=True)
class Sweep(Request):
    """Request for a module compiled under limits of vector memory (`xlarank.data.hlo.compiler.sweep`)."""

    module: bytes
    folder: Path
    limits: list[int]

    def run(self, xla: Xla, folder: Path) -> bool:
        sweep(xla, self.module, self.folder, self.limits)
        return True


@dataclass(frozen=True)
class Known:
    """Estimates by fingerprint and kernels of earlier programs; not answered."""

    estimates: dict[str, Estimate]
    kernels: Kernels


@dataclass
class _Job:
    number: int
    request: Request
    folder: Path
    process: int
    started: float = field(default_factory=time.monotonic)
    fingerprint: str = ""
    waiting: list[_Job] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started


class Service:
    """Serves one connection until its other end closes: takes ``(number, request)``, sends ``(number, answer)``."""

    def __init__(self, connection: Connection, xla: Xla, *, jobs: int, scratch: Path) -> None:
        self.connection, self.xla, self.jobs, self.scratch = connection, xla, jobs, scratch
        self.queue: deque[tuple[int, Request]] = deque()
        self.running: list[_Job] = []
        self.known: dict[str, Estimate] = {}
        self.kernels = Kernels()

    def serve(self) -> None:
        try:
            while True:
                # with nothing to do, it waits for a message without end
                if self.connection.poll(_POLL if self.running else 0.0 if self.queue else None):
                    number, request = self.connection.recv()
                    if isinstance(request, Known):
                        self.known |= request.estimates
                        self.kernels.add(request.kernels)
                    else:
                        self.queue.append((number, request))
                while self.queue and len(self.running) < self.jobs:
                    self.running.append(self._start(*self.queue.popleft()))
                for job in list(self.running):
                    if (answer := self._answer_to(job)) is not None:
                        self._send(job, answer)
        except (EOFError, BrokenPipeError, ConnectionResetError):
            pass  # the client is gone
        finally:
            for job in self.running:
                self._end(job)

    def _start(self, number: int, request: Request) -> _Job:
        folder = Path(tempfile.mkdtemp(dir=self.scratch))
        return _Job(number, request, folder, _forked(lambda: request.run(self.xla, folder), folder / _ANSWER))

    def _answer_to(self, job: _Job) -> Any:
        """Return the answer to a job that is done, known or ended; None while it runs."""
        gone, path = _exited(job.process), job.folder / _ANSWER
        done = path.exists()  # both before dumps are read, so that none can be overlooked
        early = self._known(job) if isinstance(job.request, Compile) else job.request.early(job.folder)
        if early is not None or job not in self.running:
            return early
        answer = pickle.loads(path.read_bytes()) if done else None  # our own child wrote it
        if answer is not None:
            return answer
        if gone is not None:
            return Outcome(Status.CRASHED, message=f"the compiler's process ended with {gone}")
        if job.seconds > job.request.limit:
            return Outcome(job.request.late, message=f"not compiled within {job.request.limit:.3g} s")
        return None

    def _known(self, job: _Job) -> Outcome | None:
        """Return what is known of a module once it is optimised; one that another job compiles waits for that."""
        if job.fingerprint or (text := _whole_text(job.folder, OPTIMISED[self.xla.target.platform])) is None:
            return None
        job.fingerprint = fingerprint(text)
        if job.fingerprint in self.known:
            return Outcome(Status.OK, self.known[job.fingerprint], shared=True)
        screen = job.request.screen if isinstance(job.request, Compile) else None
        if screen is not None and (predicted := self.kernels.predict(read_operations(text))) >= screen:
            return Outcome(Status.SCREENED, Estimate(round(predicted)))
        same = (other for other in self.running if other.fingerprint == job.fingerprint and other is not job)
        if (twin := next(same, None)) is not None:
            self._end(job)
            self.running.remove(job)
            twin.waiting.append(job)
        return None

    def _send(self, job: _Job, answer: Any) -> None:
        self._end(job)
        self.running.remove(job)
        if isinstance(answer, XlarankError) and isinstance(job.request, Compile):
            answer = Outcome(Status.FAILED, message=str(answer))
        if isinstance(answer, Outcome):
            if answer.status is Status.OK and not job.fingerprint:  # labels are stored by fingerprint
                answer = Outcome(Status.CRASHED, message="no optimised module was dumped")
            answer = replace(answer, fingerprint=job.fingerprint, seconds=job.seconds)
            if answer.status is Status.OK:
                self.known[job.fingerprint] = answer.estimate
            if answer.text:
                self.kernels.learn(read_operations(answer.text))
        self.connection.send((job.number, answer))
        for other in job.waiting:
            shared = replace(answer, shared=answer.status is Status.OK, seconds=other.seconds, text="")
            self.connection.send((other.number, shared))

    @staticmethod
    def _end(job: _Job) -> None:
        with suppress(ProcessLookupError):
            os.kill(job.process, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(job.process, 0)
        shutil.rmtree(job.folder, ignore_errors=True)


def _forked(work: Callable[[], Any], path: Path) -> int:
    """Start a child that writes what the work returns, or the error that it raises."""
    process = os.fork()
    if process:
        return process
    try:
        answer = work()
    except XlarankError as error:
        answer = error
    except BaseException as error:  # whatever it is, it concerns this configuration alone
        answer = Outcome(Status.FAILED, message=first_line(error))
    with suppress(OSError):
        partial = path.with_suffix(".partial")
        partial.write_bytes(pickle.dumps(answer))
        partial.replace(path)
    os._exit(0)


def _exited(process: int) -> str | None:
    """Return how a child ended, or None while it runs."""
    try:
        ended, status = os.waitpid(process, os.WNOHANG)
    except ChildProcessError:
        return "an unknown status"
    if not ended:
        return None
    code = os.waitstatus_to_exitcode(status)
    return f"signal {-code}" if code < 0 else f"status {code}"


def _whole_text(folder: Path, pattern: str) -> str | None:
    """The optimised module's text once it is written to its end."""
    for path in folder.glob(pattern):
        text = path.read_text(encoding="utf-8")
        if text.rstrip().endswith("}"):
            return text
    return None


def main() -> None:
    """Answer the process on the other end of a socket, whose file descriptor is the only argument."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the end of the connection is what ends this process
    connection = Connection(int(sys.argv[1]))
    settings = connection.recv()
    try:
        xla = Xla(settings["target"], settings["effort"])
    except XlarankError as error:
        connection.send(error)
        return
    connection.send(xla.versions)
    with tempfile.TemporaryDirectory(prefix="xlarank-", dir=settings["scratch"]) as scratch:
        Service(connection, xla, jobs=settings["jobs"], scratch=Path(scratch)).serve()
