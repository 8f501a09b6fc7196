"""The nodes of pairs: which of them share the constants of their grid."""

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

from qdq_workbench.export.encodings import Encoding
from qdq_workbench.export.insert_qdq import QDQWriter
from qdq_workbench.onnx_graph.graph import Graph
from qdq_workbench.spec.quantizer_spec import QuantizerSpec

SIGNED, UNSIGNED = QuantizerSpec(), QuantizerSpec(signed=False)


def with_pairs(*specs, scales=(0.5, 0.5)):
    """Return a graph that adds two inputs, each behind a pair of its own."""
    names = ["x", "y", "cut_x", "cut_y"]
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (4,)) for name in (*names, "sum")]
    proto = helper.make_graph([helper.make_node("Add", names[2:], ["sum"], "add")], "sum", infos[:-1], infos[-1:])
    graph = Graph(helper.make_model(proto, opset_imports=[helper.make_opsetid("", 17)]))
    writer = QDQWriter(graph)
    for name, spec, scale in zip("xy", specs, scales, strict=True):
        writer.join_pair(name, Encoding(np.float32(scale), np.int32(0), spec), name, f"cut_{name}")
    return graph


def test_pairs_on_one_grid_share_its_constants():
    assert len(with_pairs(SIGNED, SIGNED).constants) == 2


def test_pairs_of_other_scales_do_not():
    graph = with_pairs(SIGNED, SIGNED, scales=(0.5, 0.25))
    assert sorted(float(value) for name, value in graph.constants.items() if "scale" in name) == [0.25, 0.5]


def test_int8_and_uint8_pairs_of_one_scale_stay_apart():
    """Their zero points are the same byte."""
    graph = with_pairs(SIGNED, UNSIGNED)
    assert sorted(str(value.dtype) for name, value in graph.constants.items() if "zero_point" in name) == [
        "int8",
        "uint8",
    ]
    nodes = [
        helper.make_node(node.op, node.inputs, node.outputs, node.name, domain=node.domain)
        for node in graph.sorted_nodes()
    ]
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (4,)) for name in ("x", "y", "sum")]
    constants = [onnx.numpy_helper.from_array(np.asarray(value), name) for name, value in graph.constants.items()]
    model = helper.make_model(
        helper.make_graph(nodes, "sum", infos[:2], infos[2:], constants),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    values = np.float32([-100.0, -1.0, 1.0, 100.0])
    (found,) = session.run(None, {"x": values, "y": values})
    np.testing.assert_array_equal(found, np.clip(values, -64, 63.5) + np.clip(values, 0, 127.5))
