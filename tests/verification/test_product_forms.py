"""What is told of the form of single products: graphs made by hand, each with one thing that no kernel wants."""

import numpy as np
import pytest
from mock_graphs import GraphMaker
from pass_graphs import model_of

import qdq_workbench as qdq
from qdq_workbench.graph.model_graph import Weight
from qdq_workbench.quantizers.bias_room import BIAS_LIMIT
from qdq_workbench.verification.product_forms import product_differences
from qdq_workbench.verification.typed_file import TypedFile

IMAGE, SEQUENCE, ROW = (None, 8, 8, 4), (None, 5, 6), (None, 6)
X_SCALE, W_SCALES = np.float32(0.125), np.float32([0.5, 0.25, 1.0])


def pair(tensor, name=None, after="y"):
    """Return the rows of a pair behind a tensor."""
    name = name or tensor
    return [
        ("QuantizeLinear", f"{tensor},{after}/s,{after}/z", f"{name}/QuantizeLinear"),
        ("DequantizeLinear", f"{name}/QuantizeLinear,{after}/s,{after}/z", f"{name}/DequantizeLinear"),
    ]


def plan_of(class_name="Conv2D", shape=IMAGE, *, target="onnxruntime", spec=None, layer="conv", **fields):
    """Return the plan of one layer whose output an addition reads, so that it has a pair behind it, too."""
    fields.setdefault("weights", (Weight("kernel", (1, 1, 4, 3)), Weight("bias", (3,))))
    maker = GraphMaker(shape=shape)
    maker.add(class_name, layer, "image", shape=(*shape[:-1], 3), **fields)
    maker.add("ReLU", "relu", layer, shape=(*shape[:-1], 3))
    return qdq.plan_placement(maker.graph("relu"), quantization_spec=spec, target=target)


def told(plan, rows, inputs=None, outputs="y", **constants):
    """Return what is told of a file, with the first matching row for each written tensor taken from `rows`."""
    known = {
        "x/s": X_SCALE,
        "x/z": np.uint8(128),
        "y/s": np.float32(0.25),
        "y/z": np.uint8(0),
        "codes": np.arange(12, dtype=np.int8).reshape(3, 4, 1, 1),
        "ws": W_SCALES,
        "wz": np.zeros(3, np.int8),
        "bcodes": np.int32([5, -7, 11]),
        "bs": X_SCALE * W_SCALES,
        "bz": np.zeros(3, np.int32),
        **constants,
    }
    used = {name for row in rows for name in row[1].split(",")}
    proto = model_of(
        rows, inputs or {"image": [1, 4, 8, 8]}, outputs, {k: v for k, v in known.items() if k in used}, opset=21
    )
    return list(product_differences(TypedFile(plan, proto)))


def without_input(layer):
    """Return a specification that leaves the input of a layer in float."""
    spec = qdq.QuantizationSpec()
    spec.add(layer, quantize_input=False)
    return spec


INPUT = pair("image", after="x")
WEIGHT = ("DequantizeLinear", "codes,ws,wz", "conv/kernel/dequantized", {"axis": 0})
BIAS = ("DequantizeLinear", "bcodes,bs,bz", "conv/bias/dequantized", {"axis": 0})
CONV = ("Conv", "image/DequantizeLinear,conv/kernel/dequantized,conv/bias/dequantized", "conv/Conv")
RELU = ("Relu", "conv/Conv", "relu/Relu")
END = ("Identity", "relu/Relu", "y")
GOOD = [*INPUT, WEIGHT, BIAS, CONV, RELU, END]


def changed(rows, **new):
    """Return the rows with others in place of those that write some tensors, named by the part behind the slash."""
    found = []
    for row in rows:
        found += new.get(row[2].replace("/", "_"), [row])
    return found


