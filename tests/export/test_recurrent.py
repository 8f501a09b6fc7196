"""Recurrent layers written as ONNX operators: what ONNX Runtime computes is what Keras's equations say."""

import numpy as np
import onnx
import onnxruntime
import pytest
from pass_contracts import index_errors
from pass_graphs import opened, operators, saved

from qdq_workbench.conversion.engine.recurrent import Recurrent, RecurrentCall, RecurrentCell
from qdq_workbench.export.keras_side.cut_model import CutModel
from qdq_workbench.export.keras_side.trace import CallEnds, EndNames
from qdq_workbench.export.recurrent import insert_recurrent

BATCH, STEPS, INPUTS, UNITS = 2, 3, 4, 5
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
NAMES = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}
X = np.random.default_rng(0).normal(size=(BATCH, STEPS, INPUTS)).astype(np.float32)


def cell(op, seed=1, *, inputs=INPUTS, bias=True, activations=None, **options):
    rng, width = np.random.default_rng(seed), GATES[op] * UNITS
    kernel, recurrent = (rng.normal(size=(size, width)).astype(np.float32) for size in (inputs, UNITS))
    both = rng.normal(size=(2, width)).astype(np.float32) if bias else None
    activations = activations or tuple((name, None, None) for name in NAMES[op])
    return RecurrentCell(op, UNITS, kernel, recurrent, both, activations, **options)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def step(one, x, h, c):
    """One step of a cell with the default activations, by the equations of Keras."""
    b = np.zeros((2, GATES[one.op] * UNITS)) if one.bias is None else one.bias
    given, back = x @ one.kernel + b[0], h @ one.recurrent_kernel + b[1]
    if one.op == "RNN":
        return np.tanh(given + back), c
    if one.op == "LSTM":
        i, f, g, o = np.split(given + back, 4, axis=-1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        return sigmoid(o) * np.tanh(c), c
    (xz, xr, xh), (hz, hr, hh) = np.split(given, 3, axis=-1), np.split(back, 3, axis=-1)
    z, r = sigmoid(xz + hz), sigmoid(xr + hr)
    new = r * hh if one.reset_after else (r * h) @ one.recurrent_kernel[:, 2 * UNITS :] + b[1, 2 * UNITS :]
    return z * h + (1 - z) * np.tanh(xh + new), c


def run_cells(cells, x, states=(), *, backwards=False):
    """Return the outputs of stacked cells at every step, and the last states of the last cell."""
    left = list(states)
    for one in cells:
        h = left.pop(0) if left else np.zeros((BATCH, UNITS))
        c = left.pop(0) if left and one.op == "LSTM" else np.zeros((BATCH, UNITS))
        outputs = []
        for t in range(x.shape[1])[:: -1 if backwards else 1]:
            h, c = step(one, x[:, t], h, c)
            outputs.append(h)
        x = np.stack(outputs[:: -1 if backwards else 1], axis=1)
    return x, [h, c] if cells[-1].op == "LSTM" else [h]


def written(recurrent, states=0, quantized=(), declared=None):
    """Write a layer into a graph that was cut around it; return the graph, and what it computes for X and states."""
    count = declared or 1
    results = [f"qdq_result_0_{n}" for n in range(count)]
    arguments = [f"qdq_argument_0_{n}" for n in range(1 + states)]
    rows = [
        ("Identity", name, end) for name, end in zip(["x", *map("s{}".format, range(states))], arguments, strict=True)
    ]
    rows += [("Identity", end, f"y{n}") for n, end in enumerate(results)]
    shape = (BATCH, STEPS, UNITS) if recurrent.return_sequences else (BATCH, UNITS)
    inputs = {"x": X.shape, **{f"s{n}": (BATCH, UNITS) for n in range(states)}}
    inputs |= {end: shape if n == 0 else (BATCH, UNITS) for n, end in enumerate(results)}
    graph = opened(rows, inputs, ",".join([*arguments, *(f"y{n}" for n in range(count))]))
    call = RecurrentCall("layer", recurrent, None, (), ())
    cut = CutModel({}, {}, weights={f"w{n}": variable for n, variable in enumerate(quantized)}, recurrent=[call])
    names = {name: f"qdq_{name}" for name in cut.weights}
    ends = EndNames({}, {}, {}, {}, names, (CallEnds(tuple(arguments), tuple(results)),))
    insert_recurrent(graph, cut, ends)
    assert index_errors(graph) == []
    assert not any(end in graph.inputs or end in graph.outputs for end in (*results, *arguments))
    given = {names[name]: variable for name, variable in cut.weights.items()}
    rng = np.random.default_rng(3)
    values = [rng.normal(size=(BATCH, UNITS)).astype(np.float32) for _ in range(states)]
    feeds = {"x": X, **{f"s{n}": value for n, value in enumerate(values)}, **given}
    assert graph.inputs.keys() == feeds.keys()
    graph.prune()
    proto = saved(graph)
    onnx.checker.check_model(proto)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return graph, values, session.run([f"y{n}" for n in range(count)], feeds)


def check(found, expected):
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5, rtol=1e-4)


