"""Zero padding in front of a maximum, checked by execution: it vanishes only where explain says so."""

import keras
import numpy as np
import pytest
from agreement.fast_export import FastExport
from agreement.networks import fill
from agreement.statuses import compare
from agreement.toggles import random_plan
from keras import layers

import qdq_workbench as qdq


def net(middle, padding, window):
    image = keras.Input((6, 6, 2), name="image")
    x = middle(layers.Conv2D(2, 1, activation="relu", name="first")(image))
    x = layers.MaxPooling2D(window, 2, name="maximum")(layers.ZeroPadding2D(padding, name="zeros")(x))
    return fill(keras.Model(image, layers.Conv2D(2, 1, name="last")(layers.Conv2D(2, 1, name="second")(x))))


@pytest.mark.parametrize(
    ("middle", "padding", "window", "vanishes"),
    [
        (layers.UpSampling2D(2, interpolation="bicubic", name="larger"), 1, 3, False),
        (layers.UpSampling2D(2, interpolation="bilinear", name="larger"), 1, 3, True),
        (layers.Softmax(name="shares"), 1, 3, True),
        (layers.ReLU(name="again"), 2, 2, False),
    ],
    ids=["overshoots", "stays between", "shares", "wider than the window"],
)
def test_what_the_runtime_makes_of_it(middle, padding, window, vanishes, tmp_path):
    export = FastExport(net(middle, padding, window))
    for number in range(3):
        plan = random_plan(export.graph, np.random.default_rng([3, number]), plain=number == 0)
        explanation = qdq.explain(plan)
        assert (explanation.for_layer("zeros").rule == "ORT-VANISHES") == vanishes
        compared, differing = compare(explanation, export.build(plan, seed=number), tmp_path)
        assert differing == [], plan.summary()
        assert compared >= 3
