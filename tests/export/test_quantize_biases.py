"""Which biases become integers, and with which scale: the product of two, one of their own, or none."""

import numpy as np
import pytest
from pass_graphs import opened

from qdq_workbench.export.passes.quantize_biases import PASS, bias_name, quantize_biases
from qdq_workbench.onnx_graph.snapshot import snapshot

KERNELS = {"Conv": ((2, 3, 1, 1), 0), "Gemm": ((3, 2), 1), "ConvTranspose": ((3, 2, 1, 1), 1)}
WEIGHT = "conv/kernel/DequantizeLinear"
BEHIND = [("QuantizeLinear", "c,s,z", "out/QuantizeLinear"), ("DequantizeLinear", "out/QuantizeLinear,s,z", "y")]


def net(op="Conv", behind=BEHIND, attributes=None, weight_axis=None, outputs="y", **constants):
    """A layer on dequantized operands, and what stands behind it."""
    shape, axis = KERNELS[op]
    axis = axis if weight_axis is None else weight_axis
    values = {
        "s": np.float32(0.5),
        "z": np.uint8(0),
        "codes": np.arange(6).reshape(shape).astype(np.int8),
        "ws": np.float32([0.25, 0.125]),
        "wz": np.zeros(2, np.int8),
        "b": np.float32([1.0, -2.0]),
        **constants,
    }
    rows = [
        ("QuantizeLinear", "x,s,z", "q"),
        ("DequantizeLinear", "q,s,z", "d"),
        ("DequantizeLinear", "codes,ws,wz", WEIGHT, {"axis": axis}),
        (op, f"d,{WEIGHT},b", "c", attributes or {}),
        *behind,
    ]
    inputs = {"x": (2, 3) if op == "Gemm" else (1, 3, 4, 4)}
    rows = [row for row in rows if row[2] not in {name for name, value in values.items() if value is None}]
    return opened(rows, inputs, outputs, {name: value for name, value in values.items() if value is not None}, opset=21)


def bias(graph):
    """The codes, scale and zero point of the bias; None where it is float."""
    node = graph.producer(graph.producer("c").inputs[2])
    return None if node is None else [graph.constant(tensor) for tensor in node.inputs]


def written(graph):
    """Run the pass, which keeps its contract; return what the bias is behind it."""
    quantize_biases(graph)
    assert list(PASS.denied_by(graph)) == []
    after = snapshot(graph)
    quantize_biases(graph)
    assert snapshot(graph) == after
    return bias(graph)


def exact(found, values):
    """Whether codes and scale stand for these values without any rounding."""
    codes, scale, zero = found
    assert codes.dtype == zero.dtype == np.int32
    return np.array_equal(codes * scale.astype(np.float64), np.float64(values))


# Where an integer kernel reads it


@pytest.mark.parametrize("op", ["Conv", "Gemm"])
def test_a_bias_has_the_product_of_the_scales(op):
    graph = net(op)
    assert [node.name for node in PASS.denied_by(graph)] == ["c"]
    codes, scale, zero = written(graph)
    assert (codes.tolist(), scale.tolist(), zero.tolist()) == ([8, -32], [0.125, 0.0625], [0, 0])
    assert (codes.dtype, scale.dtype, zero.dtype) == (np.int32, np.float32, np.int32)
    node = graph.producer("conv/bias/dequantized")
    assert (node.name, node.get("axis")) == ("conv/bias/DequantizeLinear", 0)
    assert graph.shape(node.output) == (2,)


def test_one_scale_for_a_weight_gives_one_for_its_bias():
    graph = net(ws=np.float32(0.25), wz=np.int8(0))
    codes, scale, _ = written(graph)
    assert (codes.tolist(), scale.shape, float(scale)) == ([8, -16], (), 0.125)
    assert "axis" not in graph.producer("conv/bias/dequantized").attributes


