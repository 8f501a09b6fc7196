"""The kernel of each layer in firmware: windows as TensorFlow counts them, shapes, multipliers, and what is refused."""

import numpy as np
import pytest
from keras import layers, ops

from qdq_workbench.errors import ExportError
from qdq_workbench.export.encodings import Encoding
from qdq_workbench.export.firmware.kernels import Kernels, pads_of
from qdq_workbench.export.firmware.program import Program
from qdq_workbench.export.firmware.tensors import Integers
from qdq_workbench.graph.model_graph import Node
from qdq_workbench.spec.quantizer_spec import QuantizerSpec

INT8 = QuantizerSpec(num_bits=8, signed=True, symmetric=False)


def grid(scale=0.5, zero=0, spec=INT8):
    return Encoding(np.float32(scale), np.int32(zero), spec)


def tensor(*shape, scale=0.5, pads=(), padded_by=()):
    return Integers("x/quantized", shape, grid(scale), pads, padded_by)


def node(class_name, name="layer", **settings):
    return Node(name, name, class_name, inputs=("x",), outputs=(name,), settings=settings)


def weight(*shape, scales=None, axis=-1, symmetric=True, bits=8, zero=0):
    """Return a weight with the codes 1, 2, 3, ..., with a scale per slice along an axis."""
    codes = np.arange(1, 1 + np.prod(shape)).reshape(shape)
    axis = None if scales is None else axis
    scale = np.float32(0.25 if scales is None else scales)
    spec = QuantizerSpec(num_bits=bits, signed=True, symmetric=symmetric, axis=axis)
    return Encoding(scale, np.full(scale.shape, zero), spec, codes.astype(np.int8 if bits <= 8 else np.int16))


def kernels(program=None, bias=None, **weights):
    named = {f"{layer}/kernel": encoding for layer, encoding in weights.items()}
    return Kernels(program or Program(), named, {} if bias is None else {"layer/kernel": np.float32(bias)})


def by_keras(layer, *shape):
    """Return the shape that Keras computes for one sample."""
    return tuple(layer.compute_output_shape((1, *shape)))[1:]


WINDOWS = [
    (size, kernel, strides, dilation, padding)
    for size in ((7, 8), (5, 5))
    for kernel, strides, dilation in (((3, 2), (1, 1), (1, 1)), ((3, 3), (2, 2), (1, 1)), ((2, 3), (1, 1), (2, 2)))
    for padding in ("valid", "same")
]


class TestWindow:
    @pytest.mark.parametrize(("size", "kernel", "strides", "dilation", "padding"), WINDOWS)
    def test_a_convolution_is_as_large_as_in_keras_and_starts_where_tensorflow_does(
        self, size, kernel, strides, dilation, padding
    ):
        settings = {"strides": strides, "dilation_rate": dilation, "padding": padding}
        found = kernels(layer=weight(*kernel, 1, 1)).convolution(node("Conv2D", **settings), tensor(*size, 1))
        assert found.shape == by_keras(layers.Conv2D(1, kernel, **settings), *size, 1)
        # With zeros around the image in this order, a convolution without padding computes the same.
        image = np.random.default_rng(0).normal(size=(1, *size, 1)).astype("float32")
        ones = np.ones((*kernel, 1, 1), "float32")
        padded = np.pad(image, [(0, 0), *found.fixed["padding"], (0, 0)])
        options = {"strides": strides, "dilation_rate": dilation}
        expected = ops.conv(image, ones, padding=padding, **options)
        np.testing.assert_allclose(ops.conv(padded, ones, padding="valid", **options), expected, atol=1e-5)
        assert (found.fixed["kernel"], found.fixed["strides"]) == (list(kernel), list(strides))
        assert (found.fixed["dilation"], found.fixed["groups"]) == (list(dilation), 1)

    def test_padding_in_front_of_a_layer_joins_that_of_the_layer(self):
        pads = ((1, 0), (2, 3))
        x = tensor(4, 4, 1, pads=pads, padded_by=("pad",))
        valid = kernels(layer=weight(3, 3, 1, 1)).convolution(node("Conv2D", strides=(2, 2)), x)
        assert valid.fixed["padding"] == [[1, 0], [2, 3]]
        assert valid.shape == by_keras(layers.Conv2D(1, 3, strides=2), 5, 9, 1)
        assert valid.layers == ("pad", "layer")
        same = kernels(layer=weight(3, 3, 1, 1)).convolution(node("Conv2D", padding="same", strides=(2, 2)), x)
        # Of 5 rows in steps of 2 three windows, which need 7: one more on each side; of 9 columns five, which need 11.
        assert same.fixed["padding"] == [[2, 1], [3, 4]]
        assert same.shape == (3, 5, 1)

    def test_a_layer_of_padding_names_its_sides(self):
        assert pads_of(node("ZeroPadding2D", padding=((1, 2), (3, 4)))) == ((1, 2), (3, 4))

    def test_images_alone_have_windows(self):
        with pytest.raises(ExportError, match=r"it reads a tensor of shape \(4, 1\)"):
            kernels(layer=weight(3, 3, 1, 1)).convolution(node("Conv2D"), tensor(4, 1))


