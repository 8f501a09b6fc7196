import contextlib
import dataclasses

import keras
import pytest
from keras import layers
from mock_graphs import GraphMaker, chain, residual

import qdq_workbench as qdq
from qdq_workbench import QuantizationSpec
from qdq_workbench.errors import SpecError
from qdq_workbench.placement.decide import decide
from qdq_workbench.placement.planner import make_plan
from qdq_workbench.placement.targets import target_names
from qdq_workbench.quantizers import LastValueQuantizer, MovingAverageQuantizer
from qdq_workbench.runtimes import explain_plan
from qdq_workbench.runtimes.fixes import leave_in_float


def explained(graph, target, spec=None, mode="full"):
    return explain_plan(make_plan(graph, decide(graph, mode, spec, []), mode, target))


def switched_off(*names):
    spec = QuantizationSpec()
    for name in names:
        spec.add(name, quantize_input=False, quantize_weight=False)
    return spec


@pytest.mark.parametrize("target", target_names())
def test_fixes_bring_a_residual_block_to_integers(target):
    graph = residual("Conv2D", "BatchNormalization", "ReLU", skip=("Conv2D",))
    spec = switched_off("conv2d", "skip_conv2d")
    before = explained(graph, target, spec)
    assert before.coverage["macs"] == before.coverage["bytes"] == 0.0
    after = explained(graph, target, before.apply_fixes())
    status = {entry.layer: entry.status for entry in after.layers}
    assert {status[name] for name in ("conv2d", "batchnormalization", "relu", "skip_conv2d", "add")} == {"int8"}
    assert after.coverage["macs"] == 1.0
    assert spec.layers == switched_off("conv2d", "skip_conv2d").layers


def test_a_fix_keeps_what_was_wished_before():
    graph = chain(("Conv2D", "conv"), ("ReLU", "relu"), ("Conv2D", "last"))
    spec = switched_off("last")
    spec.add("conv", quantize_output=True, quantize_weight=False)
    fixed = {entry.name: entry for entry in explained(graph, "onnxruntime", spec).apply_fixes().layers}
    assert (fixed["conv"].quantize_output, fixed["conv"].quantize_input) == (True, True)
    assert (fixed["last"].quantize_input, fixed["last"].quantize_weight) == (True, True)


def masked_average():
    words = keras.Input((6,), dtype="int32", name="words")
    x = layers.Dense(5, name="dense")(layers.Embedding(20, 4, mask_zero=True, name="embedded")(words))
    return keras.Model(words, layers.Dense(3, name="head")(layers.GlobalAveragePooling1D(name="mean")(x)))


def second_part():
    rows = keras.Input((2, 3), name="rows")
    part = keras.ops.unstack(layers.Dense(4, name="dense")(rows), axis=1)[1]
    return keras.Model(rows, layers.Dense(3, name="head")(part))


@pytest.mark.parametrize("make", [masked_average, second_part])
@pytest.mark.parametrize("target", target_names())
def test_no_fix_is_left_beside_masks_indices_and_parts(target, make):
    """A pair on what holds no real numbers is refused, and one on a part that nobody reads is not made."""
    graph = qdq.build_graph(make())
    plan = qdq.plan_placement(graph, target=target)
    before = qdq.explain(plan)
    after = qdq.explain(qdq.plan_placement(graph, quantization_spec=before.apply_fixes(), target=target))
    assert [entry.layer for entry in after.layers if entry.fix] == []
    assert after.counts["int8"] >= before.counts["int8"] >= 2


def test_partial_mode_stays_partial():
    graph = chain(("Conv2D", "conv"), ("Conv2D", "last"))
    spec = QuantizationSpec()
    spec.add("conv", quantize_weight=False)
    fixed = explained(graph, "tensorrt", spec, "partial").apply_fixes()
    assert explained(graph, "tensorrt", fixed, "partial").counts["float"] == 0


