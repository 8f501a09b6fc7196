"""The fake-quant operation that the LiteRT converter reads has the grid of the encoding."""

import numpy as np
import pytest

from qdq_workbench.export.encodings import Encoding
from qdq_workbench.export.litert.fake_quant_model import _FakeQuantize
from qdq_workbench.spec.quantizer_spec import QuantizerSpec
from tests.export.cutting import fake_quantize


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("narrow", [True, False])
def test_narrow_and_wide_grids(narrow, symmetric):
    spec = QuantizerSpec(symmetric=symmetric, narrow_range=narrow)
    encoding = Encoding(np.float32(0.125), np.int32(0 if symmetric else 11), spec)
    codes = np.arange(spec.qmin - 9, spec.qmax + 10)
    values = ((codes - int(encoding.zero_point)) * np.float32(0.125)).astype(np.float32)
    np.testing.assert_array_equal(np.asarray(_FakeQuantize(encoding)(values)), fake_quantize(values, encoding))
