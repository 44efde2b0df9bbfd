"""collect and advise with the real compiler; skipped without the extra ``collect``."""

import importlib.util
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from xlarank.data.errors import CompilerError
from xlarank.data.graph import read_graph
from xlarank.data.hlo.messages import HloModuleProto
from xlarank.pipelines.programs.advise.advice import advise as advise_program
from xlarank.pipelines.programs.collect import collect
from xlarank.pipelines.programs.compiler.chips import chip_named
from xlarank.pipelines.programs.compiler.constrain import constrain, layouts_of, with_entry_modes
from xlarank.pipelines.programs.compiler.session import Compiler
from xlarank.pipelines.programs.sources import load_program

INSTALLED = all(importlib.util.find_spec(name) for name in ("jax", "libtpu"))
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not INSTALLED, reason="needs the extra collect: jax and libtpu"),
]
PROGRAMS = "tests.pipelines.compiled_programs"
PRODUCTS = f"{PROGRAMS}:products"
TEXTS = f"{PROGRAMS}:texts"


def advise(program, out, target="tpu-v3", **settings):
    return advise_program(program, target=target, out=out, jobs=2, **settings)


def test_labels_are_the_sum_of_cycles_at_the_clock(tmp_path):
    path, manifest, _ = collect(PRODUCTS, tmp_path, configs=5, jobs=2)
    assert path == tmp_path / "npz/layout/tpu-estimate/random/train/products.npz"
    graph = read_graph(path)
    assert (graph.table.rows[graph.table.codes[0]] == -1).all()
    with Compiler("tpu-v3") as compiler:
        ((_, own),) = compiler.compile([load_program(PRODUCTS, compiler).module])
    assert graph.runtime[0] == round(own.cycles / 0.94)
    assert manifest["source"] == "estimated by the TPU's compiler for tpu-v3"
    assert collect(PRODUCTS, tmp_path, configs=5) == (path, manifest, False)
    with pytest.raises(CompilerError, match="another seed"):
        collect(PRODUCTS, tmp_path, configs=5, seed=1)
    path, manifest, _ = collect(f"{PROGRAMS}:loop", tmp_path, configs=3)
    assert manifest["loops_counted_once"] == 0
    assert len(np.unique(read_graph(path).runtime)) > 1


def test_killed_and_run_again_it_gives_the_same_file(tmp_path):
    words = f"-m xlarank collect --program {PRODUCTS} --configs 6 --target tpu-v3"
    command = [sys.executable, *words.split(), "--out", str(tmp_path / "killed")]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    journal = tmp_path / "killed/npz/layout/tpu-estimate/random/train/.products.journal"
    written = 0
    while process.poll() is None and written <= 2:
        time.sleep(0.01)
        written = journal.read_bytes().count(b"\n") if journal.exists() else 0
    process.kill()
    assert process.wait() == -signal.SIGKILL
    whole, _, _ = collect(PRODUCTS, tmp_path / "whole", configs=6)
    again, _, _ = collect(PRODUCTS, tmp_path / "killed", configs=6)
    assert whole.read_bytes() == again.read_bytes() and not journal.exists()


def test_the_cpu_measures_and_checks_outputs(tmp_path):
    path, manifest, _ = collect(PRODUCTS, tmp_path, target="cpu", configs=3)
    assert path == tmp_path / "npz/layout/cpu/random/train/products.npz"
    assert (read_graph(path).runtime > 0).all()
    assert [record["status"] for record in manifest["configurations"]] == ["ok"] * 3
    assert manifest["left_out"] == {} and "measured on this machine" in manifest["source"]
    assert manifest["label"].endswith(f"{manifest['rounds']} shuffled rounds")
    programs = {record["program"] for record in manifest["configurations"]}
    assert manifest["standard_errors"].keys() == programs
    # the device is this CPU
    again = collect(PRODUCTS, tmp_path, target="device", configs=3, minutes=1)
    assert again == (path, manifest, False)


def test_advice_is_measured_on_targets_without_estimates(tmp_path):
    """A matrix that lies by columns, added to one by rows, has to be read across."""
    with Compiler("cpu") as compiler:
        module = load_program(f"{PROGRAMS}:sums", compiler).module
    path = tmp_path / "sums.pb"
    path.write_bytes(with_entry_modes(module, ["{0,1}", "{1,0}"], ["{1,0}"]).SerializeToString())
    advice = advise(str(path), tmp_path, "device", budget=4)
    (change,) = advice.inputs
    assert (change.before, change.minor_to_major) == ((0, 1), (1, 0))
    assert advice.measured["low"] > 1 and advice.is_worthwhile
    assert advice.measured["device"] == "cpu"
    again = advise(str(tmp_path / "sums.advised.pb"), tmp_path, "device", budget=4)
    assert not again.inputs and not again.lines and again.speedup == 1, "nothing more to gain"


