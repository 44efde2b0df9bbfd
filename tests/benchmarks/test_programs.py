"""Programs of the collected graphs: traceable, with siblings, none of a reserved family."""

import pytest

from benchmarks.adopt import RESERVED
from xlarank.data.families import program_family

jax = pytest.importorskip("jax")
programs, tiles = map(pytest.importorskip, ("benchmarks.programs", "benchmarks.tiles"))


def test_no_family_is_reserved():
    assert not {program_family(name) for name in programs.PROGRAMS} & RESERVED
    assert tiles.RESERVED >= {"resnet_bn", "axial", "gnet", "gru", "alexnet"}
    families = {program_family(name) for name, _ in tiles.programs()}
    assert families >= tiles.VALID and not families & tiles.RESERVED


@pytest.mark.parametrize("name", ["llama__a", "alexnet_train__e", "llama__c", "tucker__a"])
def test_a_program_can_be_traced(name):
    function, shapes = programs.PROGRAMS[name]()
    outputs = jax.tree.leaves(jax.eval_shape(function, *shapes))
    if "_train" in name:  # the loss, and every weight one step on
        assert [tuple(out.shape) for out in outputs] == [(), *(tuple(s.shape) for s in shapes[1:])]
    if name.endswith("c"):
        assert {str(s.dtype) for s in shapes} == {"bfloat16"}


def test_siblings_differ_in_sizes_alone():
    for name in ("llama", "outermean", "operator"):
        first, second = (programs.PROGRAMS[f"{name}__{variant}"]()[1] for variant in "ab")
        assert [len(s.shape) for s in first] == [len(s.shape) for s in second]
        assert first[0].shape[0] != second[0].shape[0]
        assert [s.shape for s in first[1:]] == [s.shape for s in second[1:]]
