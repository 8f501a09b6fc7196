"""What TensorFlow cannot compute becomes a named error."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import qdq_workbench as qdq
from qdq_workbench.errors import UnsupportedModelError

SAID_BY_TENSORFLOW = (
    "{{function_node __wrapped__Conv2D_device_/job:localhost}} The Conv2D op currently only supports the NHWC tensor "
    "format on the CPU. The op was given the format: NCHW [Op:Conv2D] name: "
)


def test_an_operation_without_a_kernel_on_this_processor():
    """As convolutions with channels first, where TensorFlow does not use oneDNN."""

    class Without(keras.layers.Layer):
        def call(self, inputs):
            if isinstance(inputs, tf.Tensor) and not tf.inside_function():
                raise tf.errors.UnimplementedError(None, None, SAID_BY_TENSORFLOW)
            return inputs

        def compute_output_shape(self, shape):
            return shape

    x = keras.Input((4,), name="x")
    q_model = qdq.quantize_model(keras.Model(x, keras.layers.Dense(2)(Without()(x))))
    with pytest.raises(UnsupportedModelError, match=r"TF_ENABLE_ONEDNN_OPTS=1.* Received: .*only supports the NHWC"):
        qdq.calibrate(q_model, np.ones((4, 4), np.float32), verbose=False)
