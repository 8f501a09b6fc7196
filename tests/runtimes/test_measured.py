"""Measured gains and losses, told by the layers between which integers flow."""

import dataclasses
import json
import types

import keras
import pytest
from keras import layers

import qdq_workbench as qdq
from qdq_workbench.errors import SpecError
from qdq_workbench.profiling import Gain


def network():
    """Two integer islands, "lone" and the rest behind the normalization, and one layer that stays float: "stem"."""
    image = keras.Input((8, 8, 3), name="image")
    x = layers.Conv2D(4, 3, padding="same", activation="gelu", name="stem")(image)
    x = layers.Conv2D(4, 1, name="lone")(x)
    x = layers.LayerNormalization(name="norm")(x)
    inner = keras.Input((8, 8, 4))
    y = layers.ReLU(name="relu")(layers.Conv2D(4, 3, padding="same", name="first")(inner))
    block = keras.Model(inner, layers.Conv2D(4, 1, name="second")(y), name="block")
    return keras.Model(image, layers.GlobalAveragePooling2D(name="pool")(block(x)), name="network")


@pytest.fixture(scope="module")
def plan():
    return qdq.plan_placement(network(), target="onnxruntime")


def latency(gains, conversions, *, noise=0.0, total=10.0, layout=()):
    others = [types.SimpleNamespace(what="pair", name=name, ms=ms) for name, ms in conversions.items()]
    others += [types.SimpleNamespace(what="layout", name=name, ms=9.0) for name in layout]
    return types.SimpleNamespace(
        gains=tuple(
            Gain(names if isinstance(names, tuple) else (names,), 1.0, 1.0 + ms) for names, ms in gains.items()
        ),
        others=tuple(others),
        noise=noise,
        total_ms=total,
        baseline=object(),
        engine="ONNX Runtime",
        target="onnxruntime",
    )


GAINS = {"lone": 0.2, "norm": 0.4, ("block/first", "block/relu"): 2.0, "block/second": 1.0, "stem": -0.3, "pool": -0.1}
CONVERSIONS = {
    "stem/kernel/DequantizeLinear": 0.1,
    "stem/QuantizeLinear": 0.2,
    "lone/DequantizeLinear": 0.6,
    "norm/QuantizeLinear": 0.1,
    "pool/DequantizeLinear": 0.1,
    "nobody/DequantizeLinear": 5.0,
}


def test_every_conversion_counts_for_the_layers_that_it_is_made_for(plan):
    explanation = qdq.explain(plan, latency=latency(GAINS, CONVERSIONS, layout=["lone/QuantizeLinear"]))
    found = {island.layers: (island.kernels_ms, island.conversions_ms) for island in explanation.islands}
    rest = ("block/first", "block/relu", "block/second", "pool")
    assert found == {
        ("lone",): (pytest.approx(0.2), pytest.approx(0.8)),  # the Q behind the float layer before it is its own
        ("stem",): (pytest.approx(-0.3), pytest.approx(0.1)),  # in the plan, and computed in float
        rest: (pytest.approx(2.9), pytest.approx(0.2)),
    }
    assert [island.layers for island in explanation.islands] == [("lone",), ("stem",), rest]  # the worst first
    assert [island.is_loss for island in explanation.islands] == [True, True, False]
    assert explanation.losses == explanation.islands[:2]
    assert explanation.island_of("block/relu").gain_ms == pytest.approx(2.7)
    assert explanation.island_of("norm") is None
    with pytest.raises(SpecError, match="no layer of that name"):
        explanation.island_of("nobody")
    assert str(explanation.losses[0]) == "lone: -0.6000 ms (kernels +0.2000, conversions -0.8000)"
    assert str(explanation.islands[2]).startswith("block/first + block/relu + block/second + 1 more: +2.7000 ms")


def test_what_is_measured_together_is_judged_together(plan):
    gains = {**GAINS, ("lone", "norm", "block/first"): 1.0}
    islands = qdq.explain(plan, latency=latency(gains, {})).islands
    assert ("lone", "block/first", "block/relu", "block/second", "pool") in {island.layers for island in islands}