CELLS = [
    *(cell(op, bias=bias) for op in GATES for bias in (True, False)),
    cell("GRU", reset_after=False),
]


@pytest.mark.parametrize("one", CELLS, ids=lambda one: f"{one.op} {one.bias is not None} {one.reset_after}")
@pytest.mark.parametrize("quantized", [False, True])
@pytest.mark.parametrize("sequences", [False, True])
def test_a_cell_computes_what_its_equations_say(one, quantized, sequences):
    kernels = (one.kernel, one.recurrent_kernel) if quantized else ()
    graph, _, found = written(Recurrent(((one,),), return_sequences=sequences), quantized=kernels)
    outputs, _ = run_cells([one], X)
    check(found, [outputs if sequences else outputs[:, -1]])
    (node,) = [node for node in graph.nodes if node.op == one.op]
    assert node.name == f"layer/{one.op}"
    assert (node.get("hidden_size"), node.get("direction"), node.get("activations")) == (UNITS, None, None)
    assert len(node.inputs) == (4 if one.bias is not None else 3)
    assert graph.rank(node.output) == 4
    # A quantized kernel is only moved, so that the movements can be carried out on its integers.
    moves = [node.op for node in graph.nodes if node.name.startswith(("layer/W/", "layer/R/"))]
    gather = ["Gather"] * (one.op == "LSTM")
    assert sorted(moves) == sorted((["Transpose", *gather, "Unsqueeze"] * 2) if quantized else [])


def test_one_kernel_may_be_quantized_and_the_other_one_not():
    one = cell("LSTM")
    for kernels in ((one.kernel,), (one.recurrent_kernel,)):
        graph, _, found = written(Recurrent(((one,),)), quantized=kernels)
        check(found, [run_cells([one], X)[0][:, -1]])
        assert len(graph.inputs) == 2


def test_a_reversed_input_is_written_in_the_order_of_computation():
    one = cell("GRU")
    _, _, found = written(Recurrent(((one,),), reversed_input=True, return_sequences=True))
    check(found, [run_cells([one], X[:, ::-1])[0]])


@pytest.mark.parametrize("op", GATES)
def test_states_are_given_and_returned(op):
    one, states = cell(op), 2 if op == "LSTM" else 1
    layer = Recurrent(((one,),), return_state=True)
    _, given, found = written(layer, states=states, declared=1 + states)
    outputs, last = run_cells([one], X, given)
    check(found, [outputs[:, -1], *last])


def test_initial_states_without_a_bias_leave_its_place_empty():
    one = cell("RNN", bias=False)
    graph, given, found = written(Recurrent(((one,),)), states=1)
    check(found, [run_cells([one], X, given)[0][:, -1]])
    (node,) = [node for node in graph.nodes if node.op == "RNN"]
    assert node.inputs[3:5] == ["", ""]


def test_stacked_cells_take_their_states_in_turn():
    cells = (cell("LSTM", 1), cell("GRU", 2, inputs=UNITS), cell("LSTM", 3, inputs=UNITS))
    _, given, found = written(Recurrent((cells,), return_sequences=True, return_state=True), states=5, declared=3)
    outputs, last = run_cells(cells, X, given)
    check(found, [outputs, *last])


MERGED = {
    "concat": lambda a, b: [np.concatenate([a, b], axis=-1)],
    "sum": lambda a, b: [a + b],
    "ave": lambda a, b: [(a + b) / 2],
    "mul": lambda a, b: [a * b],
    None: lambda a, b: [a, b],
}


