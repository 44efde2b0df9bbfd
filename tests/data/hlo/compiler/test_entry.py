"""Entry layouts as a module's modes."""

from tests.pipelines.test_advise import product_module
from xlarank.data.hlo.compiler.entry import AUTO, DEFAULT, entry_modes, mode_of, order_of, with_entry_modes
from xlarank.data.hlo.compiler.xla import repaired


def test_modes_stand_in_the_module_and_orders_in_its_entry_layout():
    module = product_module()
    assert entry_modes(module) is None
    edited = with_entry_modes(module, [DEFAULT, "{0,1}"], [AUTO])
    assert entry_modes(edited) == [[DEFAULT, "{0,1}"], [AUTO]]
    layouts = [list(shape.layout.minor_to_major) for shape in edited.host_program_shape.parameters]
    assert layouts == [[1, 0], [0, 1]]
    assert entry_modes(module) is None  # a copy
    again = with_entry_modes(edited, [DEFAULT, DEFAULT], [DEFAULT])
    assert entry_modes(again) is None
    assert not [one.key for one in repaired(edited).frontend_attributes.map]
    assert order_of(mode_of((2, 0, 1))) == (2, 0, 1)