class TestProducts:
    def test_groups_and_depthwise_kernels(self):
        grouped = kernels(layer=weight(1, 1, 2, 6)).convolution(node("Conv2D"), tensor(4, 4, 4))
        assert (grouped.operator, grouped.fixed["groups"], grouped.shape) == ("Conv2D", 2, (4, 4, 6))
        program = Program()
        depthwise = kernels(program, layer=weight(2, 2, 3, 2)).convolution(node("DepthwiseConv2D"), tensor(4, 4, 3))
        # Without strides of its own a window moves by its size; Keras's layers always have some.
        assert (depthwise.operator, depthwise.shape) == ("DepthwiseConv2D", (2, 2, 6))
        assert depthwise.fixed["depth_multiplier"] == 2
        assert "groups" not in depthwise.fixed
        held = program.arrays["layer/kernel"]
        assert (held.shape, program.axes["layer/kernel"]) == ((1, 2, 2, 6), "1HWO")
        assert held[0, 1, 0].tolist() == weight(2, 2, 3, 2).codes[1, 0].reshape(-1).tolist()

    def test_weights_lie_output_first(self):
        program, codes = Program(), weight(2, 3, 4, 5).codes
        kernels(program, layer=weight(2, 3, 4, 5)).convolution(node("Conv2D"), tensor(4, 4, 4))
        np.testing.assert_array_equal(program.arrays["layer/kernel"], np.moveaxis(codes, 3, 0))
        assert program.axes["layer/kernel"] == "OHWI"
        found = kernels(program, layer=weight(4, 3)).dense(node("Dense"), tensor(4))
        np.testing.assert_array_equal(program.arrays["layer/kernel"], weight(4, 3).codes.T)
        assert (found.operator, found.shape, program.axes["layer/kernel"]) == ("Dense", (3,), "OI")

    def test_biases_and_multipliers_have_the_scale_of_each_output(self):
        program = Program()
        scales = np.float32([0.25, 0.5, 1.0])
        x = tensor(2, scale=0.5)
        found = kernels(program, bias=[1.0, -2.0, 3.0], layer=weight(2, 3, scales=scales)).dense(node("Dense"), x)
        assert program.arrays["layer/bias"].tolist() == [8, -8, 6]
        np.testing.assert_array_equal(program.arrays["layer/kernel/scale"], scales)
        floats = found.finish(None)
        assert set(floats["arrays"]) == {"weights", "weight_scale", "bias"}
        assert "layer/multiplier" not in program.arrays
        integers = found.finish(grid(0.125))
        assert set(integers["arrays"]) == {"weights", "weight_scale", "bias", "multiplier", "shift"}
        multiplier, shift = (program.arrays[f"layer/{name}"] for name in ("multiplier", "shift"))
        factors = multiplier / 2.0**31 * 2.0 ** shift.astype(float)
        np.testing.assert_allclose(factors, 0.5 * scales / 0.125, rtol=1e-8)

    def test_one_scale_serves_all_outputs_and_no_bias_is_zeros(self):
        program = Program()
        kernels(program, layer=weight(2, 3)).dense(node("Dense"), tensor(2))
        np.testing.assert_array_equal(program.arrays["layer/kernel/scale"], np.float32([0.25] * 3))
        assert program.arrays["layer/bias"].tolist() == [0, 0, 0]

    def test_calls_of_one_layer_share_its_weight_but_not_its_bias(self):
        program = Program()
        made = kernels(program, bias=[1.0, 1.0, 1.0], layer=weight(2, 3))
        call = Node("layer#1", "layer", "Dense", inputs=("x",), outputs=("layer#1",))
        made.dense(node("Dense"), tensor(2, scale=0.5))
        made.dense(call, tensor(2, scale=0.25))
        assert program.arrays["layer/bias"].tolist() == [8] * 3
        assert program.arrays["layer#1/bias"].tolist() == [16] * 3
        assert [name for name in program.arrays if name.endswith("kernel")] == ["layer/kernel"]

    @pytest.mark.parametrize(
        ("given", "says"),
        [
            ({}, "its weight stays in float"),
            ({"layer": weight(2, 3, symmetric=False, zero=1)}, "zero points other than 0"),
            ({"layer": weight(2, 3, bits=16)}, "or is no int8"),
            ({"layer": weight(2, 3, scales=[0.25, 0.5], axis=0)}, "its weight has scales along axis 0"),
            ({"layer": weight(2, 3, scales=[1e-30] * 3), "bias": [1e9] * 3}, "its bias does not fit into int32"),
        ],
    )
    def test_weights_without_an_integer_form_are_refused(self, given, says):
        with pytest.raises(ExportError, match=says):
            kernels(**given).dense(node("Dense"), tensor(2))

    def test_scales_along_inputs_that_are_all_equal_are_one(self):
        program = Program()
        kernels(program, layer=weight(2, 3, scales=[0.5, 0.5], axis=0)).dense(node("Dense"), tensor(2))
        np.testing.assert_array_equal(program.arrays["layer/kernel/scale"], np.float32([0.5] * 3))

    def test_a_depthwise_kernel_may_have_a_scale_per_output_but_not_per_input_alone_where_it_multiplies(self):
        made = kernels(Program(), layer=weight(1, 1, 2, 2, scales=[0.25, 0.5], axis=2))
        found = made.convolution(node("DepthwiseConv2D"), tensor(4, 4, 2))
        np.testing.assert_array_equal(made._program.arrays["layer/kernel/scale"], np.float32([0.25, 0.25, 0.5, 0.5]))
        assert found.shape == (4, 4, 4)

    def test_a_matrix_product_of_rows_is_refused(self):
        with pytest.raises(ExportError, match=r"it multiplies a tensor of shape \(4, 2\)"):
            kernels(layer=weight(2, 3)).dense(node("Dense"), tensor(4, 2))