@pytest.mark.parametrize("mode", MERGED)
@pytest.mark.parametrize("sequences", [False, True])
def test_two_directions_are_merged(mode, sequences):
    forward, back = cell("LSTM", 1), cell("LSTM", 2)
    layer = Recurrent(((forward,), (back,)), merge_mode=mode, return_sequences=sequences)
    graph, _, found = written(layer, declared=2 if mode is None else 1)
    ahead, behind = run_cells([forward], X)[0], run_cells([back], X, backwards=True)[0]
    check(found, MERGED[mode](*(ahead, behind) if sequences else (ahead[:, -1], behind[:, 0])))
    assert sorted(str(node.get("direction")) for node in graph.nodes if node.op == "LSTM") == ["None", "b'reverse'"]


def test_two_directions_divide_the_given_states_and_return_all_of_theirs():
    forward, back = cell("LSTM", 1), cell("LSTM", 2)
    layer = Recurrent(((forward,), (back,)), merge_mode="sum", return_state=True)
    _, given, found = written(layer, states=4, declared=5)
    ahead, first = run_cells([forward], X, given[:2])
    behind, second = run_cells([back], X, given[2:], backwards=True)
    check(found, [ahead[:, -1] + behind[:, 0], *first, *second])


def test_states_that_keras_declares_and_does_not_return_are_no_inputs_of_the_file():
    one, results = cell("RNN"), ["qdq_result_0_0", "qdq_result_0_1"]
    graph = opened(
        [("Identity", "x", "qdq_argument_0_0"), ("Identity", results[0], "y")],
        {"x": X.shape, results[0]: (BATCH, UNITS), results[1]: (BATCH, UNITS)},
        "qdq_argument_0_0,y",
    )
    cut = CutModel({}, {}, recurrent=[RecurrentCall("layer", Recurrent(((one,),)), None, (), ())])
    ends = EndNames({}, {}, {}, {}, {}, (CallEnds(("qdq_argument_0_0",), tuple(results)),))
    insert_recurrent(graph, cut, ends)
    assert list(graph.inputs) == ["x"]
    assert "Identity" not in operators(graph)


def test_two_calls_are_written_each_at_its_own_ends():
    one, two = cell("RNN", 1), cell("RNN", 2, inputs=UNITS)
    rows = [("Identity", "x", "a0"), ("Identity", "r0", "a1"), ("Identity", "r1", "y")]
    inputs = {"x": X.shape, "r0": (BATCH, STEPS, UNITS), "r1": (BATCH, UNITS)}
    graph = opened(rows, inputs, "a0,a1,y")
    calls = [
        RecurrentCall("one", Recurrent(((one,),), return_sequences=True), None, (), ()),
        RecurrentCall("two", Recurrent(((two,),)), None, (), ()),
    ]
    ends = EndNames({}, {}, {}, {}, {}, (CallEnds(("a0",), ("r0",)), CallEnds(("a1",), ("r1",))))
    insert_recurrent(graph, CutModel({}, {}, recurrent=calls), ends)
    assert [node.name for node in graph.sorted_nodes() if node.op == "RNN"] == ["one/RNN", "two/RNN"]
    session = onnxruntime.InferenceSession(saved(graph).SerializeToString(), providers=["CPUExecutionProvider"])
    check(session.run(None, {"x": X}), [run_cells([one, two], X)[0][:, -1]])


@pytest.mark.parametrize(
    ("activations", "alpha", "beta"),
    [
        ([("HardSigmoid", 0.25, 0.5), ("Tanh", None, None), ("Tanh", None, None)], [0.25], [0.5]),
        ([("HardSigmoid", 0.25, 0.5), ("Affine", 1.0, 0.0), ("Tanh", None, None)], [0.25, 1.0], [0.5, 0.0]),
        ([("Sigmoid", None, None), ("Relu", None, None), ("Tanh", None, None)], None, None),
    ],
)
def test_other_activations_hand_their_numbers_out_in_order(activations, alpha, beta):
    one = cell("LSTM", activations=tuple(activations))
    graph, _, (found,) = written(Recurrent(((one,),)))
    (node,) = [node for node in graph.nodes if node.op == "LSTM"]
    assert [name.decode() for name in node.get("activations")] == [name for name, _, _ in activations]
    assert (node.get("activation_alpha"), node.get("activation_beta")) == (alpha, beta)
    assert not np.allclose(found, run_cells([one], X)[0][:, -1], atol=1e-3)
