"""The rule of biases: integers with the scale of their operands, wherever an integer kernel reads them."""

import numpy as np
import pytest
from qdq_files import FileMaker

from qdq_workbench.foreign.lint_rules import biases
from qdq_workbench.onnx_graph.qdq_graph import QDQGraph


def nodes(maker, *outputs):
    return [finding.node for finding in biases(QDQGraph(maker.model(*outputs)))]


def biased(bias, *, op="Conv", data=True, weight=True, attributes=None):
    """A layer with a bias behind the first of two, whose bias is integers."""
    f = FileMaker()
    first = f.conv(f.pair("x", "in"), "first")
    hidden = f.pair(first, "mid") if data else first
    kernel = f.weight("w") if weight else f.constant("w", np.ones((2, 2, 3, 3), np.float32))
    f.node(op, [hidden, kernel, *([] if bias is None else [bias(f)])], "y", **(attributes or {}))
    return f


def floats(f):
    return f.constant("b", np.ones(2, np.float32))


@pytest.mark.parametrize(
    ("given", "finds"),
    [
        ({"bias": floats}, True),
        ({"bias": floats, "op": "Gemm"}, True),
        ({"bias": None}, False),
        ({"bias": lambda _: ""}, False),
        ({"bias": floats, "data": False}, False),
        ({"bias": floats, "weight": False}, False),
        ({"bias": floats, "op": "ConvTranspose"}, False),
        ({"bias": lambda f: f.bias("b")}, False),
        ({"bias": lambda f: f.bias("b", scale=0.00101)}, True),
        ({"bias": lambda f: f.bias("b", scale=0.0010005)}, False),
    ],
)
def test_one_float_bias_among_integers(given, finds):
    assert nodes(biased(**given), "y") == (["y"] if finds else [])


def test_float_biases_alone_are_no_fault():
    f = FileMaker()
    f.node("Conv", [f.pair("x", "in"), f.weight("w"), floats(f)], "y")
    assert nodes(f, "y") == []


def one_bias(bias, **weight):
    f = FileMaker()
    f.node("Conv", [f.pair("x", "in"), f.weight("w", **weight), bias(f)], "y")
    return nodes(f, "y")


def test_the_scale_of_a_bias_is_compared_where_it_is_one_or_one_per_output():
    scalar = {"scale": 0.001, "zero": 0, "dtype": np.int32}
    assert one_bias(lambda f: f.dequantize(f.constant("c", np.int32([1, 2])), "b", **scalar)) == []
    assert one_bias(lambda f: f.bias("b", size=3)) == ["y"]
    assert one_bias(lambda f: f.node("DequantizeLinear", [f.constant("c", np.int32([1])), "x"], "b")) == ["y"]


def cut(low, high, *, between=None, second=False, dtype=np.uint8, quantized=True):
    """A convolution with a bias of another scale, whose result is clipped in front of its pair."""
    f = FileMaker()
    f.node("Conv", [f.pair("x", "in"), f.weight("w"), f.bias("b", scale=0.5)], "conv")
    source = "conv" if between is None else f.node(between, ["conv"], "between")
    limits = {"low": low, "high": high}
    bounds = ["" if value is None else f.constant(name, np.float32(value)) for name, value in limits.items()]
    f.node("Clip", [source, *(bounds[:1] if high is None else bounds)], "clip")
    if quantized:
        f.pair("clip", "out", dtype=dtype)
    if second:
        f.pair("conv", "wide")
    return nodes(f, "clip")


@pytest.mark.parametrize(
    ("given", "finds"),
    [
        ({"low": 0.0, "high": 25.5}, True),  # all of uint8
        ({"low": 0.1, "high": 25.5}, False),
        ({"low": 0.0, "high": 25.4}, False),
        ({"low": -1.0, "high": 30.0}, True),
        ({"low": 0.0, "high": 12.7, "dtype": np.int8}, False),
        ({"low": -12.8, "high": 12.7, "dtype": np.int8}, True),
        ({"low": None, "high": 1.0}, True),
        ({"low": 1.0, "high": None}, True),
        ({"low": 0.0, "high": 1.0, "between": "Relu"}, False),
        ({"low": 0.0, "high": 1.0, "between": "Tanh"}, True),
        ({"low": 0.0, "high": 1.0, "second": True}, True),
        ({"low": 0.0, "high": 1.0, "quantized": False}, True),
    ],
    ids=str,
)
def test_a_bias_of_a_result_that_is_cut_may_have_any_scale(given, finds):
    assert cut(**given) == (["conv"] if finds else [])