@pytest.mark.parametrize(
    "behind",
    [
        [("Identity", "c", "y")],
        [("QuantizeLinear", "c,s", "q2"), ("DequantizeLinear", "q2,s", "y")],
        [*BEHIND[:1], ("DequantizeLinear", "out/QuantizeLinear,s,z", "m"), ("QuantizeLinear", "m,s,z16", "y")],
        [("Relu", "c", "r"), ("Add", "r,r", "a"), ("Add", "a,r", "e"), ("QuantizeLinear", "e,s,z", "y")],
    ],
    ids=["nothing", "no zero point", "16 bits behind 8", "several paths"],
)
def test_a_grid_of_up_to_8_bits_or_none_leaves_the_kernel(behind):
    assert written(net(behind=behind, z16=np.uint16(0))) is not None


# Where none does


@pytest.mark.parametrize(
    "changes",
    [
        {"weight_axis": 1, "ws": np.ones(3, np.float32), "wz": np.zeros(3, np.int8)},
        {"op": "Gemm", "weight_axis": 0, "ws": np.ones((3, 2), np.float32), "wz": np.zeros((3, 2), np.int8)},
        {"op": "Gemm", "ws": np.ones((3, 1), np.float32), "wz": np.zeros((3, 1), np.int8)},
        {"op": "Gemm", "attributes": {"alpha": 0.5}},
        {"op": "Gemm", "attributes": {"beta": 0.5}},
        {"op": "Gemm", "attributes": {"transB": 1}, "codes": np.ones((2, 3), np.int8)},
        {"behind": [("QuantizeLinear", "c,s,z16", "y")]},
        {"behind": [("Relu", "c", "r"), ("QuantizeLinear", "r,s,z16", "y")]},
        {"behind": [*BEHIND, ("QuantizeLinear", "c,s,z16", "w")], "outputs": "y,w"},
        {"b": np.float64([1, 2])},
        {"s": np.float32([0.5, 0.5, 0.5]), "z": np.zeros(3, np.uint8), "behind": [("Identity", "c", "y")]},
    ],
    ids=[
        *(
            "along inputs",
            "in blocks",
            "in blocks of outputs",
            "alpha",
            "beta",
            "turned",
            "16 bits",
            "16 bits later",
            "16 bits beside",
        ),
        *("another type", "several scales of the input"),
    ],
)
def test_a_bias_without_an_integer_kernel_stays_float(changes):
    graph = net(z16=np.uint16(0), **changes)
    before = snapshot(graph)
    assert written(graph) is None
    assert snapshot(graph) == before


@pytest.mark.parametrize("gone", ["q", "d", "codes", "ws", "b"])
def test_every_operand_has_to_be_there(gone):
    graph = net()
    conv = graph.producer("c")
    if gone == "b":
        graph.set_inputs(conv, conv.inputs[:2])
    elif gone in ("q", "d"):  # what is dequantized need not come from a quantizer
        graph.replace_reads(gone, "x")
    else:
        del graph.constants[gone]
    quantize_biases(graph)
    integer = len(conv.inputs) > 2 and graph.constant(conv.inputs[2]) is None
    assert integer == (gone in ("q", "codes"))


def test_operators_of_other_domains_and_other_operators_stay():
    graph = net()
    graph.producer("c").domain = "own.domain"
    assert written(graph) is None
    graph = net(op="Gemm")
    graph.producer("c").op = "Sum"
    assert written(graph) is None


# Biases that overflow


def test_the_weight_scale_is_raised_where_the_bias_would_overflow_and_nowhere_else():
    graph = net(b=np.float32([1.0, 2.0**28]))
    codes, scale, _ = written(graph)
    raised = graph.constant(graph.producer(WEIGHT).inputs[1])
    assert raised[0] == 0.25
    assert raised[1] > 0.125
    assert 0.99 * 2**30 < codes[1] <= 2**30
    assert scale[1] == np.float32(0.5) * raised[1]
    assert graph.constant("codes").reshape(2, 3).tolist() == [[0, 1, 2], [1, 1, 1]]  # of 3, 4, 5 eighths


