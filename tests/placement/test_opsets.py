"""The opset of a file where its user leaves it open: what the explanations assume and the exporter writes."""

import numpy as np
import pytest

from qdq_workbench.export.build_onnx import choose_opset
from qdq_workbench.export.encodings import Encoding
from qdq_workbench.placement.opsets import is_packed, least_opset
from qdq_workbench.spec.quantizer_spec import QuantizerSpec


def encoding(spec):
    """The encoding of a weight of 16 values."""
    shape = () if spec.block_size is None else (1,)
    return Encoding(np.ones(shape), np.zeros(shape), spec, np.zeros((16,), np.int8))


@pytest.mark.parametrize(
    ("grid", "opset"),
    [
        ({}, 17),
        ({"num_bits": 2}, 17),
        ({"num_bits": 9}, 21),
        ({"num_bits": 16}, 21),
        ({"num_bits": 4, "axis": 0, "block_size": 16}, 21),
    ],
)
def test_the_exporter_chooses_the_same(grid, opset):
    spec = QuantizerSpec(**grid)
    assert least_opset([QuantizerSpec(), spec]) == opset
    assert choose_opset(None, [encoding(spec)]) == opset
    assert least_opset([]) == 17


@pytest.mark.parametrize(("bits", "opset", "packed"), [(4, 20, False), (4, 21, True), (2, 22, True), (5, 21, False)])
def test_which_weights_are_packed(bits, opset, packed):
    assert is_packed(QuantizerSpec(num_bits=bits), opset) is packed


@pytest.mark.parametrize(
    ("grid", "fills"),
    [({}, True), ({"num_bits": 16}, True), ({"num_bits": 7}, False), ({"narrow_range": True}, False)],
)
def test_which_grids_fill_their_type(grid, fills):
    assert QuantizerSpec(**grid).fills_type is fills