class TestConvolution:
    def test_of_the_form_that_the_exporter_writes_nothing_is_told(self):
        assert told(plan_of(), GOOD) == []

    def test_a_layer_in_float_is_not_looked_at(self):
        spec = qdq.QuantizationSpec()
        spec.add("conv", quantize_weight=False, quantize_input=False)
        moved = [WEIGHT, ("Identity", "conv/kernel/dequantized", "moved")]
        conv = ("Conv", "image/DequantizeLinear,moved,conv/bias/dequantized", "conv/Conv")
        rows = changed(GOOD, conv_kernel_dequantized=moved, conv_Conv=[conv])
        assert told(plan_of(spec=spec), rows) == []
        assert told(plan_of(), rows) != []

    @pytest.mark.parametrize("operator", ["Identity", "Transpose", "Cast"])
    def test_a_weight_that_is_moved_at_run_time(self, operator):
        attributes = {"Transpose": {"perm": [0, 1, 2, 3]}, "Cast": {"to": 1}}.get(operator, {})
        rows = changed(
            GOOD,
            conv_kernel_dequantized=[WEIGHT, (operator, "conv/kernel/dequantized", "moved", attributes)],
            conv_Conv=[("Conv", "image/DequantizeLinear,moved,conv/bias/dequantized", "conv/Conv")],
        )
        assert told(plan_of(), rows) == [f"the integer weight 'conv/kernel' is moved by a {operator} at run time"]

    def test_a_product_that_does_not_read_its_pair(self):
        relu = ("Relu", "image/DequantizeLinear", "conv/Relu")
        conv = ("Conv", "conv/Relu,conv/kernel/dequantized,conv/bias/dequantized", "conv/Conv")
        assert told(plan_of(), changed(GOOD, conv_Conv=[relu, conv])) == ["'conv' does not read its pair directly"]
        # Where its input has no pair in the plan, none is missed.
        assert told(plan_of(spec=without_input("conv")), changed(GOOD, conv_Conv=[relu, conv])) == []

    def test_a_transposition_in_front_of_a_convolution_is_no_direct_reading(self):
        moved = ("Transpose", "image/DequantizeLinear", "conv/Transpose", {"perm": [0, 1, 3, 2]})
        conv = ("Conv", "conv/Transpose,conv/kernel/dequantized,conv/bias/dequantized", "conv/Conv")
        assert told(plan_of(), changed(GOOD, conv_Conv=[moved, conv])) == ["'conv' does not read its pair directly"]

    def test_a_sequence_that_is_computed_as_an_image(self):
        plan = plan_of("Conv1D", SEQUENCE)
        assert told(plan, GOOD) == ["'conv' is computed on 4 axes, and has 3"]
        assert told(plan_of("Conv1D", (None, None, 6)), GOOD) == [], "an axis of open size may be one of size 1"

    def test_a_bias_outside(self):
        conv = ("Conv", "image/DequantizeLinear,conv/kernel/dequantized", "conv/product")
        add = ("Add", "conv/product,floats", "conv/Conv")
        floats = np.ones((3, 1, 1), np.float32)
        rows = [row for row in changed(GOOD, conv_Conv=[conv, add]) if row is not BIAS]
        assert told(plan_of(), rows, floats=floats) == ["'conv' has its bias outside"]
        # Behind the layout of Keras, too.
        moves = [("Transpose", "conv/product", "conv/Transpose", {"perm": [0, 2, 3, 1]})]
        add = ("Add", "conv/Transpose,floats", "conv/Conv")
        rows = [row for row in changed(GOOD, conv_Conv=[conv, *moves, add]) if row is not BIAS]
        assert told(plan_of(), rows, floats=np.ones(3, np.float32)) == ["'conv' has its bias outside"]
        # With open sizes the exporter cannot put it back in front of the Transpose.
        assert told(plan_of(shape=(None, None, 8, 4)), rows, floats=np.ones(3, np.float32)) == []
        for name, values in (("conv/Conv", np.float32(1)), ("relu/Add", floats)):
            # One value for all channels is no bias, nor is the addition of another layer.
            more = [conv, ("Add", "conv/product,floats", name)]
            rows = [row for row in changed(GOOD, conv_Conv=more) if row is not BIAS]
            assert told(plan_of(), changed(rows, relu_Relu=[("Relu", name, "relu/Relu")]), floats=values) == []
        # Nor is one beside another reader of the product, which wants its values without a bias.
        more = [conv, ("Add", "conv/product,floats", "conv/Conv"), ("Tanh", "conv/product", "z")]
        rows = [row for row in changed(GOOD, conv_Conv=more) if row is not BIAS]
        assert told(plan_of(), rows, outputs="y,z", floats=floats) == []

    def test_a_bias_outside_a_transposed_convolution_has_a_value_per_output(self):
        plan = plan_of("Conv2DTranspose", weights=(Weight("kernel", (1, 1, 3, 4)), Weight("bias", (3,))))
        weight = ("DequantizeLinear", "codes,ws,wz", "conv/kernel/dequantized", {"axis": 1})
        product = ("ConvTranspose", "image/DequantizeLinear,conv/kernel/dequantized", "conv/product")
        add = ("Add", "conv/product,floats", "conv/Conv")
        rows = [*INPUT, weight, product, add, RELU, END]
        codes = np.arange(12, dtype=np.int8).reshape(4, 3, 1, 1)
        error = ["'conv' has its bias outside"]
        assert told(plan, rows, codes=codes, floats=np.ones((3, 1, 1), np.float32)) == error
        assert told(plan, rows, codes=codes, floats=np.ones((1, 1, 8), np.float32)) == []

    def test_a_transposition_in_front_of_the_pair_behind_it(self):
        back = ("Transpose", "end/DequantizeLinear", "y", {"perm": [0, 3, 1, 2]})
        moved = ("Transpose", "relu/Relu", "relu/Transpose", {"perm": [0, 2, 3, 1]})
        sums = ("Add", "end/DequantizeLinear,end/DequantizeLinear", "y")
        rows = [*GOOD[:-1], moved, *pair("relu/Transpose", "end")]
        assert told(plan_of(), [*rows, sums]) == ["'conv' is transposed in front of its pair, and back behind it"]
        both = [("Softmax", "end/DequantizeLinear", "y"), ("Add", "end/DequantizeLinear,end/DequantizeLinear", "z")]
        assert told(plan_of(), [*rows, *both], outputs="y,z") != []
        # Another operator in front of the pair, and a transposition in front of none.
        tanh = [*GOOD[:-1], ("Tanh", "relu/Relu", "relu/Tanh"), *pair("relu/Tanh", "end"), sums]
        assert told(plan_of(), tanh) == []
        moves = [moved, ("Tanh", "relu/Transpose", "t"), ("Softmax", "t", "u"), ("Add", "u,u", "y")]
        assert told(plan_of(), [*GOOD[:-1], *moves]) == []
        # Who reads it in the layout of Keras needs it; what stands behind no pair costs no kernel.
        assert told(plan_of(), [*rows, ("Softmax", "end/DequantizeLinear", "y")]) == []
        assert told(plan_of(), [*GOOD[:-1], moved, ("Add", "relu/Transpose,relu/Transpose", "y")]) == []
        assert told(plan_of(), [*rows, back, ("Add", "relu/Transpose,relu/Transpose", "z")], outputs="y,z") == []


