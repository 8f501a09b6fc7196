"""What a layer of a file reads against its plan: on small files; test_writer_faults.py plants faults in the writer."""

import numpy as np
from mock_graphs import GraphMaker
from pass_graphs import model_of

import qdq_workbench as qdq
from qdq_workbench.verification.file_readers import reader_differences

PAIR = [
    ("QuantizeLinear", "image,s,z", "image/QuantizeLinear"),
    ("DequantizeLinear", "image/QuantizeLinear,s,z", "image/DequantizeLinear"),
]
GRID = {"s": np.float32(0.1), "z": np.uint8(0)}


def differences(reads, **entry):
    """Return what is told of a file in which a Softmax behind a Dropout reads one of two tensors."""
    maker = GraphMaker()
    spec = qdq.QuantizationSpec()
    spec.add(**entry)
    graph = maker.graph(maker.add("Softmax", "loud", maker.add("Dropout", "drop", "image")))
    plan = qdq.plan_placement(graph, quantization_spec=spec, target="onnxruntime")
    rows = [*PAIR, ("Softmax", reads, "loud"), ("Tanh", "image/DequantizeLinear", "other")]
    return list(reader_differences(plan, model_of(rows, {"image": (1, 4)}, "loud,other", GRID)))


def test_a_pair_in_front_of_what_vanishes_is_read_by_what_is_behind_it():
    assert differences("image/DequantizeLinear", name="drop", quantize_input=True) == []
    (told,) = differences("image", name="drop", quantize_input=True)
    assert told == "'loud' reads the tensor of the pair 'image' in float, beside the pair"


def test_a_layer_that_reads_a_tensor_with_and_without_its_pair_reads_both():
    maker = GraphMaker()
    spec = qdq.QuantizationSpec()
    spec.add(name="sum", quantization_index=[0])
    plan = qdq.plan_placement(maker.graph(maker.add("Add", "sum", "image", "image")), quantization_spec=spec)

    def told(reads):
        rows = [*PAIR, ("Add", reads, "sum"), ("Tanh", "image/DequantizeLinear", "other")]
        return list(reader_differences(plan, model_of(rows, {"image": (1, 4)}, "sum,other", GRID)))

    assert told("image/DequantizeLinear,image") == []
    assert told("image,image") == ["'sum' reads the tensor of the pair 'image' in float, beside the pair"]
    both = "image/DequantizeLinear,image/DequantizeLinear"
    assert told(both) == ["'sum' reads the pair 'image', and by the plan the tensor in float"]


#: A tensor in two layouts, the pair in the second.
TURNED = [
    ("Tanh", "image", "loud"),
    ("Transpose", "loud", "loud/turned", {"perm": [0, 2, 1]}),
    ("QuantizeLinear", "loud/turned,s,z", "loud/QuantizeLinear"),
    ("DequantizeLinear", "loud/QuantizeLinear,s,z", "loud/DequantizeLinear"),
]


def turned(maker, result, rows, **entry):
    """Return what is told of a file with a pair behind a transpose."""
    spec = qdq.QuantizationSpec()
    spec.add(**entry)
    plan = qdq.plan_placement(maker.graph(result), quantization_spec=spec)
    outputs = ",".join(each[2] for each in rows)
    return list(reader_differences(plan, model_of([*TURNED, *rows], {"image": (1, 4, 4)}, outputs, GRID)))


def test_a_tensor_is_read_in_any_layout():
    maker = GraphMaker()
    loud = maker.add("Tanh", "loud", "image", is_operation=True)
    result = maker.add("Add", "sum", loud, loud)
    other = ("Tanh", "loud/DequantizeLinear", "other")
    mixed = {"name": "sum", "quantization_index": [0]}
    assert turned(maker, result, [("Add", "loud/DequantizeLinear,loud", "sum")], **mixed) == []
    (told,) = turned(maker, result, [("Add", "loud,loud", "sum"), other], **mixed)
    assert told == "'sum' reads the tensor of the pair 'loud' in float, beside the pair"


def test_a_layer_may_read_what_another_layer_moves_beside_the_result():
    maker = GraphMaker()
    loud = maker.add("Tanh", "loud", "image", is_operation=True)
    moved = maker.add("Permute", "turn", loud)
    maker.add("Softmax", "soft", moved)
    result = maker.add("Add", "sum", loud, moved)
    spec = qdq.QuantizationSpec()
    spec.add(name="sum", quantization_index=[1])
    spec.add(name="soft", quantize_input=True)
    plan = qdq.plan_placement(maker.graph(result, "soft"), quantization_spec=spec)
    # What reads the pair has the name of the other reader, as where a converter merges equal nodes.
    rows = [
        ("Tanh", "image", "loud"),
        ("Transpose", "loud", "turn/Transpose", {"perm": [0, 2, 1]}),
        ("QuantizeLinear", "turn/Transpose,s,z", "turn/QuantizeLinear"),
        ("DequantizeLinear", "turn/QuantizeLinear,s,z", "turn/DequantizeLinear"),
        ("Softmax", "turn/DequantizeLinear", "soft"),
        ("Exp", "loud", "sum"),
    ]
    assert list(reader_differences(plan, model_of(rows, {"image": (1, 4, 4)}, "soft,sum", GRID))) == []
