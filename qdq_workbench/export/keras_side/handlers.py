"""Handlers for TensorFlow operations that tf2onnx does not translate, or not to what ONNX Runtime computes alike."""

from __future__ import annotations

from typing import Any


def _erfc(graph: Any, node: Any, name: str, _: Any) -> None:
    """Write Erfc, which tf2onnx does not know, as 1 - Erf(x)."""
    _in_two_steps(graph, node, name, lambda x, one: ("Erf", [x], "Sub", lambda erf: [one, erf]))


def _expm1(graph: Any, node: Any, name: str, _: Any) -> None:
    """Write Expm1 as Exp(x) - 1."""
    _in_two_steps(graph, node, name, lambda x, one: ("Exp", [x], "Sub", lambda exp: [exp, one]))


def _log1p(graph: Any, node: Any, name: str, _: Any) -> None:
    """Write Log1p as Log(x + 1)."""
    _in_two_steps(graph, node, name, lambda x, one: ("Add", [x, one], "Log", lambda total: [total]))


def _in_two_steps(graph: Any, node: Any, name: str, steps: Any) -> None:
    """Replace a node by two, whose operators and inputs `steps` returns for the node's input and the constant 1."""
    import numpy as np
    from tf2onnx import utils

    shapes, types = node.output_shapes, node.output_dtypes
    one = graph.make_const(utils.make_name(name), np.array(1, utils.map_onnx_to_numpy_type(types[0])))
    first, inputs, second, second_inputs = steps(node.input[0], one.output[0])
    # By its name a pass tells that the step belongs to another layer than what is in front of it.
    inner = utils.make_name(f"{name}/{first}")
    before = graph.make_node(first, inputs, name=inner, shapes=shapes, dtypes=types).output[0]
    graph.remove_node(node.name)
    # The last step takes name and outputs of the removed node, so that its readers need no change.
    graph.make_node(second, second_inputs(before), outputs=node.output, name=name, shapes=shapes, dtypes=types)


def _bucketize(graph: Any, node: Any, name: str, _: Any) -> None:
    """Write Bucketize, the operation of Discretization, as the number of boundaries that are not above a value."""
    import numpy as np
    from onnx import TensorProto
    from tf2onnx import utils

    def constant(values: Any, dtype: Any) -> str:
        return str(graph.make_const(utils.make_name(name), np.array(values, dtype)).output[0])

    def step(kind: str, inputs: list[str], **attributes: Any) -> str:
        return str(graph.make_node(kind, inputs, attr=attributes).output[0])

    boundaries = constant(node.get_attr_value("boundaries"), np.float32)
    shapes, types, source = node.output_shapes, node.output_dtypes, node.input[0]
    graph.remove_node(node.name)
    values = step("Cast", [step("Unsqueeze", [source, constant([-1], np.int64)])], to=TensorProto.FLOAT)
    beyond = step("Not", [step("Less", [values, boundaries])])  # NaN is beyond all of them, as in TensorFlow
    counts = [step("Cast", [beyond], to=TensorProto.INT32), constant([-1], np.int64)]
    attributes = {"keepdims": 0}
    graph.make_node("ReduceSum", counts, attr=attributes, outputs=node.output, name=name, shapes=shapes, dtypes=types)


def _one_hot(graph: Any, node: Any, name: str, _: Any) -> None:
    """Write OneHot as a comparison with all classes, which computes every type and takes no index from the end.

    ONNX has an OneHot, of which ONNX Runtime computes float32 alone, and -1 is the last class there.
    """
    import numpy as np
    from onnx import TensorProto
    from tf2onnx import utils

    def constant(values: Any) -> str:
        return str(graph.make_const(utils.make_name(name), np.array(values, np.int64)).output[0])

    def step(kind: str, inputs: list[str], **attributes: Any) -> str:
        return str(graph.make_node(kind, inputs, attr=attributes).output[0])

    _, depth, on, off = node.inputs
    rank, types, source = len(node.output_shapes[0]), node.output_dtypes, list(node.input)
    axis = node.get_attr_value("axis") % rank
    is_flag = on.is_const() and off.is_const() and (on.get_tensor_value(), off.get_tensor_value()) == (1, 0)
    made = {"outputs": node.output, "name": name, "shapes": node.output_shapes, "dtypes": types}
    graph.remove_node(node.name)
    if depth.is_const():
        classes = constant(np.arange(depth.get_tensor_value()))
    else:
        classes = step("Range", [constant(0), step("Cast", [source[1]], to=TensorProto.INT64), constant(1)])
    classes = step("Reshape", [classes, constant([-1] + [1] * (rank - 1 - axis))])
    indices = step("Unsqueeze", [step("Cast", [source[0]], to=TensorProto.INT64), constant([axis])])
    chosen = step("Equal", [indices, classes])
    if is_flag:
        graph.make_node("Cast", [chosen], attr={"to": types[0]}, **made)
    else:
        graph.make_node("Where", [chosen, *source[2:]], **made)


#: What tf2onnx takes as `custom_op_handlers`.
HANDLERS: dict[str, tuple[Any, list[Any]]] = {
    "Bucketize": (_bucketize, []),
    "Erfc": (_erfc, []),
    "Expm1": (_expm1, []),
    "Log1p": (_log1p, []),
    "OneHot": (_one_hot, []),
}
