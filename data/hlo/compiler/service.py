"""The process that owns JAX: receives modules, forks a child for each and sends back the results.

It never compiles itself: a child forked from a process without compiled programs is cheap and free of its threads'
locks, may crash or hang alone, and is ended as soon as its optimised module turns out to be known, before code is
generated for it, which is most of the time.
"""

from __future__ import annotations

import json
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
from typing import Any, Final, TypeAlias

from xlarank.data.errors import XlarankError
from xlarank.data.hlo.compiler.cycles import Estimate, read_estimate
from xlarank.data.hlo.compiler.measuring import compare, measure
from xlarank.data.hlo.compiler.operations import read_operations
from xlarank.data.hlo.compiler.outcome import Outcome, Status, fingerprint
from xlarank.data.hlo.compiler.screening import Kernels
from xlarank.data.hlo.compiler.sweep import sweep
from xlarank.data.hlo.compiler.xla import (
    OPTIMISED,
    Xla,
    compiled_text,
    dumped_before_layout,
    dumped_layouts,
    dumped_leaves,
    dumped_shapes,
    first_line,
)

_POLL: Final = 0.02
_RESULT: Final = "result.json"
_ERROR: Final = "error.pickle"


@dataclass(frozen=True)
class Compile:
    """Request for the estimate of one module.

    Attributes:
        limit: seconds after which it is given up.
        keep: return the compiled text, and remember its kernels.
        screen: generate no code for a program whose kernels promise no fewer cycles than these.
    """

    number: int
    module: bytes
    limit: float | None = None
    keep: bool = False
    screen: float | None = None


@dataclass(frozen=True)
class Lower:
    """Request for a program as layout assignment sees it: that of ``module:function``, or a module."""

    number: int
    function: str = ""
    module: bytes = b""


@dataclass(frozen=True)
class Lowered:
    """A program as layout assignment sees it.

    Attributes:
        module: serialized.
        written: dimensions of all values before the compiler rewrote anything, where known.
        chosen: the layouts that it chose, minor to major, by the names of instructions.
        leaves: paths of a function's inputs and outputs.
    """

    module: bytes
    written: frozenset[tuple[int, ...]] | None
    chosen: dict[str, tuple[int, ...]]
    leaves: list[list[str]]


@dataclass(frozen=True)
class Compare:
    """Request for the largest relative difference between outputs of two modules on this machine."""

    number: int
    modules: list[bytes]
    seconds: float


@dataclass(frozen=True)
class Measure:
    """Request for the run times of modules on this machine; the outputs of the first are the reference."""

    number: int
    modules: list[bytes]
    rounds: int
    seed: int


@dataclass(frozen=True)
class Sweep:
    """Request for a module compiled under limits of vector memory (`xlarank.data.hlo.compiler.sweep`)."""

    number: int
    module: bytes
    folder: Path
    limits: list[int]
    seconds: float


_Request: TypeAlias = Compile | Lower | Compare | Measure | Sweep


@dataclass
class _Job:
    request: _Request
    process: int
    folder: Path
    started: float
    fingerprint: str = ""
    waiting: list[_Job] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started


