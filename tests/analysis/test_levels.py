"""The levels that a layer can take."""

import keras
import pytest

import qdq_workbench as qdq
from qdq_workbench.analysis.levels import FLOAT, ladder_of, raise_layers


@pytest.mark.parametrize(
    ("config", "ladder"),
    [
        ({"weight": {"per_axis": False}}, [None, FLOAT]),
        ({"weight": {"num_bits": 4}}, [None, 8, 16, FLOAT]),
        ({"weight": {"per_axis": False}, "activation": {"num_bits": 8}}, [None, 16, FLOAT]),
        ({"output": {"num_bits": 4}}, [None, FLOAT]),  # without a pair on the output
    ],
)
def test_every_level_changes_the_plan(config, ladder):
    image = keras.Input((4,), name="image")
    model = keras.Model(image, keras.layers.Dense(2, name="head")(image))
    spec = qdq.QuantizationSpec()
    spec.add("head", quantize_config=qdq.LayerQuantizeConfig(**config))
    plan = qdq.plan_placement(model, quantization_spec=spec, target="onnxruntime")

    assert ladder_of(plan, "head", (8, 16)) == ladder

    plans = [plan, *(raise_layers(plan, {"head": level}) for level in ladder[1:])]
    grids = [tuple((p.site, p.quantizer.num_bits) for p in each.placements) for each in plans]
    assert len(set(grids)) == len(ladder)
