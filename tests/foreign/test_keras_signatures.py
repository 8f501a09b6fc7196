"""A model as tensors to match, and the specification of what was matched."""

import keras
import pytest
from keras import layers

from qdq_workbench.foreign.float_signatures import ImportedQuantizer, ImportedTensor
from qdq_workbench.foreign.keras_signatures import keras_view, placement_spec


@pytest.fixture(scope="module")
def model():
    """A layer that is called twice, an activation, a normalization and a sum, with integers beside them."""
    x, tokens = keras.Input((8,), name="x"), keras.Input((3,), dtype="int32", name="tokens")
    shared = layers.Dense(8, name="shared")
    hidden = layers.ReLU(name="relu")(layers.BatchNormalization(name="norm")(shared(x)))
    again = shared(hidden)
    total = layers.Add(name="add")([hidden, again])
    return keras.Model([x, tokens], [layers.Dense(2, activation="swish", name="head")(total), tokens])


def item(dtype="int8", *, pairs=True, raw=0, weight="", **more):
    quantizers = (ImportedQuantizer("q", 0.1, 0, dtype),) if pairs else ()
    return ImportedTensor("t", 1, quantizers, raw_readers=raw, weight_dtype=weight, **more)


def placed(model, quantized, weighted=None):
    """Entry -> (input, indexes, weight, output, settings that are not the default)."""
    spec = placement_spec(model, quantized, weighted)
    return {
        entry.name: (
            entry.quantize_input,
            entry.quantization_index,
            entry.quantize_weight,
            entry.quantize_output,
            entry.quantize_config,
        )
        for entry in spec.layers
    }


def test_every_float_tensor_of_a_model_has_its_name_and_stage(model):
    view, names, inner = keras_view(model)
    known = {name: aliases for name, aliases in names.items() if name in view}
    assert known.keys() == names.keys()
    # The normalization is folded into the layer, and its ReLU is in the same chain.
    chain = [(0, "shared"), (0, "norm"), (1, "relu")]
    assert sorted(names.values()) == [[(0, "add")], [(0, "head")], chain, [(0, "shared#1")], [(0, "x")]]
    assert set(inner.values()) <= {"head", "add", "shared"}
    assert "head" in inner.values()  # swish is two operators


def test_a_pair_for_all_readers_is_on_the_output_and_one_for_some_on_the_weighted_inputs(model):
    assert placed(model, {"relu": item()}) == {"relu": (False, None, False, True, None)}
    weights = {"shared": item(weight="int8")}
    found = placed(model, {"relu": item(raw=1)}, weights)
    readers = {name for name, entry in found.items() if entry[0]}
    assert len(readers) == 1
    assert "relu" not in found
    assert found[readers.pop()][:4] == (True, [0], True, False)
    assert placed(model, {"relu": item(raw=1)}) == {}


def test_what_has_no_pair_is_not_placed(model):
    assert list(placed(model, {"x": item(pairs=False), "relu": item()})) == ["relu"]


def test_every_call_of_a_layer_has_an_entry(model):
    found = placed(model, {}, {"shared": item(weight="int8")})
    assert len(found) == 2
    assert all(entry[:4] == (False, None, True, False) for entry in found.values())


@pytest.mark.parametrize(
    ("tensor", "layer"), [("relu", "shared"), ("norm", "shared"), ("shared", "shared"), ("head", "head")]
)
def test_a_weight_belongs_to_the_layer_behind_folded_and_fused_ones(tensor, layer, model):
    found = placed(model, {tensor: item(pairs=False, weight="int8")})
    assert {name for name, entry in found.items() if entry[2]} == {name for name in found if name.startswith(layer)}
    assert found


@pytest.mark.parametrize("tensor", ["add", "x"])
def test_a_weight_that_no_layer_computes_a_tensor_with_is_not_placed(tensor, model):
    assert placed(model, {tensor: item(pairs=False, weight="int8")}) == {}


@pytest.mark.parametrize(
    ("dtype", "bits"), [("int8", None), ("uint8", None), ("int4", 4), ("uint16", 16), ("float8e4m3fn", None)]
)
def test_only_other_widths_than_8_bits_are_settings(dtype, bits, model):
    config = placed(model, {"relu": item(dtype)})["relu"][4]
    assert (config and dict(config.output)) == (None if bits is None else {"num_bits": bits})


def weight_settings(model, **given):
    config = placed(model, {}, {"head": item(pairs=False, **given)})["head"][4]
    return dict(config.weight) if config else {}


def test_weights_have_their_width_and_blocks(model):
    assert weight_settings(model, weight="int8") == {}
    assert weight_settings(model, weight="int4") == {"num_bits": 4}
    assert weight_settings(model, weight="int4", weight_block=16) == {"num_bits": 4, "block_size": 16}
    asymmetric = weight_settings(model, weight="uint4", weight_block=16, weight_is_symmetric=False)
    assert asymmetric == {"num_bits": 4, "block_size": 16, "symmetric": False, "narrow_range": False}
    assert weight_settings(model, weight="uint4", weight_is_symmetric=False) == {"num_bits": 4}
