"""`compare` on files of other tools: values that are no numbers, inputs that do not fit, unmatched tensors."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import qdq_workbench as qdq
from qdq_workbench.errors import DataError, SpecError


def value(name, shape=(None, 4)):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def saved(path, nodes, constants=(), inputs=(), ir=8):
    graph = helper.make_graph(
        nodes,
        "graph",
        [value("x"), *inputs],
        [value("y")],
        [numpy_helper.from_array(np.float32(number), name) for name, number in dict(constants).items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=ir), path)
    return path


def product(path, factor, **options):
    return saved(path, [helper.make_node("Mul", ["x", "k"], ["y"], name="mul")], {"k": factor}, **options)


@pytest.mark.parametrize("factor", [np.nan, np.inf])
def test_values_that_are_no_numbers_part(tmp_path, factor):
    one, other = product(tmp_path / "a.onnx", 2.0), product(tmp_path / "b.onnx", factor)
    for first, second in ((one, other), (other, one)):
        found = qdq.compare(first, second)
        assert found.first_divergence.tensor == "y"
        assert "part first at 'y', -200.0 dB" in found.summary()
    assert qdq.compare(other, other).first_divergence is None


def test_the_finite_rest_is_compared_beside_equal_infinities(tmp_path):
    divide = [helper.make_node("Reciprocal", ["x"], ["r"]), helper.make_node("Mul", ["r", "k"], ["y"])]
    one = saved(tmp_path / "a.onnx", divide, {"k": 1.0})
    other = saved(tmp_path / "b.onnx", divide, {"k": 1.001})
    found = qdq.compare(one, other, data=np.array([[0.0, 1.0, 2.0, 4.0]], np.float32))
    assert found.tensors[-1].sqnr_db == pytest.approx(60.0, abs=0.1)


def test_tensors_without_a_counterpart_are_counted(tmp_path):
    waves = [helper.make_node("Sin", ["x"], ["s"]), helper.make_node("Cos", ["s"], ["y"])]
    tanh = [helper.make_node("Tanh", ["x"], ["t"]), helper.make_node("Sin", ["t"], ["s"])]
    more = [*tanh, helper.make_node("Cos", ["s"], ["y"])]
    text = qdq.compare(saved(tmp_path / "a.onnx", more), saved(tmp_path / "b.onnx", waves)).summary()
    assert "not compared: 3 tensors of the first, 2 of the second" in text
    assert "numbers of 0 tensors compared" in text


def test_constants_that_old_files_list_as_inputs_stay_what_they_are(tmp_path):
    old = product(tmp_path / "old.onnx", 2.0, inputs=[value("k", ())], ir=3)
    found = qdq.compare(old, product(tmp_path / "new.onnx", 2.0))
    assert [(item.tensor, item.sqnr_db) for item in found.tensors] == [("y", 200.0)]


def test_a_scalar_input_is_fed_as_it_is(tmp_path):
    fed = saved(tmp_path / "a.onnx", [helper.make_node("Mul", ["x", "u"], ["y"])], inputs=[value("u", ())])
    data = {"u": np.float32(3.0), "x": np.ones((2, 4), np.float32)}
    assert qdq.compare(fed, fed, data=data).tensors[-1].sqnr_db == 200.0


def test_other_inputs_are_refused(tmp_path):
    one, more = product(tmp_path / "a.onnx", 2.0), product(tmp_path / "b.onnx", 2.0, inputs=[value("u")])
    with pytest.raises(SpecError, match=r"different numbers of inputs.*\['x'\] and \['x', 'u'\]"):
        qdq.compare(one, more)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"x": np.zeros((2, 5))}, r"'x' do not fit.*\(any, 4\).*\(2, 5\)"),
        ({"x": np.zeros(4)}, r"'x' do not fit"),
        (np.zeros((0, 4)), r"'x' do not fit.*\(0, 4\)"),
        ({"x": [["a", "b", "c", "d"]]}, "no numbers"),
        ({"z": np.zeros((2, 4))}, r"Expected: \['x'\]. Received: \['z'\]"),
    ],
)
def test_data_that_do_not_fit_are_refused(tmp_path, data, said):
    file = product(tmp_path / "a.onnx", 2.0)
    with pytest.raises(DataError, match=said):
        qdq.compare(file, file, data=data)


def test_numbers_of_another_type_are_taken(tmp_path):
    file = product(tmp_path / "a.onnx", 2.0)
    assert qdq.compare(file, file, data=np.zeros((2, 4), np.float64)).first_divergence is None


def test_samples_that_are_no_numbers_are_refused(tmp_path):
    file = product(tmp_path / "a.onnx", 2.0)
    with pytest.raises(DataError, match="'x' hold NaN or infinity"):
        qdq.compare(file, file, data=np.array([[1.0, np.nan, 0.0, 0.0]]))


def with_input(path, shape, kind=TensorProto.FLOAT):
    ends = [helper.make_tensor_value_info(name, kind, shape) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Sin", ["x"], ["y"])], "graph", ends[:1], ends[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    return path


@pytest.mark.parametrize("other", [(None, 5), (None, 4, 1), (4,)])
def test_a_file_of_another_network_is_named_as_such(tmp_path, other):
    one, two = with_input(tmp_path / "a.onnx", (None, 4)), with_input(tmp_path / "b.onnx", other)
    with pytest.raises(SpecError, match="of other networks"):
        qdq.compare(one, two)


def test_a_fixed_batch_and_half_precision_are_compared_with_an_open_batch_in_single(tmp_path):
    one = with_input(tmp_path / "a.onnx", (None, 4))
    two = with_input(tmp_path / "b.onnx", (2, 4), TensorProto.FLOAT16)
    for first, second in ((one, two), (two, one)):
        for data in (None, np.ones((5, 4))):
            found = qdq.compare(first, second, data=data)
            assert [item.sqnr_db > 40 for item in found.tensors if item.tensor == "y"] == [True]


def test_a_size_that_a_file_computes_is_not_compared(tmp_path):
    """PyTorch exports `x.view(x.size(0), -1)` as the operations on shapes that are here."""
    nodes = [
        helper.make_node("Sin", ["x"], ["s"]),
        helper.make_node("Shape", ["s"], ["shape"]),
        helper.make_node("Gather", ["shape", "first"], ["size"], axis=0),
        helper.make_node("Unsqueeze", ["size", "axes"], ["sizes"]),
        helper.make_node("Concat", ["sizes", "rest"], ["wanted"], axis=0),
        helper.make_node("Reshape", ["s", "wanted"], ["y"]),
    ]
    numbers = {"first": np.int64(0), "axes": np.array([0]), "rest": np.array([-1])}
    for batch in (None, 2):
        constants = [numpy_helper.from_array(np.asarray(number), name) for name, number in numbers.items()]
        graph = helper.make_graph(nodes, "graph", [value("x", (batch, 2, 2))], [value("y")], constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
        onnx.save(model, tmp_path / f"{batch}.onnx")
    one, other = tmp_path / "None.onnx", tmp_path / "2.onnx"
    for first, second, count in ((one, one, 8), (one, other, 2), (other, one, 6), (other, other, 5)):
        found = qdq.compare(first, second, data=np.ones((count, 2, 2)))
        compared = {item.tensor: item.sqnr_db for item in found.tensors}
        assert (compared["s"], compared["size"]) == (200.0, None)
