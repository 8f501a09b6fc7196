"""Which operators of a `.tflite` file LiteRT's kernels compute: recorded and made-up events of its profiler."""

import pytest

from qdq_workbench.profiling.kernels import Kernel
from qdq_workbench.profiling.litert_kernels import Operator, OperatorOwners, kernel_events, layers_of, match_events

# The small residual network on the grids of LiteRT, and a run of it in LiteRT 2.3.
OPERATORS = (
    Operator("QUANTIZE", ("qdq.image",)),
    Operator("CONV_2D", ("stem", "stem_relu")),
    Operator("CONV_2D", ("conv",)),
    Operator("ADD", ("add", "relu")),
    Operator("MEAN", ("pool",)),
    Operator("FULLY_CONNECTED", ("head",)),
    Operator("DEQUANTIZE", ("DEQUANTIZE 6",)),
)
EVENTS = (
    (1, "LiteRT::Run[buffer registration]", 19, 0),
    (1, "Invoke", 24, 0),
    (8, "Convert (NC)", 0, 0),
    (8, "Convolution (NHWC, QC8) IGEMM", 1, 1),
    (8, "Convolution (NHWC, QC8) IGEMM", 1, 2),
    (8, "Add (ND)", 0, 3),
    (8, "Clamp (NC)", 0, 4),
    (8, "Mean (ND) Reduce", 0, 5),
    (8, "Static Reshape (NC)", 0, 6),
    (8, "Fully Connected (NC, QS8, QC8W) GEMM", 0, 7),
    (8, "Convert (NC)", 0, 8),
    (32, "Invoke", 4294967296, 18446744073709551615),
    (1, "LiteRT::Run[Buffer sync]", 17, 0),
)


def found(operators, events):
    kernels = match_events(operators, kernel_events(events))
    owners = OperatorOwners(kernels)
    return [(kernel.kind, owners.layer(kernel.leader), list(owners.fused(kernel, kernel.leader))) for kernel in kernels]


def test_kernels_of_xnnpack_are_matched_with_operators_in_order():
    assert found(OPERATORS, EVENTS) == [
        ("pair", "qdq.image", []),
        (None, "stem", ["stem_relu"]),
        (None, "conv", []),
        (None, "add", ["relu"]),
        (None, "add", ["relu"]),  # the ReLU of the sum, which has a kernel of its own
        (None, "pool", []),
        ("layout", "Static Reshape (NC)", []),
        (None, "head", []),
        ("pair", "DEQUANTIZE 6", []),
    ]
    names = [kernel.name for kernel in match_events(OPERATORS, kernel_events(EVENTS))]
    assert len(set(names)) == len(names)


def test_litert_s_own_kernels_are_told_by_number_and_the_rest_stays_in_order():
    operators = (
        *OPERATORS[:3],
        Operator("GATHER", ("gather",)),
        Operator("FULLY_CONNECTED", ("one",)),
        Operator("FULLY_CONNECTED", ("two",)),
    )
    events = (
        (2, "QUANTIZE", 4, 0),
        (2, "CONV_2D", 90, 1),
        (2, "CONV_2D", 70, 2),
        (2, "GATHER", 1, 3),
        (2, "TfLiteXNNPackDelegate", 9, 7),
        (4, "Fully Connected (NC, F32) GEMM", 5, 0),
        (4, "Fully Connected (NC, F32) GEMM", 3, 1),
    )
    assert [layer for _, layer, _ in found(operators, events)] == ["qdq.image", "stem", "conv", "gather", "one", "two"]
    alone = events[:-2]  # a delegate that does not tell what it is made of is one kernel
    assert [layer for _, layer, _ in found(operators, alone)][-1] == "TfLiteXNNPackDelegate"


def test_no_kernel_is_matched_with_an_operator_behind_one_that_must_have_its_own():
    events = ((8, "Convert (NC)", 1, 0), (8, "Convert (NC)", 1, 1), (8, "Convolution (NHWC, QC8) IGEMM", 7, 2))
    operators = (Operator("QUANTIZE", ("a",)), Operator("CONV_2D", ("conv",)), Operator("DEQUANTIZE", ("b",)))

    assert found(operators, events) == [("pair", "a", []), ("pair", "Convert (NC)", []), (None, "conv", [])]


def test_padding_in_front_of_a_convolution_belongs_to_its_kernel():
    operators = (Operator("PAD", ("pad",)), Operator("CONV_2D", ("conv",)))

    assert found(operators, ((8, "Convolution (NHWC, QC8) IGEMM", 7, 0),)) == [(None, "conv", ["pad"])]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["net_1/relu_1/Relu;net_1/conv_1/BiasAdd;net_1/conv_1/convolution"], ("conv", "relu")),
        (["net_1/inner_1/conv_1_1/BiasAdd"], ("inner/conv_1",)),
        (["net_1/flatten_1/Reshape;net_1/qdq.mean_1/FakeQuantWithMinMaxVars"], ("flatten",)),
        (["net_1/qdq.image_1/FakeQuantWithMinMaxVars;net_1/qdq.image_1/FakeQuantWithMinMaxVars/min"], ("qdq.image",)),
        (["net_1/attention_1/query_1/einsum/Einsum"], ("attention/query/einsum",)),
        (["net/conv/BiasAdd", "net/conv_1/BiasAdd"], ("conv_1", "conv")),
        (["PartitionedCall:0"], ()),
    ],
)
def test_layers_are_told_by_the_scopes_of_tensors(names, expected):
    assert layers_of([names]) == [expected]


