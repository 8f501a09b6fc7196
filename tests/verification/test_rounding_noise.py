"""The copies themselves; `test_half_parity.py` judges files with them."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from qdq_workbench.graph.half_precision import HALF_TYPES
from qdq_workbench.onnx_graph.batches import run_session
from qdq_workbench.onnx_graph.sessions import make_session
from qdq_workbench.verification.rounding_noise import RoundingNoise, _source
from qdq_workbench.verification.sensitivity import PERTURBATIONS

KIND = HALF_TYPES["float16"]
X = np.linspace(0.5, 2.0, 64, dtype=np.float32)
FACTOR = np.float32([3.0])


def model(nodes, constants, outputs=("z",), size=64):
    infos = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [size]) for name in names] for names in (["x"], outputs)
    ]
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "made_by_hand", *infos, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


def product(*, half):
    """Return `(x * factor) + shift`, the product in half precision or not."""
    make = helper.make_node
    constants = {"factor": FACTOR, "shift": np.float32([0.0])}
    if not half:
        return model([make("Mul", ["x", "factor"], ["y"], "mul"), make("Add", ["y", "shift"], ["z"], "add")], constants)
    nodes = [
        make("Cast", ["x"], ["x16"], "x/to_float16", to=TensorProto.FLOAT16),
        make("Mul", ["x16", "factor16"], ["y16"], "mul"),
        make("Cast", ["y16"], ["y32"], "y/to_float32", to=TensorProto.FLOAT),
        make("Add", ["y32", "shift"], ["z"], "add"),
    ]
    return model(nodes, {"factor16": FACTOR.astype(np.float16), "shift": constants["shift"]})


def run(proto):
    return run_session(make_session(proto, optimized=False), {"x": X})["z"]


@pytest.fixture(scope="module")
def noise():
    return RoundingNoise(product(half=False), product(half=True), KIND)


def test_a_file_without_half_precision_needs_no_copies():
    assert list(RoundingNoise(product(half=False), product(half=False), KIND).seeds) == []


def test_a_copy_per_perturbation_each_with_a_seed_of_its_own(noise):
    assert list(noise.seeds) == list(range(1, PERTURBATIONS + 1))
    twin = product(half=False)
    first, again, other = (run(noise.copy(twin, seed)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    assert run(twin).tolist() == (X * FACTOR).tolist()  # the twin is only read


def test_inputs_results_and_constants_that_are_rounded_are_moved_by_the_bound(noise):
    """The input, the factor and the product by `u` each, and what is computed in float32 by nothing."""
    twin = product(half=False)
    error = np.stack([run(noise.copy(twin, seed)) / (X * FACTOR) - 1 for seed in noise.seeds])
    assert np.abs(error).max() <= 3.05 * KIND.roundoff
    assert np.abs(error).max() >= 2.9 * KIND.roundoff  # all three in one direction somewhere
    copied = noise.copy(twin, 1)
    values = {tensor.name: numpy_helper.to_array(tensor) for tensor in copied.graph.initializer}
    assert abs(values["factor"][0] / 3.0 - 1) == pytest.approx(KIND.roundoff, rel=0.01)
    assert values["shift"].tolist() == [0.0]


def test_names_of_inputs_and_outputs_stay(noise):
    copied = noise.copy(product(half=False), 1)
    onnx.checker.check_model(copied, full_check=True)
    assert [value.name for value in (*copied.graph.input, *copied.graph.output)] == ["x", "z"]
    assert "Chosen" not in {node.op_type for node in copied.graph.node}


def test_every_tensor_has_its_own_frequency_and_phase(noise):
    values = {
        t.name: float(numpy_helper.to_array(t))
        for t in noise.copy(product(half=False), 1).graph.initializer
        if not t.dims
    }
    frequencies = [value for name, value in values.items() if name.endswith("/frequency")]
    phases = [value for name, value in values.items() if name.endswith("/phase")]
    assert len(set(frequencies)) == len(frequencies) == len(set(phases)) == 2  # of the input and of the product
    assert all(1e4 <= value <= 3e4 for value in frequencies)
    assert all(0 <= value <= 6.3 for value in phases)


def test_the_smallest_values_move_by_half_of_the_smallest_number_and_keep_their_sign(noise):
    """Where that is more than half of the value, as for a small scale, the value stays positive."""
    generator = np.random.default_rng(0)
    zeros = noise._with_noise(np.zeros(9, np.float32), generator)
    assert zeros.tolist() == [0.0] * 9
    error = np.abs(noise._with_noise(np.full(9, 100 * KIND.tiny, np.float32), generator) / KIND.tiny - 100)
    np.testing.assert_allclose(error, 100 * KIND.roundoff + 0.5, rtol=1e-3)
    small = np.full(99, KIND.tiny / 8, np.float32)
    moved = noise._with_noise(small, generator)
    assert set(moved.tolist()) == {float(small[0] * np.float32(0.5)), float(small[0] * np.float32(1.5))}
    assert noise._with_noise(small, generator).dtype == np.float32


def test_large_negative_numbers_of_masks_stay_finite():
    twin = model([helper.make_node("Mul", ["x", "low"], ["z"], "mul")], {"low": np.float32([np.finfo(np.float32).min])})
    nodes = [
        helper.make_node("Cast", ["x"], ["h"], "x/to_bfloat16", to=TensorProto.BFLOAT16),
        helper.make_node("Mul", ["h", "low16"], ["m"], "mul"),
        helper.make_node("Cast", ["m"], ["z"], "z/to_float32", to=TensorProto.FLOAT),
    ]
    proto = model(nodes, {})
    proto.graph.initializer.append(
        helper.make_tensor("low16", TensorProto.BFLOAT16, [1], [float(np.finfo(np.float32).min)])
    )
    made = RoundingNoise(twin, proto, HALF_TYPES["bfloat16"])
    ones = {"x": np.ones(64, np.float32)}
    for seed in made.seeds:
        found = run_session(make_session(made.copy(twin, seed), optimized=False), ones)["z"]
        assert np.isfinite(found).all()
        assert (found < 0).all()


def test_a_node_that_only_the_file_has_stands_for_the_tensor_before_it():
    dequantize = helper.make_node("DequantizeLinear", ["q", "s"], ["d"], "p/DequantizeLinear")
    cast, mul = helper.make_node("Cast", ["i"], ["c"], "cast"), helper.make_node("Split", ["x"], ["a", "b"], "split")
    ours = {node.name: node for node in (dequantize, cast, mul)}
    producers = {"a16": helper.make_node("Split", ["x16"], ["a16", "b16"], "split")}
    producers["b16"] = producers["a16"]
    producers["new"] = helper.make_node("Cast", ["b16"], ["new"], "b16/to_float32")

    def source(op, tensor, name):
        return list(_source(helper.make_node(op, [tensor], ["out"], name), ours, producers))

    assert source("DequantizeLinear", "q", "p/DequantizeLinear/1") == ["d"]
    assert source("Cast", "i", "cast/again") == ["c"]
    assert source("Cast", "b16", "split/to_float32") == ["b"]
    assert source("Cast", "x", "x/to_float16") == ["x"]  # an input of the model
    assert source("Cast", "new", "new/to_float16") == []  # of a node that the twin lacks, too
