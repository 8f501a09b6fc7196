"""What verification knows of the tensors of a file: which hold floats, and on how many axes."""

import numpy as np
from mock_graphs import GraphMaker
from pass_graphs import model_of

import qdq_workbench as qdq
from qdq_workbench.verification.typed_file import TypedFile


def test_types_and_axes_of_tensors_that_are_no_constants():
    maker = GraphMaker(shape=(None, 4))
    maker.add("ReLU", "relu", "image", shape=(None, 4))
    rows = [
        ("Relu", "image", "relu/Relu"),
        ("QuantizeLinear", "relu/Relu,s,z", "codes"),
        ("DequantizeLinear", "codes,s,z", "y"),
    ]
    proto = model_of(rows, {"image": [1, 4]}, "y", {"s": np.float32(0.5), "z": np.int8(0)}, opset=21)
    file = TypedFile(qdq.plan_placement(maker.graph("relu")), proto)
    tensors = ("image", "relu/Relu", "codes", "y", "nowhere")
    assert [file.is_float(tensor) for tensor in tensors] == [True, True, False, True, None]
    assert [file.rank(tensor) for tensor in tensors] == [2, 2, 2, 2, None]
