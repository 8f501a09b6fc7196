"""The arithmetic of the comparison, with a file made by hand and stand-ins for the model."""

import types

import numpy as np
import pytest
from onnx import TensorProto, helper
from qdq_files import FileMaker

from qdq_workbench.onnx_graph.qdq_graph import QDQGraph
from qdq_workbench.placement.targets import get_target
from qdq_workbench.quantizers.bias_room import least_weight_scale
from qdq_workbench.spec.quantizer_spec import QuantizerSpec
from qdq_workbench.verification.file_integers import (
    _dequantized,
    _file_weights,
    _scales_for_biases,
    pair_differences,
)
from qdq_workbench.verification.file_structure import QDQPair


class TestWeightsOfAFile:
    def weights(self, f):
        model = f.model("x")
        return _file_weights(QDQGraph(model), model)

    def test_they_are_the_constants_that_are_dequantized_but_biases(self):
        f = FileMaker()
        f.weight("conv/kernel/DequantizeLinear")
        f.bias("conv/bias/DequantizeLinear")
        f.pair("x", "p")
        assert list(self.weights(f)) == ["conv/kernel"]
        assert self.weights(f)["conv/kernel"][0].name == "conv/kernel/DequantizeLinear"

    def dequantized(self, codes, scale, zero, **attributes):
        f = FileMaker()
        f.constant("codes", codes)
        f.dequantize("codes", "w/DequantizeLinear", scale=scale, zero=zero, dtype=codes.dtype, **attributes)
        values, scales = self.weights(f)["w"][1]()
        assert scales.shape == values.shape == codes.shape
        assert values.dtype == np.float32
        return values

    def test_every_value_has_its_scale_and_zero_point(self):
        codes = np.arange(6, dtype=np.uint8).reshape(2, 3)
        np.testing.assert_array_equal(self.dequantized(codes, 0.5, 4), (codes - 4.0) * 0.5)
        by_row = self.dequantized(codes, [1.0, 2.0], [0, 5], axis=0)
        np.testing.assert_array_equal(by_row, [[0, 1, 2], [-4, -2, 0]])
        by_column = self.dequantized(codes, [1.0, 2.0, 4.0], [0, 0, 1])  # along axis 1 where none is given
        np.testing.assert_array_equal(by_column, [[0, 2, 4], [3, 8, 16]])
        np.testing.assert_array_equal(self.dequantized(codes, [1.0, 2.0, 4.0], [0, 0, 1], axis=-1), by_column)

    def test_blocks(self):
        codes = np.ones((3, 2), np.int8)
        found = self.dequantized(codes, [[1.0, 2.0], [4.0, 8.0]], np.zeros((2, 2)), axis=0, block_size=2)
        np.testing.assert_array_equal(found, [[1, 2], [1, 2], [4, 8]])

    def test_scales_that_are_computed_give_no_values(self):
        f = FileMaker()
        f.constant("codes", np.ones(2, np.int8))
        f.constant("scale", np.float32(1))
        f.node("DequantizeLinear", ["codes", f.node("Neg", ["scale"], "computed")], "w/DequantizeLinear")
        assert self.weights(f)["w"][1]() is None
        graph = QDQGraph(f.model("x"))
        assert _dequantized(graph, f.nodes[-1], helper.make_tensor("codes", TensorProto.INT8, (2,), [1, 1])) is None


class TestBiases:
    def scales(self, f):
        model = f.model("x")
        graph = QDQGraph(model)
        return [float(scale) for scale in _scales_for_biases(graph, next(n for n in graph.nodes if n.name == "w"))]

    def conv(self, bias, *, between=None, data=True, op="Conv"):
        f = FileMaker()
        weight = f.weight("w")
        weight = f.node(between, [weight], "between") if between else weight
        f.constant("floats", np.float32([2.0, -8.0]))
        x = f.pair("x", "p", scale=0.5) if data else "x"
        f.node(op, [x, weight, *({"integers": [f.bias("b", scale=2.0)], "floats": ["floats"], None: []}[bias])], "conv")
        return self.scales(f)

    def test_the_largest_value_of_a_bias_and_the_scale_of_the_input_decide(self):
        assert self.conv("floats") == [pytest.approx(float(least_weight_scale(np.float64(8), np.float32(0.5))))]
        assert self.conv("integers") == [pytest.approx(float(least_weight_scale(np.float64(2), np.float32(0.5))))]
        assert self.conv("floats", between="Transpose") == self.conv("floats")

    def test_without_a_bias_or_quantized_inputs_nothing_is_needed(self):
        assert self.conv(None) == []
        assert self.conv("floats", data=False) == []
        assert self.conv("floats", between="Relu") == []
        assert self.conv("floats", op="LSTM") == []

    def test_every_reader_counts(self):
        f = FileMaker()
        weight, x = f.weight("w"), f.pair("x", "p", scale=0.5)
        for number in (1, 2):
            f.constant(f"bias{number}", np.float32([number, 0]))
            f.node("Conv", [x, weight, f"bias{number}"], f"conv{number}")
        assert len(self.scales(f)) == 2


class TestPairs:
    def model(self, low, high, spec, name="image", kind="activation"):
        tensor = types.SimpleNamespace(name=name, kind=kind, quantizer=spec)
        plan = types.SimpleNamespace(tensors=[tensor], target_object=get_target("onnxruntime"))
        return types.SimpleNamespace(plan=plan, activation_ranges=lambda: {name: (low, high)})

    spec = QuantizerSpec(signed=False, symmetric=False)

    def differences(self, pair, **model):
        given = {"low": 0.0, "high": 255.0, "spec": self.spec, **model}
        return dict(pair_differences({"image": pair}, self.model(**given)))

    def test_a_signed_pair_is_stored_as_an_unsigned_one(self):
        spec = QuantizerSpec(signed=True, symmetric=False)
        assert self.differences(QDQPair("image", 1.0, 0, "uint8"), spec=spec) == {"image": ""}
        assert self.differences(QDQPair("image", 1.0, -128, "int8"), spec=spec) != {"image": ""}

    def test_a_pair_follows_from_the_range(self):
        assert self.differences(QDQPair("image", 1.0, 0, "uint8")) == {"image": ""}

    def test_each_part_that_differs_is_told_with_both_values(self):
        found = self.differences(QDQPair("image", 2.0, 1, "int8", bounds=(0.0, 1.0)))["image"]
        assert found.split("; ") == [
            "its scale is 2.0, and 1.0 by the model's range",
            "its zero point is 1, and 0 by the model's range",
            "its dtype is int8, and uint8 by the model's range",
            "its bounds is (0.0, 1.0), and None by the model's range",
        ]

    def test_weights_and_pairs_that_the_file_lacks_are_left_out(self):
        assert self.differences(QDQPair("image", 2.0, 0, "uint8"), kind="weight") == {}
        assert self.differences(QDQPair("image", 2.0, 0, "uint8"), name="other") == {}