class TestIntegerBias:
    ERROR = "'conv' has a float bias, and by the target an int32 one"

    def float_bias(self, *more):
        conv = ("Conv", "image/DequantizeLinear,conv/kernel/dequantized,floats", "conv/Conv")
        return [row for row in changed(GOOD, conv_Conv=[conv]) if row is not BIAS] + list(more)

    def test_a_bias_in_float_is_told_where_the_target_wants_int32(self):
        floats = np.ones(3, np.float32)
        assert told(plan_of(), self.float_bias(), floats=floats) == [self.ERROR]
        assert told(plan_of(target="tensorrt"), self.float_bias(), floats=floats) == []

    def test_in_front_of_a_grid_of_16_bits_it_is_kept(self):
        """The bias of int32 has the step of the product, and the pair behind it may have a finer one."""
        fine = pair("relu/Relu", "end", after="f")
        rows = [row for row in self.float_bias() if row is not END]
        rows = [*rows, *fine, ("Identity", "end/DequantizeLinear", "y")]
        grid = {"f/s": np.float32(1e-4), "f/z": np.uint16(0), "floats": np.ones(3, np.float32)}
        assert told(plan_of(), rows, **grid) == []
        assert told(plan_of(), rows, **{**grid, "f/z": np.uint8(0)}) == [self.ERROR]
        # Behind a pair of 8 bits a finer one comes too late.
        later = [
            *rows[:-1],
            ("Tanh", "end/DequantizeLinear", "t"),
            *pair("t", after="g"),
            ("Relu", "t/DequantizeLinear", "y"),
        ]
        coarse = {**grid, "f/z": np.uint8(0), "g/s": np.float32(1e-4), "g/z": np.uint16(0)}
        assert told(plan_of(), later, **coarse) == [self.ERROR]

    def test_a_bias_on_another_scale(self):
        error = ["'conv' has a bias whose scale is not the product of those of its input and its weight"]
        other = (X_SCALE * W_SCALES * np.float32([1, 1, 1.5])).astype(np.float32)
        assert told(plan_of(), GOOD, bs=other) == error
        # The largest codes are those of a bias that is exact on a scale of its own.
        exact = np.int32([0, BIAS_LIMIT, -BIAS_LIMIT])
        assert told(plan_of(), GOOD, bs=other, bcodes=exact) == []
        assert told(plan_of(), GOOD, bs=other, bcodes=np.int32([0, BIAS_LIMIT, 1])) == error
        assert told(plan_of(), GOOD, bs=(X_SCALE * W_SCALES)) == []

    def test_scales_that_cannot_be_raised_keep_a_float_bias(self):
        floats = np.ones(3, np.float32)
        second = ("Conv", "image/DequantizeLinear,conv/kernel/dequantized", "other/Conv")
        rows = self.float_bias(second)
        assert told(plan_of(), rows, outputs="y,other/Conv", floats=floats) == []
        along = ("DequantizeLinear", "codes,ws,wz", "conv/kernel/dequantized", {"axis": 1})
        rows = changed(self.float_bias(), conv_kernel_dequantized=[along])
        four = {"ws": np.ones(4, np.float32), "wz": np.zeros(4, np.int8)}
        assert told(plan_of(), rows, floats=floats, **four) == []
        one = {"ws": np.float32(1), "wz": np.int8(0)}
        assert told(plan_of(), rows, floats=floats, **one) == [self.ERROR]

    def test_without_a_pair_in_front_there_is_no_scale_for_it(self):
        conv = ("Conv", "image,conv/kernel/dequantized,floats", "conv/Conv")
        rows = [row for row in changed(GOOD, conv_Conv=[conv]) if row not in (BIAS, *INPUT)]
        assert told(plan_of(spec=without_input("conv")), rows, floats=np.ones(3, np.float32)) == []


