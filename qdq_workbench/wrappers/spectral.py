"""The wrapper of a SpectralNormalization, which writes its own kernel in training."""

from __future__ import annotations

from typing import Any

from keras import ops

from qdq_workbench.placement.defaults import LayerDefault
from qdq_workbench.wrappers.base import WeightedBaseQuantizeWrapper


class SpectralNormalizationQuantizeWrapper(WeightedBaseQuantizeWrapper):
    """Wraps a SpectralNormalization: input, and the weights of the layer inside, quantized as that layer's.

    In training the layer divides its kernel by its largest singular value and stores it. That must happen on the
    float kernel: on the quantized one, every step would round away the optimizer's update. So the wrapper
    normalizes first, and then computes with the quantized values of the result.
    """

    _layer_trains = False  # in training it would normalize again

    @classmethod
    def _default(cls) -> LayerDefault | None:
        return None

    def call(self, inputs: Any, *args: Any, training: Any = None, **kwargs: Any) -> Any:
        """Normalize the float kernel when training, then compute the layer with quantized inputs and weights."""
        if training:
            layer = self.layer
            # As in Keras's own `call`: a kernel of zeros stays, because its largest singular value is 0.
            vector, kernel = ops.cond(
                ops.all(ops.equal(layer.kernel.value, 0)),
                lambda: (layer.vector_u.value, layer.kernel.value),
                layer.normalized_weights,
            )
            layer.vector_u.assign(vector)
            layer.kernel.assign(kernel)
        return super().call(inputs, *args, training=training, **kwargs)