class Service:
    """Serves one connection until its other end closes."""

    def __init__(self, connection: Connection, xla: Xla, *, jobs: int, limit: float, scratch: Path) -> None:
        self.connection, self.xla = connection, xla
        self.jobs, self.limit, self.scratch = jobs, limit, scratch
        self.queue: deque[_Request] = deque()
        self.running: list[_Job] = []
        self.known: dict[str, Estimate] = {}
        self.kernels = Kernels()

    def serve(self) -> None:
        try:
            while True:
                if self.connection.poll(self._patience()):
                    message = self.connection.recv()
                    if isinstance(message, dict):
                        self.known |= message
                    elif isinstance(message, Kernels):
                        self.kernels.add(message)
                    else:
                        self.queue.append(message)
                while self.queue and len(self.running) < self.jobs:
                    self.running.append(self._start(self.queue.popleft()))
                for job in list(self.running):
                    self._look_at(job)
        except (EOFError, BrokenPipeError, ConnectionResetError):
            pass  # the client is gone
        finally:
            for job in self.running:
                self._end(job)

    def _patience(self) -> float | None:
        """Seconds to wait for a message: without end only when there is nothing to do."""
        if self.running:
            return _POLL
        return 0.0 if self.queue else None

    def _start(self, request: _Request) -> _Job:
        folder = Path(tempfile.mkdtemp(dir=self.scratch))
        works = {Compile: self._compile, Lower: self._lower, Sweep: self._sweep}
        work = works.get(type(request), self._run)
        return _Job(request, _forked(lambda: work(request, folder), folder), folder, time.monotonic())

    def _compile(self, request: Any, folder: Path) -> None:
        text = compiled_text(self.xla.compile(request.module, folder))
        estimate = read_estimate(text)
        _write(
            folder / _RESULT, json.dumps([estimate.cycles, estimate.unknown_loops, text if request.keep else ""])
        )

    def _lower(self, request: Any, folder: Path) -> None:
        if request.function:
            self.xla.lower_function(request.function, folder)
        else:
            self.xla.compile(request.module, folder, "layout-assignment")

    def _run(self, request: Any, folder: Path) -> None:
        if isinstance(request, Compare):
            _write(folder / _RESULT, json.dumps(compare(self.xla, request.modules)))
        else:
            measured = measure(self.xla, request.modules, rounds=request.rounds, seed=request.seed)
            _write(folder / _RESULT, json.dumps(measured))

    def _sweep(self, request: Any, folder: Path) -> None:
        sweep(self.xla, request.module, request.folder, request.limits)
        _write(folder / _RESULT, "[]")

    def _look_at(self, job: _Job) -> None:
        gone = _exited(job.process)  # first, so that nothing it wrote can be overlooked
        error = job.folder / _ERROR
        if isinstance(job.request, Lower):
            if (module := dumped_before_layout(job.folder)) is not None:
                chosen, leaves = dumped_layouts(job.folder), dumped_leaves(job.folder)
                self._answer(job, Lowered(module, dumped_shapes(job.folder), chosen, leaves))
                return
        elif not isinstance(job.request, Compile):
            if (job.folder / _RESULT).exists():
                self._answer(job, json.loads((job.folder / _RESULT).read_text(encoding="utf-8")))
                return
        elif self._compiled(job):
            return
        if error.exists():
            raised = pickle.loads(error.read_bytes())  # our own child wrote it
            self._answer(job, Outcome(Status.FAILED, message=raised) if isinstance(raised, str) else raised)
        elif gone is not None:
            self._answer(job, Outcome(Status.CRASHED, message=f"the compiler's process ended with {gone}"))
        elif job.seconds > (limit := self._limit(job.request)):
            early = isinstance(job.request, Compile) and limit < self.limit
            status = Status.GIVEN_UP if early else Status.TIMEOUT
            self._answer(job, Outcome(status, message=f"not compiled within {limit:.3g} s"))

    def _limit(self, request: _Request) -> float:
        if isinstance(request, Measure):
            return float("inf")
        if isinstance(request, Sweep | Compare):
            return request.seconds
        return min(self.limit, request.limit or self.limit) if isinstance(request, Compile) else self.limit

    def _compiled(self, job: _Job) -> bool:
        """Whether the job was answered, or waits for another one's answer."""
        if not job.fingerprint:
            text = _whole_text(job.folder, OPTIMISED[self.xla.target.platform])
            if text is None:
                return False
            job.fingerprint = fingerprint(text)
            if job.fingerprint in self.known:
                self._answer(job, self._found(job, shared=True))
                return True
            if isinstance(job.request, Compile) and job.request.screen is not None:
                predicted = self.kernels.predict(read_operations(text))
                if predicted >= job.request.screen:
                    self._answer(job, Outcome(Status.SCREENED, Estimate(round(predicted))))
                    return True
            same = (other for other in self.running if other.fingerprint == job.fingerprint and other is not job)
            twin = next(same, None)
            if twin is not None:
                self._end(job)
                self.running.remove(job)
                twin.waiting.append(job)
                return True
        result = job.folder / _RESULT
        if not result.exists():
            return False
        *numbers, text = json.loads(result.read_text(encoding="utf-8"))
        self.known[job.fingerprint] = Estimate(*numbers)
        if text:
            self.kernels.learn(read_operations(text))
        self._answer(job, replace(self._found(job, shared=False), text=text))
        return True

    def _found(self, job: _Job, *, shared: bool) -> Outcome:
        return Outcome(Status.OK, self.known[job.fingerprint], job.fingerprint, shared, job.seconds)

    def _answer(self, job: _Job, answer: Outcome | Lowered | XlarankError | list[list[float]]) -> None:
        self._end(job)
        self.running.remove(job)
        if isinstance(answer, XlarankError) and isinstance(job.request, Compile):
            answer = Outcome(Status.FAILED, message=str(answer))
        if isinstance(answer, Outcome) and answer.status is not Status.OK:
            answer = replace(answer, fingerprint=job.fingerprint, seconds=job.seconds)
        self.connection.send((job.request.number, answer))
        for other in job.waiting:
            same = self._found(other, shared=True) if job.fingerprint in self.known else answer
            self.connection.send((other.request.number, same))

    @staticmethod
    def _end(job: _Job) -> None:
        with suppress(ProcessLookupError):
            os.kill(job.process, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(job.process, 0)
        shutil.rmtree(job.folder, ignore_errors=True)


def _forked(work: Callable[[], None], folder: Path) -> int:
    process = os.fork()
    if process:
        return process
    try:
        work()
    except BaseException as error:  # whatever it is, it concerns this configuration alone
        with suppress(OSError):
            _write(folder / _ERROR, pickle.dumps(error if isinstance(error, XlarankError) else first_line(error)))
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


def _write(path: Path, content: str | bytes) -> None:
    partial = path.with_suffix(".partial")
    partial.write_bytes(content.encode() if isinstance(content, str) else content)
    partial.replace(path)


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
        jobs, limit = settings["jobs"], settings["limit"]
        Service(connection, xla, jobs=jobs, limit=limit, scratch=Path(scratch)).serve()
