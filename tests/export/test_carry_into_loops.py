"""What a loop's body reads from around it: carried where ONNX Runtime would move a pair into the body, else left."""

import itertools
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
from qdq_workbench.onnx_graph.qdq_graph import QDQGraph
from qdq_workbench.verification.loops import loop_differences

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
    "Split": ((2, 3), ["halves"], {}),
    "Squeeze": ((1, 2, 3), ["zero"], {}),
    "Tile": ((2, 3), ["two_three"], {}),
    "Transpose": ((2, 3), [], {"perm": [1, 0]}),
    "Unsqueeze": ((2, 3), ["zero"], {}),
}
#: What ONNX Runtime removes before it moves pairs, and the like of it that changes values.
CHANGING_NOTHING = {
    "an Expand to the same size": ("Expand", (2, 3), ["d", "two_three"], {}),
    "a Split into one": ("Split", (2, 3), ["d"], {"num_outputs": 1}),
    "the addition of 0": ("Add", (2, 3), ["d", "nothing"], {}),
    "an addition to 0": ("Add", (2, 3), ["nothing", "d"], {}),
    "the subtraction of 0": ("Sub", (2, 3), ["d", "nothing"], {}),
    "a product with 1": ("Mul", (2, 3), ["unit", "d"], {}),
    "a quotient by 1": ("Div", (2, 3), ["d", "unit"], {}),
}
CHANGING = {
    "a negation": ("Sub", (2, 3), ["nothing", "d"], {}),
    "a reciprocal": ("Div", (2, 3), ["unit", "d"], {}),
    "the addition of 1": ("Add", (2, 3), ["d", "unit"], {}),
    "the addition of zeros": ("Add", (2, 3), ["d", "nothings"], {}),
}
CONSTANTS = {
    name: np.array(value, np.int64)
    for name, value in {"two_three": [2, 3], "zero": [0], "one": [1], "halves": [1, 1], "pads": [0, 1, 0, 0]}.items()
}
CONSTANTS |= {"nothing": np.float32(0), "unit": np.float32([1]), "nothings": np.zeros((2, 3), np.float32)}
BETWEEN = {name: (name, shape, ["d", *reads], more) for name, (shape, reads, more) in MOVING.items()}
BETWEEN |= CHANGING_NOTHING | CHANGING
CARRIED = PROPAGATING | CHANGING_NOTHING.keys() | {"Expand"}  # of which only the sizes tell whether it is removed
RUN = "import sys, onnxruntime\nfor path in sys.argv[1:]:\n    onnxruntime.InferenceSession(path)\n"


def looped(between, *, transposed=False):
    """Return a model whose loop sums what an operator makes of a dequantized input, or the transpose of that."""
    value, node, (operator, shape, reads, attributes) = (
        helper.make_tensor_value_info,
        helper.make_node,
        BETWEEN[between],
    )
    rest = ["rest"] if between == "Split" else []
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
        node(operator, reads, ["first" if transposed else "moved", *rest], "first", **attributes),
        *([node("Transpose", ["first"], ["moved"], "moved")] if transposed else []),
        node("Loop", ["times", "true", "start"], ["y"], "loop", body=body),
    ]
    used = {name: CONSTANTS[name] for name in reads if name != "d"}
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


@pytest.mark.parametrize("transposed", [False, True], ids=["alone", "transposed"])
@pytest.mark.parametrize("between", BETWEEN)
def test_what_a_pair_would_be_moved_over_is_carried(between, transposed):
    """Verification, which reads the file and not the exporter's graph, refuses the same ones and no others."""
    model = looped(between, transposed=transposed)
    graph = Graph(model)
    assert bool(list(loop_differences(QDQGraph(model)))) == (between in CARRIED)
    assert bool(list(PASS.denied_by(graph))) == (between in CARRIED)
    carry_into_loops(graph)
    (loop,) = [node for node in graph.nodes if node.op == "Loop"]
    assert len(loop.inputs) == 3 + (between in CARRIED)
    assert not list(loop_differences(QDQGraph(saved(graph))))


def test_onnxruntime_opens_every_file(tmp_path):
    """It ends the process where a pair is moved into a body (`qdq_propagation.cc`), so it runs in one of its own."""
    paths = []
    for between, transposed in itertools.product(BETWEEN, (False, True)):
        graph = Graph(looped(between, transposed=transposed))
        carry_into_loops(graph)
        paths.append(str(tmp_path / f"{between}_{transposed}.onnx"))
        onnx.save(saved(graph), paths[-1])
    done = subprocess.run([sys.executable, "-c", RUN, *paths], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-500:]
