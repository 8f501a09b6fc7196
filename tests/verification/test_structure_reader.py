"""Graphs that no exporter of ours writes; `test_structure.py` changes files that it wrote."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from qdq_files import FileMaker

from qdq_workbench.verification.structure_reader import read_pairs, read_structure


def file():
    maker = FileMaker()
    maker.constant("scale", np.float32(0.5))
    maker.constant("zero", np.uint8(3))
    return maker


def pair(maker, tensor, name, *parameters, op="Relu"):
    """Add a pair and a reader; return the output of the reader."""
    parameters = parameters or ("scale", "zero")
    quantized = maker.node("QuantizeLinear", [tensor, *parameters], f"{name}/QuantizeLinear")
    return maker.node(
        op, [maker.node("DequantizeLinear", [quantized, *parameters], f"{name}/DequantizeLinear")], f"{name}_read"
    )


class TestPairs:
    def test_the_readers_of_all_halves_are_listed_once_and_outputs_too(self):
        f = file()
        quantized = f.node("QuantizeLinear", ["x", "scale", "zero"], "p/QuantizeLinear")
        for number in (1, 2):
            f.node("DequantizeLinear", [quantized, "scale", "zero"], f"p/DequantizeLinear_{number}")
        f.node("Neg", ["p/DequantizeLinear_1"], "neg__12")
        f.node("Add", ["p/DequantizeLinear_1", "p/DequantizeLinear_1"], "add")
        found = read_structure(f.model("p/DequantizeLinear_2", "neg__12", "add"))
        assert found.pairs["p"].readers == ("add", "neg", "output p/DequantizeLinear_2")
        assert (found.pairs["p"].scale, found.pairs["p"].zero_point, found.strays) == (0.5, 3, ())
        assert found.constants == {}

    @pytest.mark.parametrize(
        ("name", "shown"),
        [
            ("conv_1/Add__7", "conv_1/Add"),
            ("block/dense_2/MatMul_1", "block/dense/MatMul_1"),
            ("block_3/a_1_2/b/Add", "block_3/a/b/Add"),
            ("Relu__x", "Relu__x"),
        ],
    )
    def test_running_numbers_of_readers_are_left_out(self, name, shown):
        f = file()
        end = pair(f, "x", "p")
        f.nodes[-1].name = name
        assert read_structure(f.model(end)).pairs["p"].readers == (shown,)

    def test_a_second_pair_of_a_name_is_a_stray(self):
        f = file()
        pair(f, "x", "p")
        f.constant("finer", np.float32(0.25))
        pair(f, "x", "q", "finer", "zero")
        f.nodes[3].name = "p/QuantizeLinear"
        found = read_structure(f.model("p_read", "q_read"))
        assert found.pairs["p"].scale == 0.5
        assert found.strays == ("p: a second quantizer of that name",)

    def test_half_of_a_pair_may_hold_its_scale_in_half_precision(self):
        f = file()
        end = pair(f, "x", "p")
        f.constant("half", np.float16(0.5))
        f.nodes[1].input[1] = "half"
        assert read_structure(f.model(end)).strays == ()
        f.constants["half"] = np.float16(0.4)
        assert read_structure(f.model(end)).strays == (
            "p/DequantizeLinear: other parameters than the QuantizeLinear before it",
        )

    def test_equal_zero_points_of_another_type_are_others(self):
        f = file()
        end = pair(f, "x", "p")
        f.constants["zero"] = np.uint8(0)
        f.constant("signed", np.int8(0))
        f.nodes[1].input[2] = "signed"
        assert "other parameters" in read_structure(f.model(end)).strays[0]

    @pytest.mark.parametrize("reader", ["none", "other", "both"])
    def test_a_quantize_that_other_nodes_read_is_no_pair(self, reader):
        f = file()
        quantized = f.node("QuantizeLinear", ["x", "scale", "zero"], "p/QuantizeLinear")
        ends = [quantized]
        if reader != "none":
            ends.append(f.node("Identity", [quantized], "other"))
        if reader == "both":
            ends.append(f.node("DequantizeLinear", [quantized, "scale", "zero"], "p/DequantizeLinear"))
        found = read_structure(f.model(*ends))
        assert found.pairs == {}
        assert found.strays == ("p/QuantizeLinear: not followed by DequantizeLinear alone",)

    def test_scales_that_are_computed_are_strays(self):
        f = file()
        end = pair(f, "x", "p", f.node("Identity", ["scale"], "computed"), "zero")
        found = read_structure(f.model(end))
        assert (found.pairs, found.strays) == ({}, ("p/QuantizeLinear: scale or zero point is no constant",))

    def test_several_scales_of_an_activation_are_strays(self):
        f = file()
        f.constant("several", np.float32([0.5, 0.5]))
        f.constant("zeros", np.uint8([0, 0]))
        found = read_structure(f.model(pair(f, "x", "p", "several", "zeros")))
        assert (found.pairs, found.strays) == ({}, ("p/QuantizeLinear: more than one scale on an activation",))
        f.constants.update(several=np.float32([0.5]), zeros=np.uint8([3]))
        assert read_structure(f.model("p_read")).pairs["p"].zero_point == 3

    def test_integers_that_no_quantize_wrote_are_strays(self):
        f = file()
        f.inputs.append(helper.make_tensor_value_info("codes", TensorProto.UINT8, (1,)))
        end = f.node("DequantizeLinear", ["codes", "scale", "zero"], "given/DequantizeLinear")
        moved = f.node(
            "DequantizeLinear", [f.node("Identity", ["codes"], "copy"), "scale", "zero"], "moved/DequantizeLinear"
        )
        assert read_structure(f.model(end, moved)).strays == tuple(
            f"{name}/DequantizeLinear: dequantizes what no QuantizeLinear wrote" for name in ("given", "moved")
        )


class TestClips:
    def clipped(self, name, *, between="", bounds=("low", "high")):
        f = file()
        f.constant("low", np.float32(-1.0))
        f.constant("high", np.float32(2.0))
        source = f.node("Clip", [f.node("Neg", ["x"], "neg"), *bounds], name)
        source = f.node(between, [source], "between") if between else source
        found = read_structure(f.model(pair(f, source, "p"))).pairs["p"]
        return found.source, found.bounds

    def test_the_clip_of_the_pair_gives_its_bounds_and_its_source(self):
        assert self.clipped("p/Clip") == ("neg", (-1.0, 2.0))
        assert self.clipped("p/Clip", between="Transpose") == ("neg", (-1.0, 2.0))

    def test_another_clip_is_a_part_of_the_network(self):
        assert self.clipped("other/Clip") == ("other/Clip", None)
        assert self.clipped("other/Clip", between="Transpose") == ("between", None)
        assert self.clipped("p/Clip", between="Relu") == ("between", None)
        assert self.clipped("p/Clip", bounds=("low",)) == ("p/Clip", None)
        assert self.clipped("p/Clip", bounds=("x", "high")) == ("p/Clip", None)


class TestConstants:
    def weight(self, codes, scales, zeros=None, **attributes):
        f = file()
        f.constant("codes", codes)
        f.constant("scales", np.asarray(scales, np.float32))
        f.constant("zeros", np.zeros(np.shape(scales), codes.dtype) if zeros is None else zeros)
        end = f.node("DequantizeLinear", ["codes", "scales", "zeros"], "w/DequantizeLinear", **attributes)
        f.constant("more", np.float32([1, 2]))
        return read_structure(f.model(end))

    codes = np.arange(6, dtype=np.int8).reshape(2, 3)

    @pytest.mark.parametrize(
        ("given", "axis", "count"), [({}, 1, 3), ({"axis": 0}, 0, 2), ({"axis": -2}, 0, 2), ({"axis": -1}, 1, 3)]
    )
    def test_an_axis_counts_from_either_end_and_is_1_by_default(self, given, axis, count):
        found = self.weight(self.codes, np.arange(1, count + 1), **given).weights["w"]
        assert (found.axis, found.shape, found.scale) == (axis, (2, 3), tuple(np.arange(1.0, count + 1)))
        assert (found.dtype, found.block_size, found.is_zero) == ("int8", None, False)

    def test_one_scale_needs_no_axis(self):
        found = self.weight(self.codes, 0.5, axis=7).weights["w"]
        assert (found.axis, found.scale, found.zero_point) == (None, (0.5,), (0,))

    @pytest.mark.parametrize(("axis", "scales"), [(2, [1, 2]), (-3, [1, 2]), (0, [1, 2, 3]), (1, [1, 2])])
    def test_scales_that_do_not_fit_are_strays(self, axis, scales):
        found = self.weight(self.codes, scales, axis=axis)
        assert found.weights == {}
        (stray,) = found.strays
        assert stray == f"w/DequantizeLinear: scales of shape ({len(scales)},) do not fit axis {axis} of (2, 3)"

    def test_blocks(self):
        codes = np.arange(10, dtype=np.int8).reshape(5, 2)
        found = self.weight(codes, np.ones((3, 2)), axis=0, block_size=2).weights["w"]
        assert (found.axis, found.block_size, len(found.scale)) == (0, 2, 6)
        (stray,) = self.weight(codes, np.ones((2, 2)), axis=0, block_size=2).strays
        assert stray.endswith("do not fit blocks of 2 on axis 0 of (5, 2)")

    def test_zero_is_what_equals_the_zero_points(self):
        zeros = np.int8([3, -2])
        assert self.weight(np.int8([[3, -2], [3, -2]]), [1, 1], zeros).weights["w"].is_zero
        assert not self.weight(np.int8([[3, -2], [3, 3]]), [1, 1], zeros).weights["w"].is_zero
        assert self.weight(np.int8([[3, 3], [-2, -2]]), [1, 1], zeros, axis=0).weights["w"].is_zero

    def test_integers_of_32_bits_are_biases(self):
        found = self.weight(np.int32([1, 2]), 0.5)
        assert (list(found.biases), found.weights) == (["w"], {})

    def test_other_constants_are_kept_by_their_hash(self):
        found = self.weight(self.codes, 0.5)
        assert list(found.constants) == ["scale", "zero", "more"]
        assert found.constants["more"] != found.constants["scale"]

    def test_four_bits_have_the_layout_of_8(self):
        f = FileMaker()
        values = np.int8([[1, -2], [3, -8]])
        f.constant("scale", np.float32(0.5))
        end = f.node("DequantizeLinear", ["codes", "scale"], "w/DequantizeLinear")
        model = f.model(end)
        model.graph.initializer.append(helper.make_tensor("codes", TensorProto.INT4, (2, 2), values.reshape(-1)))
        found, wide = read_structure(model).weights["w"], self.weight(values, 0.5).weights["w"]
        assert (found.dtype, found.digest, found.codes_sha256) == ("int4", wide.digest, wide.codes_sha256)


def test_a_path_is_read_and_pairs_alone_too(tmp_path):
    f = file()
    model = f.model(pair(f, "x", "p"))
    onnx.save(model, tmp_path / "model.onnx")
    assert read_structure(str(tmp_path / "model.onnx")) == read_structure(model)
    assert read_pairs(model) == read_structure(model).pairs