class TestPooling:
    def test_a_window_without_strides_moves_by_its_size(self):
        found = kernels().average(node("AveragePooling2D", pool_size=(2, 3)), tensor(6, 7, 5))
        assert (found.operator, found.fixed["strides"]) == ("AveragePool", [2, 3])
        assert found.shape == by_keras(layers.AveragePooling2D((2, 3)), 6, 7, 5)
        given = kernels().maximum_window(node("MaxPooling2D", pool_size=2, strides=1), tensor(6, 7, 5))
        assert (given["kernel"], given["strides"]) == ([2, 2], [1, 1])

    @pytest.mark.parametrize("keepdims", [False, True])
    def test_without_a_window_the_whole_image_counts(self, keepdims):
        layer = layers.GlobalAveragePooling2D(keepdims=keepdims)
        found = kernels().average(node("GlobalAveragePooling2D", keepdims=keepdims), tensor(3, 5, 2))
        assert (found.operator, found.fixed["kernel"]) == ("GlobalAveragePool", [3, 5])
        assert found.shape == by_keras(layer, 3, 5, 2)
        # Even on the same grid the sum of 15 codes is divided.
        assert set(found.finish(grid())["multipliers"]) == {"15"}

    def test_means_at_the_edge_are_of_the_elements_that_are_there(self):
        settings = {"pool_size": (3, 3), "strides": (2, 2), "padding": "same"}
        found = kernels().average(node("AveragePooling2D", **settings), tensor(5, 4, 1))
        assert found.fixed["padding"] == [[1, 1], [0, 1]]
        assert found.finish(grid()) == {}, "on one grid the mean of the integers is the result"
        multipliers = found.finish(grid(0.25))["multipliers"]
        # Rows: 2, 3, 2 of an image; columns: 3, 2.
        assert list(multipliers) == ["4", "6", "9"]
        settings = {"pool_size": (3, 3), "strides": (3, 3), "padding": "same"}
        found = kernels().average(node("AveragePooling2D", **settings), tensor(4, 3, 1))
        # Two rows each above and below, where the windows reach beyond both ends.
        assert list(found.finish(grid(0.25))["multipliers"]) == ["6"]

    def test_the_mean_on_another_grid_is_divided_and_scaled(self):
        found = kernels().average(node("AveragePooling2D", pool_size=(2, 2)), tensor(4, 4, 1, scale=0.5))
        (multiplier, shift) = found.finish(grid(0.25))["multipliers"]["4"]
        assert multiplier / 2.0**31 * 2.0**shift == pytest.approx(0.5 / 0.25 / 4, rel=1e-8)


