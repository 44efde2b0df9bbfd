"""Lines for a JAX program: TpuGraphs and XLA count minor to major, JAX major to minor."""

import numpy as np

from tests.data.hlo.programs import matmul_module
from xlarank.pipelines.advise.lines import major_to_minor, operation_lines


def test_the_order_agrees_with_strides():
    """Whatever is minor-most in XLA's order has the smallest stride in an array laid out by JAX's."""
    order = [2, 0, 1]
    shape = (3, 4, 5)
    laid_out = np.empty([shape[dimension] for dimension in major_to_minor(order)])
    stride = dict(zip(major_to_minor(order), laid_out.strides, strict=True))
    assert sorted(range(3), key=stride.__getitem__) == order


def test_every_value_is_named_above_its_call():
    dot = matmul_module().computations[1].instructions[2]
    dot.metadata.op_name = "jit(f)/dot_general"
    lines = operation_lines([(dot, (0, 1))])
    assert lines[0] == "from jax.experimental.layout import Layout, with_layout_constraint"
    assert lines[1] == "# dot dot.22: f32[8,128], jit(f)/dot_general"
    assert lines[2] == "y = with_layout_constraint(y, Layout(major_to_minor=(1, 0)))"
    assert operation_lines([]) == []


def test_a_shape_that_only_the_compiler_has_gets_no_line():
    dot = matmul_module().computations[1].instructions[2]
    assert "y = " in operation_lines([(dot, (0, 1))], {(8, 128)})[-1]
    lines = operation_lines([(dot, (0, 1))], {(8, 64)})
    assert not any("y = " in line for line in lines)
    assert "use the edited module" in lines[-1]
