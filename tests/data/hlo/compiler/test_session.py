"""A compiler that crashes, hangs and repeats itself, in a process; what the journal of a run keeps of outcomes."""

import importlib.util
import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from xlarank.data.errors import CompilerError, WorkspaceError
from xlarank.data.hlo.compiler import service, session
from xlarank.data.hlo.compiler.cycles import Estimate
from xlarank.data.hlo.compiler.outcome import Journal, Outcome, Status, fingerprint
from xlarank.data.hlo.compiler.session import Compiler
from xlarank.data.hlo.compiler.targets import target_of
from xlarank.data.hlo.messages import HloModuleProto

TEXT = "HloModule m\n\nENTRY %main (p: f32[8]) -> f32[8] {{\n  ROOT %a = f32[8]{{0}} copy(%p){}\n}}\n"
#: Where the made-up compiler notes the code that it generated.
GENERATED = "XLARANK_TEST_GENERATED"


class Xla:
    """Does what a module's name says; the optimised module depends on the part before the dash."""

    def __init__(self, target, effort):
        self.versions = {"target": target.name, "effort": str(effort)}

    def compile(self, module, options):
        name = HloModuleProto.FromString(module).name
        if name == "crash":
            os.kill(os.getpid(), signal.SIGKILL)
        if name == "leave":
            os._exit(3)
        if name == "refuse":
            raise CompilerError("no such layout")
        if name == "bug":
            raise ValueError("one line\nand another")
        optimised = TEXT.format(f", kind={name.partition('-')[0]}")
        if name == "poor":  # another program of the kernels of "rich"
            optimised = TEXT.format("") + "\n%other () -> f32[] {\n  %c = f32[] constant(0)\n}\n"
        if name != "undumped" and "xla_dump_to" in options:
            dump = Path(options["xla_dump_to"]) / "m.after_optimizations_before_buffer_assignment.txt"
            dump.write_text(optimised)
        if name.startswith("hang"):
            time.sleep(8)
        time.sleep(0.2)  # code generation: time enough to be ended
        with open(os.environ[GENERATED], "a") as stream:
            stream.write(name + "\n")
        text = TEXT.format(f', backend_config={{"estimated_cycles":"{len(name)}"}}')
        return SimpleNamespace(hlo_modules=lambda: [SimpleNamespace(to_string=lambda: text)])


def main():
    service.main(Xla)


@pytest.fixture
def compiler(tmp_path, monkeypatch):
    monkeypatch.setattr(session, "_SERVICE", f"from {__name__} import main; main()")
    monkeypatch.setenv(GENERATED, str(tmp_path / "generated"))
    with Compiler(target_of("tpu-v3"), jobs=3, limit=2.0, effort=-1.0) as made:
        assert made.versions == {"target": "tpu-v3", "effort": "-1.0"}
        scratch = made._scratch
        yield made
    assert not scratch.exists(), "nothing is left behind"


def compiled(compiler, *names, **options):
    found = dict(compiler.compile([HloModuleProto(name=name) for name in names], **options))
    return {names[at]: outcome for at, outcome in found.items()}


@pytest.mark.slow
def test_crashes_hangs_and_repetitions(compiler, tmp_path):
    names = "one", "crash", "one-again", "refuse", "hang", "three", "one-late", "undumped", "leave", "bug"
    found = compiled(compiler, *names)
    assert {name: str(one.status) for name, one in found.items() if one.status is not Status.OK} == {
        "crash": "crashed", "refuse": "failed", "hang": "timeout", "undumped": "crashed", "leave": "crashed",
        "bug": "failed",
    }  # fmt: skip
    assert "signal 9" in found["crash"].message and "status 3" in found["leave"].message
    assert found["undumped"].message == "no optimised module was dumped"
    assert found["refuse"].message == "no such layout" and found["bug"].message == "one line"
    assert found["hang"].message == "not done within 2 s" and found["hang"].seconds > 2
    assert found["three"].estimate.cycles == 5 and not found["three"].text
    ones = [found[name] for name in ("one", "one-again", "one-late")]
    assert len({one.estimate.cycles for one in ones}) == 1
    assert sorted(one.shared for one in ones) == [False, True, True]
    assert len(set((tmp_path / "generated").read_text().split()) & {"one", "one-again", "one-late"}) == 1