def test_a_shared_layer_gets_an_entry_per_call():
    maker = GraphMaker()
    maker.add("Conv2D", "conv", "image")
    maker.add("Conv2D", "conv#1", "conv", layer="conv")
    fixed = explained(maker.graph("conv#1"), "tensorrt", switched_off("conv")).apply_fixes()
    assert explained(maker.graph("conv#1"), "tensorrt", fixed).for_layer("conv").status == "int8"


def test_without_a_plan_there_is_nothing_to_change():
    found = dataclasses.replace(explained(chain(("Conv2D", "conv")), "litert"), plan=None)
    with pytest.raises(SpecError, match="does not know its plan"):
        found.apply_fixes()


def test_coverage_counts_layers_products_and_bytes():
    graph = chain(("Conv2D", "conv"), ("Conv2D", "off"), ("Mystery", "mystery"))
    found = explained(graph, "tensorrt", switched_off("off"))
    assert found.coverage == {"layers": pytest.approx(1 / 3), "macs": 0.5, "bytes": pytest.approx(144 / (2 * 148))}
    assert "50.0 % of macs" in found.summary()
    assert found.to_dict()["coverage"] == found.coverage


class Halves(qdq.QuantizeConfig):
    """A narrow depthwise kernel with one scale, a wide pointwise one with a scale per channel, another output."""

    def get_weights_and_quantizers(self, layer):
        narrow = LastValueQuantizer(num_bits=4, per_axis=False)
        wide = LastValueQuantizer(num_bits=8, per_axis=True, axis=3, narrow_range=True)
        return [(layer.depthwise_kernel, narrow), (layer.pointwise_kernel, wide)]

    def get_activations_and_quantizers(self, layer):
        return [(layer.activation, MovingAverageQuantizer(num_bits=8, symmetric=True, narrow_range=True))]

    def set_quantize_weights(self, layer, quantize_weights):
        layer.depthwise_kernel, layer.pointwise_kernel = quantize_weights

    def set_quantize_activations(self, layer, quantize_activations):
        layer.activation = quantize_activations[0]

    def get_output_quantizers(self, layer):
        return []

    def get_config(self):
        return {}


def separable_net():
    image = keras.Input((6, 6, 3), name="image")
    x = layers.SeparableConv2D(4, 3, name="separable")(image)
    return keras.Model(image, layers.Conv2D(2, 1, name="last")(x))


def grids(plan):
    """Return how every value of a plan is quantized, by its place."""
    return {placement.key: (placement.quantizer, placement.method) for placement in plan.placements}


def assert_nothing_lost(model, plan, path):
    fixed = qdq.explain(plan).apply_fixes()
    fixed.save(path)
    for spec in (fixed, QuantizationSpec.load(path)):
        after = qdq.plan_placement(model, plan.mode, spec, target=plan.target)
        assert grids(after).items() >= grids(plan).items()
        assert qdq.explain(after).counts["int8"] > qdq.explain(plan).counts["int8"]


@pytest.mark.parametrize("target", target_names())
def test_every_weight_keeps_the_quantizer_of_a_config(target, tmp_path):
    model, spec = separable_net(), QuantizationSpec()
    spec.add("separable", quantize_config=Halves())
    spec.add("last", quantize_weight=False)
    plan = qdq.plan_placement(model, quantization_spec=spec, target=target)
    assert grids(plan)["weight", "separable", "depthwise_kernel"][0].label == "int4"
    assert_nothing_lost(model, plan, tmp_path / "fixed.yaml")


def test_every_weight_keeps_the_settings_of_its_own(tmp_path):
    model, spec = separable_net(), QuantizationSpec()
    weight = {"depthwise_kernel": {"num_bits": 4, "per_axis": False}, "pointwise_kernel": {"axis": 2}}
    spec.add("separable", quantize_config=qdq.LayerQuantizeConfig(weight=weight))
    spec.add("last", quantize_weight=False)
    plan = qdq.plan_placement(model, quantization_spec=spec, target="openvino")
    found = {key[2]: grid.label for key, (grid, _) in grids(plan).items() if key[:2] == ("weight", "separable")}
    assert found == {"depthwise_kernel": "int4", "pointwise_kernel": "int8/axis 2"}
    assert_nothing_lost(model, plan, tmp_path / "fixed.json")