def test_advice_is_never_worse_than_the_compilers_own_choice(tmp_path):
    advice = advise(TEXTS, tmp_path, budget=6)
    assert 2 <= advice.compiled["ok"] <= 6 and advice.module_ns < advice.default_ns
    entry = advise(TEXTS, tmp_path / "entry", budget=2)
    assert entry.code_ns == entry.module_ns < entry.default_ns
    assert advice.diagnosis.cycles == sum(cost["cycles"] for cost in advice.diagnosis.operations)
    assert {leaf.name for leaf in advice.inputs} <= {"x", "weights['narrow']", "weights['wide']"}
    edited = HloModuleProto.FromString((tmp_path / "texts.advised.pb").read_bytes())
    with Compiler("tpu-v3") as compiler:
        ((_, outcome),) = compiler.compile([edited])
    assert chip_named("tpu-v3").nanoseconds(outcome.cycles) == advice.module_ns
    assert advise(TEXTS, tmp_path, budget=6) == advice
    again = advise(str(tmp_path / "texts.advised.pb"), tmp_path / "again", budget=1)
    assert again.default_ns == advice.module_ns


def test_the_lines_of_advice_run_in_a_loop_whose_outputs_go_in_again(tmp_path):
    advice = advise(f"{PROGRAMS}:mixing", tmp_path, budget=6)
    script = f"import jax\nfrom {PROGRAMS} import mixing\nstep, arguments = mixing()\n"
    script += "arguments = jax.tree.map(jax.numpy.ones_like, arguments)\n" + "\n".join(advice.lines)
    script += "\nstate, batch = arguments\nfor _ in range(3):\n    state, _ = step(state, batch)\n"
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    subprocess.run([sys.executable, "-c", script], check=True, env=environment)
    assert advice.speedup > 1.02


def test_picked_elements_for_which_the_compiler_has_no_code_are_named(tmp_path):
    fails = r"default fails for tpu-v3.*compiled_programs.py:\d+.*one_hot"
    with pytest.raises(CompilerError, match=fails):
        advise(f"{PROGRAMS}:picked", tmp_path, budget=2)


def test_invalid_programs_are_explained():
    with Compiler("tpu-v3") as compiler:
        for program, told in (
            ("no_such_module:f", "is no program .*ModuleNotFoundError"),
            ("compiled_programs:shapeless", "cannot be traced .*TypeError.*'text'"),
            ("compiled_programs:unfit", "cannot be traced .*TypeError"),
            ("compiled_programs:placed", "without shardings.*without pasted code"),
        ):
            with pytest.raises(CompilerError, match=told):
                load_program(f"tests.pipelines.{program}", compiler)


@pytest.mark.parametrize("name", ["mlp_train__a", "crossattn__a"])
def test_labels_of_another_tool_are_reproduced_exactly(name, real_data):
    """The tool shares no code with this one; files of jax 0.10.2 and libtpu 0.0.42.1."""
    folder = real_data.parent / "tpu_estimate"
    if not folder.is_dir():
        pytest.skip(f"{folder} does not exist")
    module = HloModuleProto.FromString((folder / "modules" / f"{name}.pb").read_bytes())
    graph = read_graph(folder / "npz/layout/tpu-estimate/random/valid" / f"{name}.npz")
    configs = np.random.default_rng(1).choice(graph.configs, 3, replace=False)
    rows = graph.table.rows[graph.table.codes[configs]]
    with Compiler("tpu-v3", jobs=2) as compiler:
        if compiler.versions != {"jax": "0.10.2", "jaxlib": "0.10.2", "libtpu": "0.0.42.1"}:
            pytest.skip(f"the labels are of another compiler: {compiler.versions}")
        orders = [layouts_of(module, graph.configurable, row) for row in rows]
        outcomes = dict(compiler.compile(constrain(module, order) for order in orders))
    labels = [chip_named("tpu-v3").nanoseconds(outcomes[at].cycles) for at in range(len(configs))]
    assert labels == graph.runtime[configs].tolist()