DENSE_WEIGHT = ("DequantizeLinear", "codes,ws,wz", "head/kernel/dequantized", {"axis": 1})
DENSE = {"codes": np.arange(18, dtype=np.int8).reshape(6, 3)}


def dense_plan(shape, **more):
    weights = (Weight("kernel", (shape[-1], 3)), Weight("bias", (3,)))
    return plan_of("Dense", shape, layer="head", weights=weights, **more)


class TestMatrixProduct:
    def told(self, rows, shape=SEQUENCE, size=(1, 5, 6), plan=None, outputs="y", **constants):
        rows = [*INPUT, DENSE_WEIGHT, *rows]
        return told(plan or dense_plan(shape), rows, {"image": list(size)}, outputs, **{**DENSE, **constants})

    def sequence(self, reads="image/DequantizeLinear"):
        return [
            ("MatMul", f"{reads},head/kernel/dequantized", "head/MatMul"),
            ("Add", "head/MatMul,floats", "head/Add"),
            ("Relu", "head/Add", "relu/Relu"),
            END,
        ]

    def test_a_sequence_has_its_bias_apart_on_two_axes(self):
        assert self.told(self.sequence(), floats=np.ones((1, 3), np.float32)) == []
        error = ["'head' has a bias of one axis, with which ONNX Runtime makes a float Gemm of it"]
        assert self.told(self.sequence(), floats=np.ones(3, np.float32)) == error
        # A product without a pair in front of it is in float anyway.
        moved = [("Relu", "image/DequantizeLinear", "moved"), *self.sequence("moved")]
        assert (
            self.told(moved, plan=dense_plan(SEQUENCE, spec=without_input("head")), floats=np.ones(3, np.float32)) == []
        )

    def test_a_row_has_its_bias_inside(self):
        plan = dense_plan(ROW)
        floats = np.ones((1, 3), np.float32)
        assert self.told(self.sequence(), ROW, (1, 6), plan, floats=floats) == ["'head' has its bias outside"]
        gemm = ("Gemm", "image/DequantizeLinear,head/kernel/dequantized,head/bias/dequantized", "head/Gemm")
        bias = ("DequantizeLinear", "bcodes,bs,bz", "head/bias/dequantized", {"axis": 0})
        rows = [bias, gemm, ("Relu", "head/Gemm", "relu/Relu"), END]
        assert self.told(rows, ROW, (1, 6), plan) == []
        rows = [("Gemm", "image/DequantizeLinear,head/kernel/dequantized,floats", "head/Gemm"), *rows[2:]]
        error = ["'head' has a float bias, and by the target an int32 one"]
        assert self.told(rows, ROW, (1, 6), plan, floats=np.ones(3, np.float32)) == error

    def test_what_follows_a_sequence_in_another_order_is_no_bias_and_no_detour(self):
        """A matrix product works in the layout of Keras, in which nothing is transposed for it."""
        product = ("MatMul", "image/DequantizeLinear,head/kernel/dequantized", "head/MatMul")
        moved = ("Transpose", "head/MatMul", "head/Transpose", {"perm": [0, 2, 1]})
        add = [("Add", "head/Transpose,floats", "head/Add"), ("Identity", "head/Add", "y")]
        assert self.told([product, moved, *add], (None, 3, 6), (1, 3, 6), floats=np.ones(3, np.float32)) == []
        sums = ("Add", "end/DequantizeLinear,end/DequantizeLinear", "y")
        assert self.told([product, moved, *pair("head/Transpose", "end"), sums]) == []

    def test_a_transposed_pair_may_stand_in_front(self):
        """It may stand in the layout of a convolution that reads the same tensor."""
        moved = ("Transpose", "image/DequantizeLinear", "moved", {"perm": [0, 2, 1]})
        rows = [moved, *self.sequence("moved")]
        floats = np.ones((1, 3), np.float32)
        assert self.told(rows, SEQUENCE, (1, 6, 5), floats=floats) == []
        rows[0] = ("Relu", "image/DequantizeLinear", "moved")
        assert self.told(rows, floats=floats) == ["'head' does not read its pair directly"]

    def test_a_clip_hides_a_weight_in_blocks_where_something_reads_it_alone(self):
        spec = qdq.QuantizationSpec()
        weight = {"num_bits": 4, "block_size": 16, "per_axis": True, "axis": 0}
        spec.add("head", quantize_input=False, quantize_config=qdq.LayerQuantizeConfig(weight=weight))
        wide = {"shape": (None, 5, 32), "size": (1, 5, 32), "codes": np.zeros((32, 3), np.int8)}
        plan = dense_plan(wide["shape"], spec=spec)
        product, relu = ("MatMul", "image,head/kernel/dequantized", "head/MatMul"), ("Relu", "head/MatMul", "relu/Relu")
        error = "'head' is followed by a Relu, which hides its weight in blocks from the runtime"
        assert self.told([product, relu, END], plan=plan, **wide) == [error]
        assert self.told([product, ("Tanh", "head/MatMul", "relu/Relu"), END], plan=plan, **wide) == []
        assert self.told([product, relu, ("Add", "head/MatMul,relu/Relu", "y")], plan=plan, **wide) == []
        assert self.told([product, relu, ("Add", "relu/Relu,relu/Relu", "y")], plan=plan, **wide) == [error]
        ends = [("Identity", "relu/Relu", "y"), ("Tanh", "relu/Relu", "z")]
        assert self.told([product, relu, *ends], plan=plan, outputs="y,z", **wide) == []
        per_channel = {"plan": dense_plan(wide["shape"], spec=without_input("head"))}
        assert self.told([product, relu, END], **per_channel, **wide) == []


