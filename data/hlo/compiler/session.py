"""Client of the compiler process: modules in, outcomes out."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, Self

import xlarank
from xlarank.data.errors import CompilerError, XlarankError
from xlarank.data.hlo.compiler import sweep
from xlarank.data.hlo.compiler.cycles import Estimate
from xlarank.data.hlo.compiler.outcome import Outcome, Status
from xlarank.data.hlo.compiler.screening import Kernels
from xlarank.data.hlo.compiler.service import Compare, Compile, Known, Lower, Measure, Request, Sweep
from xlarank.data.hlo.compiler.targets import Target
from xlarank.data.hlo.compiler.xla import Lowered
from xlarank.data.hlo.messages import Message

#: Not by -m: what is pickled must belong to the module's own name.
_SERVICE: Final = "from xlarank.data.hlo.compiler.service import main; main()"
#: For the other process's PYTHONPATH: it imports this package, installed or not.
_ROOT: Final = str(Path(xlarank.__file__).resolve().parents[1])
#: Seconds for loading jax and libtpu on a busy machine.
_START: Final = 120.0
#: Where dumps of single compilations go: memory where the machine offers it as a folder.
_MEMORY: Final = Path("/dev/shm")


class Compiler:
    """XLA for one target, in a process of its own; use as a context.

    ``jobs`` modules are compiled at a time, each for at most ``limit`` seconds. ``effort`` is XLA's own setting (-1
    halves the time and changes labels; None leaves it).
    Raises `CompilerError` where jax or libtpu is missing, or the machine is not one they run on.
    """

    def __init__(self, target: Target, *, jobs: int = 1, limit: float = 120.0, effort: float | None = None) -> None:
        if not hasattr(os, "fork"):
            raise CompilerError("this system has no fork", expected="Linux on x86-64", do="run it there, or in WSL")
        self.target = target
        self._number, self._jobs, self._limit = 0, jobs, limit
        mine, theirs = socket.socketpair()
        paths = [_ROOT, *filter(None, [os.environ.get("PYTHONPATH")])]
        self._stderr = tempfile.TemporaryFile()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _SERVICE, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=self._stderr,
                stderr=self._stderr,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
                start_new_session=True,  # Ctrl-C goes to the client alone
            )
        self._connection = Connection(mine.detach())
        scratch = str(_MEMORY) if _MEMORY.is_dir() and os.access(_MEMORY, os.W_OK) else None
        try:
            self._connection.send({"target": target, "effort": effort, "jobs": jobs, "scratch": scratch})
            if not self._connection.poll(_START):
                raise CompilerError(f"the compiler did not start within {_START:g} s")
            hello = self._receive()
            if isinstance(hello, CompilerError):
                raise hello
        except BaseException:
            self.close()
            raise
        self.versions: dict[str, str] = hello

    def __enter__(self) -> Self:
        return self

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

    def know(self, estimates: Mapping[str, Estimate], kernels: Kernels | None = None) -> None:
        """Register estimates by fingerprint of an earlier run, so that their code is not generated again, and
        kernels by which to screen others.
        """
        self._send(Known(dict(estimates), kernels or Kernels()))

    def compile(
        self,
        modules: Iterable[Message],
        *,
        limit: float | None = None,
        keep: bool = False,
        screen: float | None = None,
    ) -> Iterator[tuple[int, Outcome]]:
        """Yield position and outcome of every module in order of completion.

        ``limit`` seconds for each, where that is less than the compiler's own. ``keep`` asks for compiled texts and
        remembers their kernels, by which with ``screen`` a program that promises no fewer cycles than these is left
        without code.
        """
        seconds = min(self._limit, limit or self._limit)
        late = Status.GIVEN_UP if seconds < self._limit else Status.TIMEOUT
        asked: dict[int, int] = {}
        waiting = enumerate(modules)
        while True:
            # No more ahead than keeps the service busy: both sides would wait on full pipes.
            for position, module in islice(waiting, self._jobs + 1 - len(asked)):
                request = Compile(seconds, module.SerializeToString(), keep, screen, late=late)
                asked[self._send(request)] = position
            if not asked:
                return
            number, outcome = self._receive()
            if number in asked:  # answers to an abandoned call come late
                yield asked.pop(number), outcome

    def lower(self, *, function: str = "", module: Message | None = None) -> Lowered:
        """Return a program as layout assignment sees it: ``module:function`` or a module in an earlier state.

        Raises `CompilerError` when it cannot be imported or traced, or the compiler does not take it.
        """
        given = b"" if module is None else module.SerializeToString()
        answer = self._ask(Lower(self._limit, function, given))
        if isinstance(answer, Outcome):
            raise CompilerError(
                f"the program does not compile for {self.target.name} ({answer.message or answer.status})",
                expected="a program for one device, without sharding or collectives",
                do="check that it compiles in JAX",
            )
        lowered: Lowered = answer
        return lowered

    def compare(self, plain: Message, edited: Message, seconds: float) -> float | str:
        """Return the largest relative difference of outputs of two modules on random inputs, or why not."""
        modules = [plain.SerializeToString(), edited.SerializeToString()]
        try:
            answer = self._ask(Compare(seconds, modules))
        except CompilerError as error:
            return str(error)
        if isinstance(answer, Outcome):
            return f"not done within {seconds:g} s" if answer.status is Status.TIMEOUT else answer.message
        return float(answer)

    def measure(self, modules: Iterable[Message], *, rounds: int, seed: int) -> list[list[float]]:
        """Return run times of every module on this machine, ``(modules, rounds)`` seconds, in shuffled rounds.

        A module whose outputs differ from the first one's has no times: an empty list.
        Raises `CompilerError` when the programs cannot be run.
        """
        serialized = [module.SerializeToString() for module in modules]
        answer = self._ask(Measure(float("inf"), serialized, rounds, seed))
        if isinstance(answer, Outcome):
            raise CompilerError(
                f"the programs cannot be measured ({answer.message or answer.status})",
                expected="a program that runs on one CPU device",
                do="collect for a TPU target, or fewer configurations",
            )
        times: list[list[float]] = answer
        return times

    def sweep(self, module: Message, folder: Path, limits: list[int], seconds: float) -> None:
        """Compile a module under limits of vector memory; outcomes are files of a folder, which may hold some
        already (`xlarank.data.hlo.compiler.sweep`). What is not done after ``seconds`` has none.
        """
        end, given = time.monotonic() + seconds, module.SerializeToString()
        while left := sweep.remaining(folder, limits):
            answer = self._ask(Sweep(end - time.monotonic(), given, folder.absolute(), limits))
            if isinstance(answer, Outcome):
                if answer.status is Status.TIMEOUT:
                    for limit in sweep.remaining(folder, limits):
                        sweep.fail(folder, limit, f"not compiled within {seconds:.3g} s in all")
                else:
                    running = folder / sweep.RUNNING
                    at = int(running.read_text(encoding="utf-8")) if running.exists() else left[0]
                    sweep.fail(folder, at, answer.message)

    def _send(self, request: Request | Known) -> int:
        """Send a request under a fresh number, and return that."""
        self._number += 1
        self._connection.send((self._number, request))
        return self._number

    def _ask(self, request: Request) -> Any:
        """Return the answer to a request; raise it where it is an error."""
        asked = self._send(request)
        while True:
            number, answer = self._receive()
            if number == asked:  # answers to an abandoned call come late
                if isinstance(answer, XlarankError):
                    raise answer
                return answer

    def _receive(self) -> Any:
        try:
            return self._connection.recv()
        except (EOFError, ConnectionResetError) as error:
            self._process.wait(10)
            self._stderr.seek(0)
            output = self._stderr.read().decode(errors="replace").strip().splitlines()
            raise CompilerError(
                f"the compiler's process ended ({output[-1][:300] if output else 'without output'})",
                do="run it again; what was done is kept",
            ) from error
