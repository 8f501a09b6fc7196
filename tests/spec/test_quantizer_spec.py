"""Grids: their ends, whether they fill their type, and how they are told."""

import pytest

from qdq_workbench.spec import QuantizerSpec


@pytest.mark.parametrize(
    ("fields", "ends", "fills", "label"),
    [
        ({}, (-128, 127), True, "int8"),
        ({"narrow_range": True}, (-127, 127), False, "int8"),
        ({"signed": False}, (0, 255), True, "uint8"),
        ({"signed": False, "narrow_range": True}, (1, 255), False, "uint8"),
        ({"num_bits": 16}, (-32768, 32767), True, "int16"),
        ({"num_bits": 4, "axis": 0}, (-8, 7), False, "int4/axis 0"),
        ({"num_bits": 4, "axis": -1, "block_size": 32}, (-8, 7), False, "int4/blocks of 32 on axis -1"),
    ],
)
def test_a_grid_by_its_fields(fields, ends, fills, label):
    spec = QuantizerSpec(**fields)

    assert ((spec.qmin, spec.qmax), spec.fills_type, spec.label) == (ends, fills, label)
    assert QuantizerSpec.from_dict(spec.to_dict()) == spec
    assert ("block_size" in spec.to_dict()) == ("block_size" in fields)