class TestFloatWeight:
    """ONNX Runtime quantizes a float weight between two pairs itself."""

    ERROR = "'conv' has a float weight between two pairs, which ONNX Runtime would quantize itself"

    def told(self, *rows, target="onnxruntime", kernel=None):
        spec = qdq.QuantizationSpec()
        spec.add("conv", quantize_weight=False, quantize_input=False)
        plan = plan_of(spec=spec, target=target)
        kernel = np.ones((3, 4, 1, 1), np.float32) if kernel is None else kernel
        constants = {"kernel": kernel, "floats": np.ones(3, np.float32), "six": np.float32(6), "zero": np.float32(0)}
        return told(plan, [*INPUT, *rows], **constants)

    def test_it_is_told_for_what_the_runtime_looks_through(self):
        conv = ("Conv", "image/DequantizeLinear,kernel,floats", "conv/Conv")
        end = [*pair("conv/Conv", "end"), ("Identity", "end/DequantizeLinear", "y")]
        relu = [("Relu", "conv/Conv", "relu/Relu"), *pair("relu/Relu", "end"), end[-1]]
        assert self.told(conv, *end) == [self.ERROR]
        assert self.told(conv, *relu) == [self.ERROR]
        moved = ("Transpose", "image/DequantizeLinear", "moved", {"perm": [0, 1, 3, 2]})
        assert self.told(moved, ("Conv", "moved,kernel,floats", "conv/Conv"), *end) == [self.ERROR]
        assert self.told(("Conv", "image/DequantizeLinear,kernel", "conv/Conv"), *end) == [self.ERROR]
        assert self.told(conv, *end, target="tensorrt") == []

    def test_it_is_not_told_of_what_the_runtime_leaves_alone(self):
        conv = ("Conv", "image/DequantizeLinear,kernel,floats", "conv/Conv")
        end = [*pair("conv/Conv", "end"), ("Identity", "end/DequantizeLinear", "y")]
        clip = [
            ("Clip", "image/DequantizeLinear,zero,six", "in_float"),
            ("Conv", "in_float,kernel,floats", "conv/Conv"),
        ]
        assert self.told(*clip, *end) == []
        assert self.told(conv, ("Tanh", "conv/Conv", "relu/Tanh"), *pair("relu/Tanh", "end"), end[-1]) == []
        assert self.told(conv, ("Identity", "conv/Conv", "y")) == []
        # A second reader behind the product wants its floats.
        assert self.told(conv, *end[:2], ("Add", "end/DequantizeLinear,conv/Conv", "y")) == []
        assert self.told(("Conv", "image,kernel,floats", "conv/Conv"), *end) == []
        # Constants of other operators, and of matrix products without a bias inside, stay what they are.
        for operator, values in (("Add", np.ones((4, 1, 1), np.float32)), ("MatMul", np.ones((8, 8), np.float32))):
            other = (operator, "image/DequantizeLinear,kernel", "conv/Conv")
            assert self.told(other, *end, kernel=values) == []
        half = np.ones((3, 4, 1, 1), np.float16)
        assert self.told(conv, *end, kernel=half) == []
        computed = ("Mul", "floats,floats", "bias")
        assert self.told(computed, ("Conv", "image/DequantizeLinear,kernel,bias", "conv/Conv"), *end) == []
