"""The levels that a layer can take."""

import keras
import pytest

import qdq_workbench as qdq
from qdq_workbench.analysis.levels import FLOAT, add_levels, ladder_of, raise_layers


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


def test_a_spec_repeats_levels_of_calls_with_other_settings():
    image, layer = keras.Input((4,), name="image"), keras.layers.Dense(4, name="twice")
    model = keras.Model(image, layer(layer(image)))
    spec = qdq.QuantizationSpec()
    spec.add("twice#1", quantize_config=qdq.LayerQuantizeConfig(activation={"num_bits": 4}))
    raised = raise_layers(qdq.plan_placement(model, quantization_spec=spec), {"twice": 6})

    again = qdq.plan_placement(
        model, quantization_spec=add_levels(spec, qdq.plan_placement(model, quantization_spec=spec), {"twice": 6})
    )

    assert [p.quantizer for p in again.placements] == [p.quantizer for p in raised.placements]


def test_a_spec_of_levels_has_no_settings_for_weights_that_a_layer_lacks():
    image = keras.Input((4,), name="image")
    first, second = (keras.layers.Dense(4, name=name)(image) for name in "ab")
    model = keras.Model(image, keras.layers.Add(name="sum")([first, second]))
    spec = qdq.QuantizationSpec()
    spec.add("*", match="glob", quantize_config=qdq.LayerQuantizeConfig(weight={"kernel": {"num_bits": 4}}))
    plan = qdq.plan_placement(model, quantization_spec=spec)
    level = {"sum": "no inputs with output"}

    again = qdq.plan_placement(model, quantization_spec=add_levels(spec, plan, level))

    assert [p.key for p in again.placements] == [p.key for p in raise_layers(plan, level).placements]
