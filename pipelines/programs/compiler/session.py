"""Client of the compiler process (`xlarank.pipelines.programs.compiler.xla`)."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count, islice
from multiprocessing import Pipe
from pathlib import Path
from typing import Any, Final, cast

from xlarank.data.errors import CompilerError, XlarankError
from xlarank.data.hlo.messages import Message
from xlarank.pipelines.programs.compiler import functions, measuring, xla
from xlarank.pipelines.programs.compiler.chips import chip_named, device_chip
from xlarank.pipelines.programs.compiler.xla import Outcome, fingerprint
from xlarank.pipelines.support.progress import Step

#: Not run by ``-m``: pickled objects must name the module, not ``__main__``.
_SERVICE: Final = "from xlarank.pipelines.programs.compiler.xla import main; main()"
#: Added to the PYTHONPATH of the process, which imports this package, installed or not.
_ROOT: Final = str(Path(__file__).absolute().parents[4])
#: Seconds for loading jax and libtpu on a busy machine.
_START: Final = 120.0


@dataclass(eq=False)
class _Job:
    """Work of a child process; position and fingerprint of the module that it compiles."""

    folder: Path
    limit: float
    position: int = 0
    fingerprint: str = ""
    started: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.started

    def answer(self) -> Any:
        """Return the result of the work, an error or an `Outcome`; None while it runs."""
        path = self.folder / xla.ANSWER
        if path.exists():
            return pickle.loads(path.read_bytes())  # our own process wrote it
        message = f"not done within {self.limit:.3g} s"
        return Outcome("timeout", message=message) if self.seconds > self.limit else None


class Compiler(AbstractContextManager["Compiler", None]):
    """XLA for one of `CHIPS`, in a separate process; a context manager.

    ``jobs`` modules are compiled at a time, each for at most ``limit`` seconds. Raises
    `CompilerError` for an unknown chip, and if jax or libtpu is missing or does not support the
    machine.
    """

    def __init__(self, target: str, *, jobs: int = 1, limit: float = 120.0) -> None:
        if not hasattr(os, "fork"):
            got = "this system has no fork"
            raise CompilerError(got, expected="Linux on x86-64", do="run it there, or in WSL")
        self.target = chip_named(target)
        self.jobs = jobs
        self.limit = limit
        self._numbers = count()
        self._known: dict[str, Outcome] = {}
        self._scratch = Path(tempfile.mkdtemp(prefix="xlarank-"))
        self._connection, child_end = Pipe()
        path = os.pathsep.join(filter(None, [_ROOT, os.environ.get("PYTHONPATH")]))
        self._stderr = tempfile.TemporaryFile()
        with child_end:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _SERVICE, str(child_end.fileno())],
                pass_fds=[child_end.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=self._stderr,
                stderr=self._stderr,
                env=os.environ | {"PYTHONPATH": path},
                start_new_session=True,  # Ctrl-C goes to the client alone
            )
        try:
            self._send(self._scratch, self.target)
            if not self._connection.poll(_START):
                raise CompilerError(f"the compiler did not start within {_START:g} s")
            reply = self._receive()
            if isinstance(reply, CompilerError):
                raise reply
        except BaseException:
            self.close()
            raise
        self.versions: dict[str, str] = reply
        if target == "device":
            self.target = device_chip(reply["device"])
            # a TPU allows one process; a GPU autotunes by timing kernels
            if reply["platform"] != "cpu":
                self.jobs = 1

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process and everything it is compiling."""
        self._connection.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._stderr.close()
        shutil.rmtree(self._scratch, ignore_errors=True)  # in case the process was killed

    def compile(
        self, modules: Iterable[Message], *, keep: bool = False
    ) -> Iterator[tuple[int, Outcome]]:
        """Yield position and outcome of every module in order of completion.

        ``keep`` requests compiled texts. No code is generated for known optimised modules.
        """
        waiting = enumerate(modules)
        running = list[_Job]()
        try:
            while True:
                for position, module in islice(waiting, self.jobs - len(running)):
                    work = partial(xla.compile_module, module=module.SerializeToString(), keep=keep)
                    running.append(self._start(work, self.limit, position))
                if not running:
                    return
                for job in list(running):
                    if (outcome := self._outcome(job)) is not None:
                        running.remove(job)
                        self._end(job)
                        yield job.position, outcome
                self._wait()
        finally:
            for job in running:
                self._end(job)

    def _outcome(self, job: _Job) -> Outcome | None:
        """Return the outcome of a compilation, or of an equal program; None while it runs."""
        answer = job.answer()  # before dumps are read, so that none can be overlooked
        if not job.fingerprint and (text := xla.optimised_text(job.folder, self.target)):
            job.fingerprint = fingerprint(text)
            if known := self._known.get(job.fingerprint):
                return replace(known, shared=True, seconds=job.seconds)
        if answer is None:
            return None
        if isinstance(answer, XlarankError):
            answer = Outcome("failed", message=str(answer))
        key = job.fingerprint or answer.fingerprint
        outcome: Outcome = replace(answer, fingerprint=key, seconds=job.seconds)
        if outcome.ok:
            self._known[key] = outcome
        return outcome

    def lower(self, *, function: str = "", module: Message | None = None) -> xla.Program:
        """Return ``module:function`` or an earlier module as layout assignment sees it.

        Raises `CompilerError` if the program cannot be imported, traced or compiled.
        """
        serialized = b"" if module is None else module.SerializeToString()
        work = partial(functions.lower, function=function, module=serialized)
        answer = self.ask(work, self.limit, xla.dumped_early)
        if isinstance(answer, Outcome):
            got = f"the program does not compile for {self.target.name} ({answer.message})"
            expected = "a program that XLA compiles for one device"
            raise CompilerError(got, expected=expected, do="check that it compiles in JAX")
        return cast(xla.Program, answer)

    def compile_pasted(self, function: str, lines: Sequence[str]) -> str | Outcome:
        """Return the text of a function compiled with pasted lines, or the failure."""
        work = partial(functions.compile_pasted, function=function, lines=lines)
        return cast(str | Outcome, self.ask(work, self.limit))

    def measure(
        self, plain: Message, programs: Mapping[str, Message], *, seed: int, done: int, step: Step
    ) -> Generator[dict[str, float | str], None, None]:
        """Yield rounds: every program's seconds on the device, or the reason for failure.

        `measuring.measure` runs them; ``step`` is called for every program that it loads. If one
        ends the process or reaches the limit when it is loaded or first run, every round holds the
        reason. Raises `CompilerError` if the first cannot be run, or the process ends later.
        """
        work = partial(
            measuring.measure,
            plain=plain.SerializeToString(),
            seed=seed,
            done=done,
            limit=self.limit,
            programs={name: module.SerializeToString() for name, module in programs.items()},
        )
        job = self._start(work, float("inf"))
        attempted = ""
        loads = 0
        try:
            for event, value in self._events(job):
                if event == "round":
                    yield value
                    continue
                attempted = value
                if loads < len(programs):
                    loads += 1
                    step(f"loading program {loads} of {len(programs)}")
            answer = job.answer()
        finally:
            self._end(job)
        if isinstance(answer, XlarankError):
            raise answer
        if attempted in [*programs][1:]:
            remaining = {name: program for name, program in programs.items() if name != attempted}
            step(f"left out: {answer.message}", more=loads)  # the others are loaded again
            for seconds in self.measure(plain, remaining, seed=seed, done=done, step=step):
                yield seconds | {attempted: answer.message}
        elif isinstance(answer, Outcome):
            got = f"the programs cannot be measured ({answer.message})"
            do = "measure fewer configurations; rounds measured so far are kept"
            raise CompilerError(got, expected="programs that run on one device", do=do)

    def _events(self, job: _Job) -> Iterator[list[Any]]:
        """Yield the events of a measurement (`measuring.EVENTS_FILE`) until it ends."""
        path = job.folder / measuring.EVENTS_FILE
        offset = 0
        ended = False
        while not ended:
            ended = job.answer() is not None  # before the events are read: none can be overlooked
            if path.exists():
                with open(path, "rb") as stream:
                    stream.seek(offset)
                    *lines, _ = stream.read().split(b"\n")
                offset += sum(len(line) + 1 for line in lines)
                yield from map(json.loads, lines)
            self._wait()

    def ask(
        self, work: xla.Work, seconds: float, early: Callable[[Path], Any] = lambda folder: None
    ) -> Any:
        """Return the answer, or the first result of ``early`` on the dumps; raise errors."""
        job = self._start(work, seconds)
        try:
            while (answer := job.answer()) is None and (answer := early(job.folder)) is None:
                self._wait()
        finally:
            self._end(job)
        if isinstance(answer, XlarankError):
            raise answer
        return answer

    def _start(self, work: xla.Work, limit: float, position: int = 0) -> _Job:
        job = _Job(self._scratch / str(next(self._numbers)), limit, position)
        self._send(job.folder, work)
        return job

    def _end(self, job: _Job) -> None:
        with suppress(OSError):  # the process has ended, and its children with it
            self._connection.send((job.folder, None))

    def _wait(self) -> None:
        if self._connection.poll(xla.POLL):  # after its start, the process sends only errors
            self._receive()

    def _send(self, *message: Any) -> None:
        try:
            self._connection.send(message)
        except (BrokenPipeError, ConnectionResetError):
            self._receive()

    def _receive(self) -> Any:
        try:
            return self._connection.recv()
        except (EOFError, ConnectionResetError) as error:
            self._process.wait(10)
            self._stderr.seek(0)
            output = self._stderr.read().decode(errors="replace").strip().splitlines()
            last = output[-1][:300] if output else "without output"
            got = f"the compiler's process ended ({last})"
            raise CompilerError(got, do="run it again; what was done is kept") from error
