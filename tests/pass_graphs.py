"""Small ONNX graphs for single passes: written as rows, opened for editing, saved again, run by ONNX Runtime."""

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from qdq_workbench.onnx_graph.graph import Graph


def model_of(rows, inputs, outputs, constants=None, opset=17):
    """Return a model with float inputs of given shapes; its other shapes are inferred.

    A row is (operator, what it reads, what it writes) and may have attributes; names are divided by commas, and a node
    has the name of its first output.
    """
    nodes = [
        helper.make_node(
            op, reads.split(",") if reads else [], writes.split(","), writes.split(",")[0], **(more[0] if more else {})
        )
        for op, reads, writes, *more in rows
    ]
    graph = helper.make_graph(
        nodes,
        "rows",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs.split(",")],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in (constants or {}).items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    model.ir_version = helper.find_min_ir_version_for(list(model.opset_import))
    return onnx.shape_inference.infer_shapes(model, data_prop=True)


def varied(ends, lines, text=""):
    """Return a graph in ONNX's own syntax; lines of `text` replace those that write the same tensor, or come last."""
    found = {line.partition(" = ")[0]: line for line in (*lines, *filter(None, text.splitlines()))}
    head = '<ir_version: 9, opset_import: ["" : 19]> g'
    return Graph(onnx.parser.parse_model(f"{head} {ends} {{{chr(10).join(found.values())}}}"))


def parts(names):
    """Return the names that commas divide."""
    return names.split(",") if names else []


def opened(*rows_and_ends, **more):
    """Return the graph of `model_of`."""
    return Graph(model_of(*rows_and_ends, **more))


def saved(graph):
    """Return a graph as a model."""
    nodes = []
    for node in graph.sorted_nodes():
        nodes.append(helper.make_node(node.op, node.inputs, node.outputs, node.name, domain=node.domain))
        nodes[-1].attribute.extend(node.attributes.values())
    constants = [numpy_helper.from_array(np.asarray(value), name) for name, value in graph.constants.items()]
    made = helper.make_graph(nodes, "saved", graph.inputs.values(), graph.outputs.values(), constants)
    opsets = [helper.make_opsetid("", graph.opset)]
    return helper.make_model(made, opset_imports=opsets, ir_version=helper.find_min_ir_version_for(opsets))


def computed(model, seed=0):
    """Return the outputs of a model for random inputs, computed as it is written."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    rng = np.random.default_rng(seed)
    return session.run(None, {i.name: rng.normal(size=i.shape).astype(np.float32) for i in session.get_inputs()})


def assert_same(model, graph, atol=1e-6):
    """Check that a changed graph still computes what its model did, and that its shapes are those of its tensors."""
    again = saved(graph)
    for before, after in zip(computed(model), computed(again), strict=True):
        np.testing.assert_allclose(after, before, atol=atol, rtol=1e-5)
    inferred = Graph(onnx.shape_inference.infer_shapes(again, strict_mode=True, data_prop=True))
    for node in graph.nodes:
        for tensor in node.outputs:
            known, true = graph.shapes.get(tensor), inferred.shape(tensor)
            if known is not None and true is not None:
                assert len(known) == len(true), tensor
                pairs = zip(known, true, strict=True)
                assert all(None in pair or pair[0] == pair[1] for pair in pairs), (tensor, known, true)


def operators(graph):
    """Return the operators of a graph in the order in which they are computed."""
    return [node.op for node in graph.sorted_nodes()]