def test_a_quantizer_of_the_users_own_is_kept(tmp_path):
    class Own(LastValueQuantizer):
        """Finds its range like its parent."""

    class Config(Halves):
        def get_weights_and_quantizers(self, layer):
            return [(layer.depthwise_kernel, Own(num_bits=5)), (layer.pointwise_kernel, LastValueQuantizer(num_bits=3))]

    model, spec = separable_net(), QuantizationSpec()
    spec.add("separable", quantize_config=Config())
    spec.add("last", quantize_weight=False)
    plan = qdq.plan_placement(model, quantization_spec=spec, target="tensorrt")
    assert grids(plan)["weight", "separable", "depthwise_kernel"][1].label == "Own"
    assert_nothing_lost(model, plan, tmp_path / "fixed.yaml")


def test_what_a_framework_info_decides_is_kept(tmp_path):
    info = qdq.FrameworkInfo(
        kernel_ops=["Conv2D", "SeparableConv2D"],
        activation_ops=["ReLU"],
        no_quantization_ops=["InputLayer", "MaxPooling2D"],
        kernel_channels_mapping={"Conv2D": (3, 2), "SeparableConv2D": (3, 2)},
    )
    image = keras.Input((6, 6, 3), name="image")
    x = layers.MaxPooling2D(name="pool")(layers.Conv2D(4, 3, name="first")(image))
    model = keras.Model(image, layers.Conv2D(2, 1, name="last")(x))
    spec = QuantizationSpec()
    spec.add("last", quantize_weight=False)
    plan = qdq.plan_placement(model, quantization_spec=spec, target="tensorrt", framework_info=info)
    assert_nothing_lost(model, plan, tmp_path / "fixed.yaml")


FIXED = qdq.LayerQuantizeConfig(activation={"quantizer": "fixed", "init_min": -1.0, "init_max": 2.0})
MIDDLES = {
    "reshape": (layers.Reshape, {"target_shape": (2, 8)}),
    "pool": (layers.MaxPooling1D, {}),
    "maximum": (layers.GlobalMaxPooling1D, {"keepdims": True}),
    "mean": (layers.AveragePooling1D, {"pool_size": 2}),
    "sum": (layers.Add, {}),
}
PLACED = {"nothing": None, "input": (True, False), "output": (False, True), "both": (True, True)}


def read(tensor, readers):
    """Return what reads a tensor: the layer with a range of its own, alone, beside another or behind a Flatten."""
    if readers == "behind a Flatten":
        tensor = layers.Flatten(name="flat")(tensor)
    others = [layers.Dense(3, name="other")(tensor)] if readers == "beside another" else []
    return [layers.Dense(3, name="reader")(tensor), *others]


@pytest.mark.parametrize("readers", ["alone", "beside another", "behind a Flatten"])
@pytest.mark.parametrize("middle", MIDDLES)
def test_a_fix_beside_a_range_of_the_readers_own_helps_or_is_not_offered(middle, readers):
    """A pair with the range of its reader has another scale than the input of the layer that it stands behind."""
    x, (cls, settings) = keras.Input((4, 4), name="x"), MIDDLES[middle]
    result = cls(name="middle", **settings)([x, x] if middle == "sum" else x)
    graph = qdq.build_graph(keras.Model(x, read(result, readers)))
    offered = []
    for spec in specifications(graph):
        before = explained(graph, "onnxruntime", spec)
        after = {entry.layer: entry for entry in explained(graph, "onnxruntime", before.apply_fixes()).layers}
        assert not [entry.layer for entry in after.values() if entry.fix]
        for entry in before.layers:
            assert after[entry.layer].status == "int8" or (entry.status == "float" and not entry.fix), entry
            offered += entry.fix
    # A mean and a sum compute with any two scales, if all that reads them has the second.
    assert bool(offered) == (middle in ("mean", "sum") and readers != "beside another")


