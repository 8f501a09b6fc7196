"""Scales that float32 rounds down, and the shapes behind them."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from releases import ONNX

from qdq_workbench.onnx_graph.resizes import raised_scales, with_inferred_shapes

SHORT = np.float32(7 / 5)  # 5 * 1.39999998 is below 7


def chain(*scales, size=5, held=True):
    """Return a model that resizes a row of pixels once per scale."""
    names = [f"scales{index}" if held else "open" for index in range(len(scales))]
    nodes = [
        helper.make_node("Resize", [f"t{index}", "", name], [f"t{index + 1}"], f"resize{index}", mode="nearest")
        for index, name in enumerate(names)
    ]
    constants = [
        numpy_helper.from_array(np.array([1, scale], np.float32), name)
        for name, scale in zip(names, scales, strict=True)
    ]
    inputs = [helper.make_tensor_value_info("t0", TensorProto.FLOAT, ["N", size])]
    if not held:
        inputs.append(helper.make_tensor_value_info("open", TensorProto.FLOAT, [2]))
    outputs = [helper.make_tensor_value_info(f"t{len(scales)}", TensorProto.FLOAT, ["N", None])]
    graph = helper.make_graph(nodes, "chain", inputs, outputs, constants if held else [])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def sizes(model):
    values = {value.name: value for value in (*model.graph.value_info, *model.graph.output)}
    return [values[name].type.tensor_type.shape.dim[1].dim_value for name in sorted(values)]


@pytest.mark.parametrize(
    ("scale", "size", "raised"),
    [(SHORT, 5, True), (5 / 3, 3, True), (2.0, 5, False), (5 / 7, 7, False), (0.6, 4, False), (SHORT, None, False)],
)
def test_a_scale_is_raised_where_it_falls_short_of_a_whole_size(scale, size, raised):
    (found,) = raised_scales(np.array([scale], np.float32), [size])
    assert (found > np.float32(scale)) == raised
    if raised:
        assert np.floor(size * float(found)) == round(size * scale)
        assert found == np.nextafter(np.float32(scale), np.float32(9))


def test_every_resize_of_a_chain_gives_the_size_that_is_meant():
    assert sizes(with_inferred_shapes(chain(SHORT, 5 / 7, 7 / 5, 11 / 7))) == [7, 5, 7, 11]
    without_the_correction = sizes(onnx.shape_inference.infer_shapes(chain(SHORT, 5 / 7)))
    assert without_the_correction == ([6, 4] if ONNX >= (1, 22) else [7, 5])  # before 1.22 it inferred what is meant


def test_a_constant_of_several_resizes_is_raised_for_one_alone():
    model = chain(SHORT, SHORT)
    model.graph.node[1].input[2] = "scales0"
    found = with_inferred_shapes(model)
    assert sizes(found) == [7, 9]  # 7 * 1.4 is no whole size
    assert [node.input[2] for node in found.graph.node] == ["resize0/scales", "scales0"]


def test_scales_that_are_computed_stay():
    model = chain(SHORT, held=False)
    assert with_inferred_shapes(model).graph.node[0].input[2] == "open"