def test_events_that_are_no_kernels_are_left_out():
    assert kernel_events(()) == []
    assert kernel_events(EVENTS) == list(EVENTS[2:-2])


def test_a_delegate_is_a_kernel_unless_it_tells_its_own():
    delegate, own = (2, "TfLiteXNNPackDelegate", 9, 7), (2, "CONV_2D", 9, 0)

    assert kernel_events((own, delegate)) == [own, delegate]
    for kind in (4, 8):
        inside = (kind, "Mean (ND) Reduce", 1, 0)
        assert kernel_events((own, delegate, inside)) == [own, inside]


def test_nothing_in_front_of_the_first_operator_owns_an_activation():
    events = ((8, "Clamp (NC)", 1, 0), (8, "Add (ND)", 1, 1))

    assert found((Operator("ADD", ("add",)),), events) == [("layout", "Clamp (NC)", []), (None, "add", [])]


def test_an_activation_behind_a_conversion_belongs_to_the_layer_in_front_of_it():
    operators = (Operator("ADD", ("add",)), Operator("QUANTIZE", ("qdq.add",)))
    events = ((8, "Add (ND)", 1, 0), (8, "Convert (NC)", 1, 1), (8, "Clamp (NC)", 1, 2))

    assert found(operators, events) == [(None, "add", []), ("pair", "qdq.add", []), (None, "add", [])]


@pytest.mark.parametrize(
    ("kind", "tag"),
    [
        ("AVERAGE_POOL_2D", "Global Average Pooling (NWC)"),
        ("MEAN", "Global Average Pooling (NWC)"),
        ("DEPTHWISE_CONV_2D", "Convolution (NHWC, QC8) DWConv"),
        ("FULLY_CONNECTED", "Dynamic Fully Connected (NC)"),
        ("TRANSPOSE_CONV", "Deconvolution (NHWC, QC8)"),
        ("LOGISTIC", "Sigmoid (NC)"),
        ("RELU6", "Clamp (NC)"),
        ("RESHAPE", "Copy (NC)"),
        ("SUB", "Subtract (ND)"),
        ("PAD", "Constant Pad (ND)"),
        ("SOFTMAX", "Softmax (NC)"),
        ("LEAKY_RELU", "Leaky Relu (NC)"),
    ],
)
def test_kernels_are_told_by_the_beginning_of_their_name(kind, tag):
    assert found((Operator(kind, ("layer",)),), ((8, tag, 1, 0),)) == [(None, "layer", [])]


def test_a_light_operator_without_a_kernel_is_computed_by_the_next_one():
    operators = (Operator("RESHAPE", ("flat",)), Operator("RELU", ("relu",)), Operator("FULLY_CONNECTED", ("head",)))
    events = ((8, "Fully Connected (NC)", 5, 0), (8, "Fully Connected (NC)", 5, 1))

    assert found(operators, events) == [(None, "head", ["relu", "flat"]), ("layout", "Fully Connected (NC)", [])]


def test_the_layers_of_several_operators_are_named_once_the_last_operator_first():
    operators = (Operator("PAD", ("block", "pad")), Operator("CONV_2D", ("conv", "block")))

    assert found(operators, ((8, "Convolution (NHWC)", 1, 0),)) == [(None, "conv", ["block", "pad"])]


def test_a_pair_is_told_from_a_layout_and_has_a_name_only_where_its_operator_is_known():
    kernels = match_events((Operator("QUANTIZE", ("qdq.x",)),), [(8, "Convert (NC)", 1, 0), (8, "Convert (NC)", 1, 1)])

    assert [(kernel.kind, kernel.pair) for kernel in kernels] == [("pair", "qdq.x"), ("pair", "")]
    assert [kernel.name for kernel in kernels] == ["0 Convert (NC)", "1 Convert (NC)"]


def test_owners_keep_all_kernels_and_the_kind_of_each():
    kernels = [Kernel("0 a", "a", "one", ("one", "two"), 0, None, ""), Kernel("1 b", "b", "b", ("b",), 0, "layout", "")]
    owners = OperatorOwners(iter(kernels))

    assert owners.kernels == tuple(kernels)
    assert [owners.kind(kernel) for kernel in kernels] == [None, "layout"]
    assert list(owners.fused(kernels[0], "one")) == ["two"]


def test_numbers_of_scopes_stay_unless_every_layer_has_one():
    assert layers_of([["net_1/conv_1/Conv"], ["net_1/relu/Relu"]]) == [("conv_1",), ("relu",)]
    assert layers_of([["net_1/block_1/conv_2/Conv"], ["net_1/relu_12/Relu"]]) == [("block/conv",), ("relu",)]
    assert layers_of([[], ["net_1/conv_1/Conv"]]) == [(), ("conv",)]


def test_the_inside_of_a_pair_is_the_pair():
    assert layers_of([["net/block/qdq.x/inner/FakeQuant"]]) == [("block/qdq.x",)]