def specifications(graph):
    """Yield those that give the reader a fixed range, and the layer before it some pairs, which are not all refused."""
    for placed in PLACED.values():
        spec = QuantizationSpec()
        spec.add("reader", quantize_config=FIXED)
        if placed is not None:
            spec.add("middle", quantize_input=placed[0], quantize_output=placed[1], quantize_weight=False)
        with contextlib.suppress(SpecError):  # of an output whose readers all have settings of their own
            make_plan(graph, decide(graph, "full", spec, []), "full", "onnxruntime")
            yield spec


@pytest.mark.parametrize("own", [None, qdq.LayerQuantizeConfig(weight={"per_axis": False})])
@pytest.mark.parametrize("target", target_names())
def test_a_fix_reads_the_pair_that_another_reader_has(target, own):
    """With a second range on its result, the concatenation would have no pair that all its readers share."""
    x = keras.Input((4,), name="x")
    joined = layers.Concatenate(name="joined")([x, x])
    ends = [layers.Dense(3, name=name)(joined) for name in ("own", "off")]
    graph = qdq.build_graph(keras.Model(x, ends))
    spec = QuantizationSpec()
    spec.add("own", quantize_config=FIXED)
    spec.add("joined", quantize_input=True)
    spec.add("off", quantize_input=False, quantize_weight=False, quantize_config=own)
    before = explained(graph, target, spec)
    fixed = before.apply_fixes()
    after = explained(graph, target, fixed)
    assert [before.for_layer(name).status for name in ("own", "off")] == ["int8", "float"]
    assert {after.for_layer(name).status for name in ("own", "off")} == {"int8"}
    assert after.for_layer("joined").status == before.for_layer("joined").status
    [ranges] = {
        placed.method.label for placed in after.plan.placements if placed.site == "input" and placed.tensor == "joined"
    }
    assert ranges == "fixed"


@pytest.mark.parametrize("target", target_names())
@pytest.mark.parametrize("middle", [*MIDDLES, "concatenation"])
@pytest.mark.parametrize(
    "given", [None, {"quantize_input": False}, {"quantization_index": [0]}, {"quantization_index": [1]}], ids=str
)
def test_a_fix_gives_no_other_tensor_the_range_of_a_reader(middle, target, given):
    """The settings of the sum hold for both of its inputs, of which only one has a reader with a range of its own."""
    x, (cls, settings) = keras.Input((4, 4), name="x"), MIDDLES.get(middle, (layers.Concatenate, {}))
    result = cls(name="middle", **settings)([x, x] if middle in ("sum", "concatenation") else x)
    other = keras.Input(result.shape[1:], name="other")
    added = layers.Dense(3, name="last")(layers.Add(name="added")([result, other]))
    graph = qdq.build_graph(keras.Model([x, other], [layers.Dense(3, name="reader")(result), added]))
    spec = QuantizationSpec()
    spec.add("middle")
    spec.add("reader", quantize_config=FIXED)
    if given is not None:
        spec.add("added", **given)
    before = explained(graph, target, spec)
    after = explained(graph, target, before.apply_fixes())
    assert grids(after.plan).items() >= grids(before.plan).items()
    assert {method for key, (_, method) in grids(after.plan).items() if key == ("input", "added", 1)} <= {None}
    assert [entry.layer for entry in after.layers if entry.fix] == []
    assert all(after.for_layer(entry.layer).status == "int8" for entry in before.layers if entry.status == "int8")


