"""A user's own classes: functional models that train in their own way, and a quantizer."""

import keras

from qdq_workbench.quantizers import MovingAverageQuantizer


@keras.saving.register_keras_serializable(package="fuzz")
class Own(keras.Model):
    """Trains like any model; its steps are counted."""

    steps = 0

    def train_step(self, data):
        self.steps += 1
        return super().train_step(data)


@keras.saving.register_keras_serializable(package="fuzz")
class OwnRange(MovingAverageQuantizer):
    """Follows the range faster than the one it is derived from."""

    def __init__(self, **kwargs):
        super().__init__(**{"momentum": 0.5, **kwargs})
