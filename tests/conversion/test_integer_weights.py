import numpy as np
from small_models import residual_net, samples

import qdq_workbench as qdq
from qdq_workbench.conversion.engine.integer_weights import IntegerTensor


def test_integers_scales_and_biases():
    model = residual_net()
    q_model = qdq.quantize_model(model)
    qdq.calibrate(q_model, samples(model), verbose=False)
    found = qdq.integer_weights(q_model)
    stem = found["stem/kernel"]
    assert isinstance(stem, IntegerTensor)
    assert (stem.codes.dtype, stem.axis, stem.num_bits, stem.scale.shape) == (np.int8, 3, 8, (4,))
    assert stem.codes.min() >= -127
    assert np.abs(stem.codes).reshape(-1, 4).max(0).tolist() == [127] * 4
    baked = qdq.strip(q_model, bake_weights=True).get_layer("stem").kernel
    np.testing.assert_array_equal(stem.dequantize(), baked)

    bias = found["head/bias"]
    low, high = q_model.activation_ranges()["pool"]
    assert bias.codes.dtype == np.int32
    np.testing.assert_allclose(bias.scale, max(-low, high) / 127 * found["head/kernel"].scale, rtol=1e-6)
    np.testing.assert_allclose(bias.dequantize(), model.get_layer("head").bias, atol=bias.scale.max())
    assert isinstance(found["norm/gamma"], np.ndarray)


def test_biases_without_a_known_input_range_stay_float():
    found = qdq.integer_weights(qdq.quantize_model(residual_net()))
    assert isinstance(found["head/bias"], np.ndarray)
