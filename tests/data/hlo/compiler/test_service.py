"""One configuration's misfortune is its own: a service with a compiler that crashes, hangs and repeats itself."""

import os
import signal
import threading
import time
from multiprocessing import Pipe

import pytest

from xlarank.data.errors import CompilerError
from xlarank.data.hlo.compiler.outcome import Status
from xlarank.data.hlo.compiler.service import Compile, Service, Sweep
from xlarank.data.hlo.compiler.targets import target_of

TEXT = "HloModule m\n\nENTRY %main (p: f32[8]) -> f32[8] {{\n  ROOT %a = f32[8]{{0}} copy(%p), {attributes}\n}}\n"


class Executable:
    def __init__(self, name):
        cycles = f'backend_config={{"estimated_cycles":"{len(name)}"}}'
        self.text = TEXT.format(attributes=cycles)

    def hlo_modules(self):
        return [self]

    def to_string(self):
        return self.text


class Xla:
    """Does what a module's bytes say; the optimised module depends on the part before the dash."""

    target = target_of("tpu-v3")

    def __init__(self, generated):
        self.generated = generated

    def compile(self, module, dump=None, overrides=None):
        name = module.decode()
        if name == "sleep":
            time.sleep(60)
        if name == "crash":
            os.kill(os.getpid(), signal.SIGKILL)
        if name == "refuse":
            raise CompilerError("no such layout")
        optimised = TEXT.format(attributes=f"kind={name.partition('-')[0]}")
        if name == "poor":  # another program of the same kernels
            optimised = optimised.replace(
                "HloModule m\n", "HloModule m\n\n%other () -> f32[] {\n  %c = f32[] constant(0)\n}\n"
            )
            optimised = optimised.replace(", kind=poor", "")
        if name != "undumped":
            (dump / "m.after_optimizations_before_buffer_assignment.txt").write_text(optimised)
        if name.startswith("hang"):
            time.sleep(60)
        time.sleep(0.2)  # code generation: time enough to be ended
        with self.generated.open("a") as stream:
            stream.write(name + "\n")
        return Executable(name)


# The service forks by design; from Python 3.12 on doing so beside threads is warned of.
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.slow
def test_crashes_hangs_and_repetitions(tmp_path):
    mine, theirs = Pipe()
    generated = tmp_path / "generated"
    service = Service(theirs, Xla(generated), jobs=3, scratch=tmp_path)
    serving = threading.Thread(target=service.serve)
    serving.start()
    names = ["one", "crash", "one-again", "refuse", "hang", "three", "one-late", "hanging", "undumped"]
    names += ["rich", "poor"]
    try:
        for number, name in enumerate(names[:-1]):
            limit, late = (0.5, Status.GIVEN_UP) if name == "hanging" else (2.0, Status.TIMEOUT)
            mine.send((number, Compile(limit, name.encode(), name == "rich", late=late)))
        found = dict(mine.recv() for _ in names[:-1])
        mine.send((len(names) - 1, Compile(2.0, b"poor", screen=3.0)))
        found |= dict([mine.recv()])
        mine.send((len(names), Sweep(0.5, b"sleep", tmp_path, [0])))
        found |= dict([mine.recv()])
    finally:
        mine.close()
        serving.join(10)
    assert not serving.is_alive()
    outcomes = {name: found[number] for number, name in enumerate(names)}
    assert {name: str(one.status) for name, one in outcomes.items() if one.status is not Status.OK} == {
        "crash": "crashed", "refuse": "failed", "hang": "timeout", "hanging": "given up", "poor": "screened",
        "undumped": "crashed",
    }  # fmt: skip
    assert found[len(names)].status is Status.TIMEOUT, "only a compilation is given up: a sweep goes on after that"
    assert outcomes["rich"].text.startswith("HloModule") and not outcomes["three"].text
    assert outcomes["poor"].estimate.cycles == 4  # the kernel of "rich", known by then
    assert "signal 9" in outcomes["crash"].message
    assert outcomes["undumped"].message == "no optimised module was dumped"
    assert outcomes["refuse"].message == "no such layout"
    assert outcomes["three"].estimate.cycles == 5
    ones = [outcomes[name] for name in ("one", "one-again", "one-late")]
    assert len({one.estimate.cycles for one in ones}) == 1
    assert sorted(one.shared for one in ones) == [False, True, True]
    assert len(set(generated.read_text().split()) & {"one", "one-again", "one-late"}) == 1
    assert [path for path in tmp_path.iterdir() if path.is_dir()] == []  # nothing is left behind