@pytest.mark.parametrize(
    ("loss", "noise", "is_loss"),
    [(0.06, 0.0, True), (0.04, 0.0, False), (0.06, 0.05, True), (0.06, 0.07, False), (0.26, 0.2, True)],
)
def test_a_loss_is_more_than_the_noise_and_worth_a_change(plan, loss, noise, is_loss):
    # A run takes 10 ms, of which 0.5 % count; the layer takes 1 ms, whose noise counts.
    explanation = qdq.explain(plan, latency=latency({"lone": -loss}, {}, noise=noise))
    assert explanation.island_of("lone").is_loss is is_loss


def test_the_text_and_the_dictionary_name_the_losses(plan):
    explanation = qdq.explain(plan, latency=latency(GAINS, CONVERSIONS))
    text = explanation.summary()
    assert "these cost more than they save" in text
    assert "  lone: -0.6000 ms" in text
    good = qdq.explain(plan, latency=latency({"lone": 1.0}, {}))
    assert "none costs more than it saves" in good.summary()
    data = json.loads(json.dumps(explanation.to_dict()))
    assert data["islands"][0]["gain_ms"] == pytest.approx(-0.6)
    assert "islands" not in qdq.explain(plan).to_dict()
    assert "easured" not in qdq.explain(plan).summary()


def test_a_loss_within_the_noise_is_named_as_such(plan):
    explanation = qdq.explain(plan, latency=latency({"lone": -0.06}, {}, noise=0.07))
    assert explanation.losses == ()
    text = " ".join(explanation.summary().split())
    assert "none costs more than it saves, by more than the noise of the measurement" in text
    assert "Within those: lone: -0.0600 ms" in text


def test_what_loses_is_left_in_float_and_the_rest_stays():
    model, spec = network(), qdq.QuantizationSpec()
    spec.add("block/second", quantize_config=qdq.LayerQuantizeConfig(weight={"num_bits": 4}))
    plan = qdq.plan_placement(model, quantization_spec=spec, target="onnxruntime")
    explanation = qdq.explain(plan, latency=latency(GAINS, CONVERSIONS))
    after = qdq.plan_placement(model, quantization_spec=explanation.without_losses(), target="onnxruntime")
    assert {p.layer for p in after.placements} == {p.layer for p in plan.placements} - {"stem", "lone", "image"}
    widths = {p.tensor: p.quantizer.num_bits for p in after.placements if p.site == "weight"}
    assert widths == {"block/first/kernel": 8, "block/second/kernel": 4}
    assert explanation.plan is plan  # unchanged


def test_a_measured_file_says_for_which_runtime_it_is_explained():
    model = network()
    for subject in (model, qdq.plan_placement(model), qdq.plan_placement(model, target="onnxruntime")):
        assert qdq.explain(subject, latency=latency(GAINS, {})).target == "onnxruntime"
    silent = latency(GAINS, {})
    silent.target = None  # of a report that does not tell
    assert qdq.explain(model, latency=silent).target == "onnxruntime"
    with pytest.raises(SpecError, match="target='tensorrt'"):
        qdq.explain(qdq.plan_placement(model), latency=silent)


def test_what_does_not_fit_is_refused(plan):
    alone = latency(GAINS, {})
    alone.baseline = None
    with pytest.raises(SpecError, match=r"no float file beside it.*profile_onnx"):
        qdq.explain(plan, latency=alone)
    with pytest.raises(SpecError, match=r"of other layers than the plan's.*measured \['other'\]"):
        qdq.explain(plan, latency=latency({"other": 1.0}, {}))
    with pytest.raises(SpecError, match=r"knows of no measurement.*latency="):
        qdq.explain(plan).without_losses()
    with pytest.raises(SpecError, match=r"measured in ONNX Runtime.*Received: target='tensorrt'"):
        qdq.explain(plan, "tensorrt", latency=latency(GAINS, {}))
    elsewhere = latency(GAINS, {})
    elsewhere.engine = "OpenVINO"
    with pytest.raises(SpecError, match=r"Received: target='onnxruntime', measured in OpenVINO"):
        qdq.explain(plan, latency=elsewhere)
    other = latency(GAINS, {})
    other.target = "tensorrt"
    with pytest.raises(SpecError, match=r"exported for another target.*target='onnxruntime', a file for tensorrt"):
        qdq.explain(plan, "onnxruntime", latency=other)
    measured = qdq.explain(plan, latency=latency(GAINS, {}))
    with pytest.raises(SpecError, match="without a plan"):
        dataclasses.replace(measured, plan=None).without_losses()