@pytest.mark.slow
def test_what_takes_long_or_promises_nothing_is_left(compiler):
    assert compiled(compiler, "hang", limit=0.5)["hang"].status is Status.GIVEN_UP
    assert compiled(compiler, "rich", keep=True)["rich"].text.startswith("HloModule")
    poor = compiled(compiler, "poor", screen=3.0)["poor"]
    assert (poor.status, poor.estimate.cycles) == (Status.SCREENED, 4)  # the kernel of "rich", known by then
    assert compiler.under_limit(HloModuleProto(name="hang"), 512, 0.5) == "not done within 0.5 s"
    found = compiler.compile([HloModuleProto(name=name) for name in ("first", "hang", "hanging")])
    assert next(found)[0] == 0
    found.close()  # ends the others
    assert compiled(compiler, "next")["next"].status is Status.OK
    assert list(compiler._scratch.iterdir()) == []


@pytest.mark.slow
def test_a_process_that_is_gone_is_told(compiler):
    found = compiler.compile([HloModuleProto(name="first"), HloModuleProto(name="hang")])
    next(found)
    compiler._process.kill()
    with pytest.raises(CompilerError, match=r"the compiler's process ended \(without output\); run it again"):
        next(found)
    with pytest.raises(CompilerError, match="the compiler's process ended"):
        compiled(compiler, "first")


@pytest.mark.slow
@pytest.mark.skipif(bool(importlib.util.find_spec("jax")), reason="jax is installed")
def test_without_jax_it_says_what_to_install():
    with pytest.raises(CompilerError, match=r'pip install "xlarank\[collect\]"'):
        Compiler(target_of("tpu-v3"))


ONE = Estimate(12, 1)


def test_a_journal_gives_back_what_was_added_and_drops_a_cut_line(tmp_path):
    path = tmp_path / "journal"
    with Journal(path, {"seed": 0}) as journal:
        journal.add("", Outcome(Status.OK, ONE, "f", False, 1.5))
        journal.add("0:10", Outcome(Status.OK, ONE, "f", True, 0.25))
        journal.add("1:10", Outcome(Status.CRASHED, seconds=2.0, message="signal 11"))
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"configuration": "2:1')
    with Journal(path, {"seed": 0}) as journal:
        assert list(journal.outcomes) == ["", "0:10", "1:10"]
        assert journal.outcomes["0:10"] == Outcome(Status.OK, ONE, "f", True, 0.25)
        assert journal.outcomes["1:10"].message == "signal 11"
        assert journal.estimates == {"f": ONE}
    assert path.read_bytes() == whole


def test_a_journal_of_other_settings_is_refused(tmp_path):
    with Journal(tmp_path / "journal", {"seed": 0, "target": "tpu-v3"}):
        pass
    with pytest.raises(WorkspaceError, match="another seed; expected seed 0"):
        Journal(tmp_path / "journal", {"seed": 1, "target": "tpu-v3"})
    with pytest.raises(WorkspaceError, match="another counting; expected counting of an earlier version"):
        Journal(tmp_path / "journal", {"seed": 0, "target": "tpu-v3", "counting": 2})


def test_names_and_origins_do_not_change_a_fingerprint_but_layouts_do():
    origin = 'metadata={op_name="a{}\\"}" source_line=3}'
    text = f"HloModule a\nENTRY %m {{\n  %x = f32[8]{{0}} add(%a, %b), {origin}, sharding={{replicated}}\n}}"
    assert fingerprint(text) == fingerprint(text.replace("HloModule a", "HloModule b"))
    assert fingerprint(text) == fingerprint(text.replace("%x", "%y.1").replace("source_line=3", "source_line=4"))
    assert fingerprint(text) != fingerprint(text.replace("{0}", "{0:T(128)}"))
    assert fingerprint(text) != fingerprint(text.replace("add(%a, %b)", "add(%a, %a)"))
    assert fingerprint(text) != fingerprint(text.replace("replicated", "maximal"))