@pytest.mark.parametrize("target", target_names())
@pytest.mark.parametrize(
    ("others", "own"),
    [([FIXED], {"num_bits": 7}), ([FIXED, qdq.LayerQuantizeConfig(activation={"num_bits": 7})], None)],
    ids=["own settings", "readers that differ"],
)
def test_a_fix_where_no_one_range_is_possible_costs_nothing(target, others, own):
    x = keras.Input((4,), name="x")
    joined = layers.Concatenate(name="joined")([x, x])
    names = [*(f"reader_{position}" for position, _ in enumerate(others)), "off"]
    graph = qdq.build_graph(keras.Model(x, [layers.Dense(3, name=name)(joined) for name in names]))
    spec = QuantizationSpec()
    spec.add("joined")
    for name, config in zip(names, [*others, qdq.LayerQuantizeConfig(activation=own)], strict=True):
        spec.add(name, quantize_input=name != "off", quantize_weight=name != "off", quantize_config=config)
    before = explained(graph, target, spec)
    after = explained(graph, target, before.apply_fixes())
    assert grids(after.plan).items() >= grids(before.plan).items()
    assert after.for_layer("off").status == "int8"
    assert after.for_layer("joined").status == before.for_layer("joined").status
    pair = after.plan.input_placement("off", 0)
    assert pair.site == "output" or (pair.quantizer.num_bits, pair.method) == (7 if own else 8, None)


@pytest.mark.parametrize("target", target_names())
def test_an_explanation_of_some_layers_fixes_these(target):
    graph = chain(("Conv2D", "first"), ("Conv2D", "second"), ("Conv2D", "third"))
    before = explained(graph, target, switched_off("first", "third"))
    some = dataclasses.replace(before, layers=(before.for_layer("third"),))
    after = explained(graph, target, some.apply_fixes())
    assert [bool(entry.fix) for entry in after.layers] == [True, False, False]
    nothing = dataclasses.replace(before, layers=()).apply_fixes()
    assert explained(graph, target, nothing).plan.placements == before.plan.placements


def test_fixes_of_a_plan_whose_grids_are_those_of_the_package(monkeypatch):
    """With 4 bits other layers have an integer kernel, also among those that only the default quantizes."""
    image = keras.Input((6, 6, 3), name="image")
    x = layers.ReLU(name="relu")(layers.Conv2D(4, 1, name="conv")(image))
    x = layers.MaxPooling2D(name="pool")(layers.Activation("sigmoid", name="sigmoid")(x) * x + 1.0)
    graph = qdq.build_graph(keras.Model(image, layers.Conv2D(2, 1, name="last")(x)))
    monkeypatch.setattr(qdq, "G_NUM_BITS", 4)
    before = qdq.explain(qdq.plan_placement(graph, target="onnxruntime"))
    after = qdq.explain(qdq.plan_placement(graph, quantization_spec=before.apply_fixes(), target="onnxruntime"))
    assert [entry.layer for entry in before.layers if entry.fix]
    assert [entry.layer for entry in after.layers if entry.fix] == []


@pytest.mark.parametrize("target", target_names())
def test_a_pattern_may_have_settings_for_weights_that_only_some_layers_have(target):
    """An entry by name with settings for weights that the layer does not have is refused."""
    x = keras.Input((6, 6, 3), name="x")
    middle = layers.ReLU(name="relu")(layers.SeparableConv2D(4, 3, name="separable")(x))
    graph = qdq.build_graph(keras.Model(x, layers.Conv2D(2, 1, name="last")(middle)))
    for weight in ({"num_bits": 4}, {"depthwise_kernel": {"num_bits": 4}, "pointwise_kernel": {}}):
        spec = QuantizationSpec()
        spec.add("*", match="glob", quantize_config=qdq.LayerQuantizeConfig(weight=weight))
        spec.add("last", quantize_input=False, quantize_config=qdq.LayerQuantizeConfig(weight={"num_bits": 4}))
        before = explained(graph, target, spec)
        after = explained(graph, target, before.apply_fixes())
        assert [entry.layer for entry in after.layers if entry.fix] == []
        weights = {key: grid for key, grid in grids(before.plan).items() if key[0] == "weight"}
        assert grids(after.plan).items() >= weights.items()
        without = make_plan(graph, decide(graph, "full", leave_in_float(before.plan, ["last"]), []), "full", target)
        assert grids(without).items() >= {key: weights[key] for key in weights if key[1] != "last"}.items()
