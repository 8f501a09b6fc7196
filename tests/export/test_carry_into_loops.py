"""What a loop's body reads from around it: carried where ONNX Runtime would move a pair into the body, else left."""

import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from pass_graphs import saved

from qdq_workbench.export.passes.carry_into_loops import PASS, carry_into_loops
from qdq_workbench.graph.operators import MOVES, PROPAGATING
from qdq_workbench.onnx_graph.graph import Graph

#: Operator -> shape of what it moves, what it reads beside that, its attributes.
MOVING = {
    "DepthToSpace": ((1, 1, 2, 3), [], {"blocksize": 1}),
    "Expand": ((2, 3), ["two_three"], {}),
    "Flatten": ((2, 3), [], {}),
    "Gather": ((2, 3), ["zero"], {}),
    "GlobalMaxPool": ((1, 1, 2, 3), [], {}),
    "Identity": ((2, 3), [], {}),
    "MaxPool": ((1, 1, 2, 3), [], {"kernel_shape": [1, 1]}),
    "Pad": ((2, 3), ["pads"], {}),
    "Reshape": ((2, 3), ["two_three"], {}),
    "Slice": ((2, 3), ["zero", "one"], {}),
    "SpaceToDepth": ((1, 1, 2, 3), [], {"blocksize": 1}),
    "Split": ((2, 3), ["two"], {}),
    "Squeeze": ((1, 2, 3), ["zero"], {}),
    "Tile": ((2, 3), ["two_three"], {}),
    "Transpose": ((2, 3), [], {"perm": [1, 0]}),
    "Unsqueeze": ((2, 3), ["zero"], {}),
}
CONSTANTS = {"two_three": [2, 3], "zero": [0], "one": [1], "two": [2], "pads": [0, 1, 0, 0]}
RUN = "import sys, onnxruntime\nfor path in sys.argv[1:]:\n    onnxruntime.InferenceSession(path)\n"


def looped(operator):
    """Return a model whose loop sums what an operator moves of a dequantized input."""
    value, node, (shape, reads, attributes) = helper.make_tensor_value_info, helper.make_node, MOVING[operator]
    body = helper.make_graph(
        [
            node("ReduceSum", ["moved"], ["sum"], keepdims=0),
            node("Add", ["so_far", "sum"], ["total"]),
            node("Identity", ["going"], ["on"]),
        ],
        "body",
        [
            value("i", TensorProto.INT64, []),
            value("going", TensorProto.BOOL, []),
            value("so_far", TensorProto.FLOAT, []),
        ],
        [value("on", TensorProto.BOOL, []), value("total", TensorProto.FLOAT, [])],
    )
    nodes = [
        node("QuantizeLinear", ["x", "scale", "zero_point"], ["q"], "q"),
        node("DequantizeLinear", ["q", "scale", "zero_point"], ["d"], "d"),
        node(operator, ["d", *reads], ["moved"], "moved", **attributes),
        node("Loop", ["times", "true", "start"], ["y"], "loop", body=body),
    ]
    used = {name: np.array(CONSTANTS[name], np.int64) for name in reads}
    used |= {"scale": np.float32(0.1), "zero_point": np.int8(0), "times": np.int64(2), "true": np.bool_(1)}
    used["start"] = np.float32(0)
    graph = helper.make_graph(
        nodes,
        "loops",
        [value("x", TensorProto.FLOAT, shape)],
        [value("y", TensorProto.FLOAT, [])],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in used.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def test_every_movement_is_tried():
    assert set(MOVING) == MOVES


@pytest.mark.parametrize("operator", MOVING)
def test_what_a_pair_would_be_moved_over_is_carried(operator):
    graph = Graph(looped(operator))
    assert bool(list(PASS.denied_by(graph))) == (operator in PROPAGATING)
    carry_into_loops(graph)
    (loop,) = [node for node in graph.nodes if node.op == "Loop"]
    assert len(loop.inputs) == 3 + (operator in PROPAGATING)


def test_onnxruntime_opens_every_file(tmp_path):
    """It ends the process where a pair is moved into a body (`qdq_propagation.cc`), so it runs in one of its own."""
    paths = []
    for operator in MOVING:
        graph = Graph(looped(operator))
        carry_into_loops(graph)
        paths.append(str(tmp_path / f"{operator}.onnx"))
        onnx.save(saved(graph), paths[-1])
    done = subprocess.run([sys.executable, "-c", RUN, *paths], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-500:]
