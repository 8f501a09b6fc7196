"""The levels that a layer can take."""

import keras
import pytest
from own_configs import KernelConfig

import qdq_workbench as qdq
from qdq_workbench.analysis.levels import FLOAT, add_changes, add_levels, ladder_of, raise_layers
from qdq_workbench.quantizers import LSQQuantizer, MovingAverageQuantizer

CONFIG = qdq.LayerQuantizeConfig


class OwnConfig(KernelConfig):
    """A config of a user's own, with a learned grid of the weights and a pair of the output."""

    def kernel_quantizer(self):
        return LSQQuantizer(num_bits=5, per_axis=True, symmetric=True)

    def get_output_quantizers(self, layer):
        return [MovingAverageQuantizer(num_bits=6, per_axis=False, symmetric=False)]


def plan_with(model, spec):
    return qdq.plan_placement(model, quantization_spec=spec, target="onnxruntime")


def pairs_of(plan):
    return [(p.node, p.site, p.tensor, p.quantizer, p.method) for p in plan.placements]


@pytest.fixture(scope="module")
def shared():
    image = keras.Input((4,), name="image")
    layer = keras.layers.Dense(4, activation="relu", name="shared")
    return keras.Model(image, keras.layers.Dense(2, name="head")(layer(layer(image))))


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


@pytest.mark.parametrize(
    "level", [16, FLOAT, "with output", "without output", "inputs 0 with output", "no inputs without output"]
)
@pytest.mark.parametrize(
    "wish",
    [{"quantize_output": True}, {"quantize_input": False}, {"quantize_config": CONFIG(activation={"num_bits": 4})}],
)
def test_entries_of_a_level_lead_to_its_plan_also_where_calls_of_a_layer_differ(shared, level, wish):
    spec = qdq.QuantizationSpec()
    spec.add("shared", quantize_config=CONFIG(weight={"num_bits": 4}))
    spec.add("shared#1", **wish)  # the second call
    plan = plan_with(shared, spec)
    wanted = raise_layers(plan, {"shared": level})
    found = plan_with(shared, add_levels(spec, plan, {"shared": level}))
    assert pairs_of(found) == pairs_of(wanted)
    assert pairs_of(plan_with(shared, add_changes(spec, wanted, plan.decisions))) == pairs_of(wanted)


@pytest.mark.parametrize("level", ["with output", "without output", "no inputs without output"])
def test_moved_pairs_keep_what_a_quantize_config_gives(level):
    image = keras.Input((4,), name="image")
    hidden = keras.layers.Dense(4, activation="relu", name="hidden")(image)
    model = keras.Model(image, keras.layers.Dense(2, name="head")(hidden))
    spec = qdq.QuantizationSpec()
    spec.add("hidden", quantize_config=OwnConfig())
    plan = qdq.plan_placement(model, quantization_spec=spec, target="onnxruntime")
    wanted = raise_layers(plan, {"hidden": level})
    found = plan_with(model, add_levels(spec, plan, {"hidden": level}))
    assert pairs_of(found) == pairs_of(wanted)
    (kernel,) = (p for p in found.placements if p.tensor == "hidden/kernel")
    assert (kernel.quantizer.num_bits, kernel.method.name) == (5, "lsq")


@pytest.fixture(scope="module")
def network():
    """A network for plans, which need no values in its variables."""
    with keras.StatelessScope(initialize_variables=False):
        return keras.applications.MobileNetV2(input_shape=(32, 32, 3), alpha=0.35, weights=None, classes=4)


@pytest.mark.parametrize("target", ["onnxruntime", "openvino", "tensorrt"])
def test_a_layer_at_level_float_is_computed_in_float(network, target):
    """What a search measures as float must be float in the runtime, and not quantized there for other reasons."""
    plan = qdq.plan_placement(network, target=target)
    layers = dict.fromkeys(placement.layer for placement in plan.placements if placement.site == "weight")

    told = {name: qdq.explain(raise_layers(plan, {name: FLOAT})).for_layer(name).status for name in layers}

    assert len(told) > 50
    assert set(told.values()) == {"float"}, [name for name, status in told.items() if status != "float"]