class TestOthers:
    def test_a_sum_has_two_operands_of_one_shape(self):
        found = kernels().addition(node("Add"), (tensor(4, 4, 2), tensor(4, 4, 2, scale=0.25)))
        assert (found.operator, found.shape) == ("Add", (4, 4, 2))
        assert found.finish(grid(0.5)) != found.finish(grid(0.25))
        for operands in ((tensor(4), tensor(5)), (tensor(4),) * 3, (tensor(4, 1), tensor(4))):
            with pytest.raises(ExportError, match="it adds tensors of shapes"):
                kernels().addition(node("Add"), operands)

    def test_what_is_joined_is_brought_to_one_grid(self):
        operands = (tensor(4, 4, 2, scale=0.5), tensor(4, 4, 3, scale=0.25))
        found = kernels().regridding(node("Concatenate"), "Concatenate", operands, axis=3)
        assert (found.shape, found.fixed) == ((4, 4, 5), {"axis": 3})
        settings = found.finish(grid(0.25))
        factors = np.array(settings["multiplier"]) / 2.0**31 * 2.0 ** np.array(settings["shift"], float)
        np.testing.assert_allclose(factors, (2.0, 1.0), rtol=1e-8)
        along_rows = (tensor(1, 4, 2), tensor(2, 4, 2))
        assert kernels().regridding(node("Concatenate"), "Concatenate", along_rows, axis=1).shape == (3, 4, 2)
        assert kernels().regridding(node("Activation"), "Requantize", operands[:1]).shape == (4, 4, 2)

    def test_padding_of_several_operands_is_named_once(self):
        padded = tensor(4, 4, 2, padded_by=("pad",))
        assert kernels().addition(node("Add"), (padded, padded)).layers == ("pad", "layer")

    def test_only_products_have_float_results(self):
        found = kernels().average(node("AveragePooling2D", pool_size=(2, 2)), tensor(4, 4, 1))
        with pytest.raises(AssertionError, match="Only products have results in float32"):
            found.finish(None)
