"""What a run of learned rounding refuses: a float model whose outputs are not finite."""

import numpy as np
import pytest
import tensorflow as tf

from qdq_workbench.errors import DataError
from qdq_workbench.post_training.rounding.run import _check_finite


def test_targets_that_are_finite_or_integers_can_be_matched():
    _check_finite({"a": np.ones(2, np.float32), "tokens": np.array([1, 2]), "a:mask": np.array([True])})


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", ["float16", "float32", "bfloat16"])
def test_the_tensor_that_is_not_finite_is_named(bad, dtype):
    with pytest.raises(DataError, match=r"The float model computes NaN or infinity.* Received: tensor 'b'"):
        _check_finite({"a": np.ones(2), "b": tf.constant([[1.0, bad]], dtype).numpy()})
