"""Models that are run on several sets of samples: traced once, each with its own values."""

import keras
import numpy as np

from qdq_workbench.analysis import sweep
from qdq_workbench.analysis.samples import read_samples


def test_the_first_model_and_the_last_one_are_traced_once(monkeypatch):
    image = keras.Input((2,), name="image")
    models = {
        factor: keras.Model(image, keras.layers.Dense(1, kernel_initializer=keras.initializers.Constant(factor))(image))
        for factor in (1.0, 2.0, 3.0)
    }
    traced, trace, traces = [], sweep.concrete, sweep.Traces()
    monkeypatch.setattr(sweep, "concrete", lambda model: traced.append(model) or trace(model))

    for count, factor in enumerate((1.0, 2.0, 1.0, 2.0, 3.0, 1.0, 3.0, 2.0), start=1):
        x = np.full((count, 2), count, np.float32)
        (found,) = sweep.model_outputs(models[factor], read_samples(models[factor], x), traces)
        np.testing.assert_array_equal(found, np.full((count, 1), 2 * count * factor))

    assert len(traced) == 4  # the second one again at the end