def test_codes_without_a_sign_keep_their_zero_point():
    graph = net(
        b=np.float32([2.0**28, 0]),
        codes=np.full((2, 3, 1, 1), 130, np.uint8),
        wz=np.full(2, 128, np.uint8),
    )
    written(graph)
    assert graph.constant("codes").reshape(2, 3).tolist() == [[129, 129, 129], [130, 130, 130]]


def test_a_weight_that_others_read_is_not_changed_for_one_bias():
    rows = [*BEHIND, ("Conv", f"d,{WEIGHT}", "other")]
    graph = net(b=np.float32([1.0, 2.0**28]), behind=rows, outputs="y,other")
    assert written(graph) is None
    assert graph.constant("ws").tolist() == [0.25, 0.125]


# Biases with a scale of their own


NARROW = [("Clip", "c,low,high", "out/Clip"), ("QuantizeLinear", "out/Clip,s,z", "out/QuantizeLinear")]
LIMITS = {"low": np.float32(0), "high": np.float32(7.5)}
ODD = np.float32([1 / 3, -2e-7])


def test_a_bias_in_front_of_a_narrow_grid_is_exact():
    found = written(net(behind=NARROW, outputs="out/QuantizeLinear", b=ODD, **LIMITS))
    assert exact(found, ODD)
    assert found[0].tolist() == [2**30, -(2**30)]


def test_a_bias_of_zero_or_nearly_zero_has_the_scale_1():
    found = written(net(behind=NARROW, outputs="out/QuantizeLinear", b=np.float32([0, 2.0**-91]), **LIMITS))
    assert (found[0].tolist(), found[1].tolist()) == ([0, 0], [1, 1])
    assert exact(written(net("ConvTranspose", b=np.float32([0, 2.0**-90]))), [0, 2.0**-90])


def test_a_transposed_convolution_has_no_integer_kernel():
    graph = net("ConvTranspose", b=ODD)
    assert list(PASS.denied_by(graph)) == []
    assert exact(written(graph), ODD)


NARROW_BEHIND_RELU = [
    ("Relu", "c", "r"),
    ("Clip", "r,low,high", "out/Clip"),
    ("QuantizeLinear", "out/Clip,s,z", "out/QuantizeLinear"),
]


@pytest.mark.parametrize(
    ("op", "behind", "is_exact"),
    [
        ("Conv", NARROW, True),
        ("Conv", NARROW_BEHIND_RELU, True),
        ("Gemm", NARROW, False),
        ("Conv", [*NARROW, ("QuantizeLinear", "c,s,z", "y")], False),
        ("Conv", [*NARROW_BEHIND_RELU, ("QuantizeLinear", "r,s,z", "y")], False),
        ("Conv", [("Neg", "c", "r"), *NARROW_BEHIND_RELU[1:]], False),
        ("Conv", [("Relu", "c", "y"), *NARROW], False),
        ("Conv", [("Clip", "c,low,high", "a/Clip"), ("QuantizeLinear", "a/Clip,s,z", "out/QuantizeLinear")], False),
    ],
    ids=["clip", "relu", "gemm", "wide too", "wide behind relu", "neg", "nothing behind a relu", "clip of no pair"],
)
def test_a_scale_of_its_own_needs_that_all_readers_are_narrow(op, behind, is_exact):
    outputs = ",".join({"out/QuantizeLinear", *(row[2] for row in behind if row[2] == "y")})
    found = written(net(op, behind=behind, outputs=outputs, b=ODD, **LIMITS))
    assert exact(found, ODD) == is_exact


@pytest.mark.parametrize(
    ("weight", "bias"),
    [("a/conv/kernel/DequantizeLinear", "a/conv/bias"), ("kernel/DequantizeLinear", "/bias"), ("alone", "/bias")],
)
def test_a_bias_is_named_beside_its_weight(weight, bias):
    assert bias_name(weight) == bias
