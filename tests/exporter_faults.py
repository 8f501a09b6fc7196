"""Faults that a careless change of the exporter could make, as changed lines of its files."""

import dataclasses
import importlib
import inspect

from changed_code import changed_functions


@dataclasses.dataclass(frozen=True)
class Fault:
    """A changed line of one file.

    Args:
        path: The file, below `qdq_workbench`.
        old: What stands in one of its lines.
        new: What takes its place.
        model: The function of `pass_models` whose model shows it.
        said: What verification says.
        half: Whether the file is in half precision.
    """

    path: str
    old: str
    new: str
    model: str
    said: str
    half: bool = False

    @property
    def name(self):
        """The pass, or the module."""
        return self.path.rpartition("/")[2]

    def __str__(self):
        return f"{self.name}: {self.new.strip()[:50]}"


def _pass(name, *fields, **more):
    return Fault(f"export/passes/{name}", *fields, **more)


#: Of every pass one that leaves its work undone, unless that does no harm, and one that does it wrong.
IN_PASSES = [
    _pass("drop_identities", 'return node.op == "Identity"', 'return node.op in ("Identity", "Relu")', "in_blocks", ""),
    _pass("fix_reshape_sizes", "[node.inputs[0], graph", "[node.inputs[-1], graph", "sequences", "onnx.checker"),
    _pass("drop_products_with_one", "and value == 1:", "and value == 2:", "images", "holds 1 Mul more than"),
    _pass("drop_products_with_one", "and value == 1:", "and value != 1:", "transformed", "the Neg of an"),
    _pass("restore_convolution_settings", "if groups > 1:", "if groups > 2:", "volumes", "in ONNX Runtime"),
    _pass("correct_resizes", "np.minimum(found, size - 1)", "np.minimum(found, 1)", "images", "tensor by tensor"),
    _pass("restore_one_dimensional", "WINDOWED and not", "WINDOWED and", "sequences", "on 4 axes, and has 3"),
    _pass(
        "restore_matmul_rank", "    for node in graph.sorted_nodes():", "    for node in []:", "sequences", "on 2 axes"
    ),
    _pass("restore_nearest_resize", "!= size * count", "== size * count", "images", "a repetition by Tile"),
    _pass("restore_batched_matmul", "len(node.inputs) == 2:", "len(node.inputs) == 3:", "sequences", "an Einsum"),
    _pass("restore_clips", "len(node.inputs) != 2:", "len(node.inputs) == 2:", "images", "the Max of an activation"),
    _pass("restore_clips", '("min", low), ("max", high)', '("min", low), ("max", high / 2)', "images", "tensor by"),
    _pass("restore_layer_normalizations", "graph.opset >= _LEAST", "graph.opset > _LEAST", "transformed", "in steps"),
    _pass("restore_layer_normalizations", "epsilon=found.epsilon", "epsilon=0.1", "transformed", "tensor by tensor"),
    _pass("restore_rms_normalizations", 'reciprocal.op == "Recip', 'reciprocal.op != "Recip', "transformed", "a Recip"),
    _pass(
        "restore_gelus", "    for last in graph.sorted_nodes():", "    for last in []:", "transformed", "the Neg of an"
    ),
    _pass(
        "restore_gelus", '("sqrt_2", math.sqrt(2.0))', '("sqrt_2", math.sqrt(2.1))', "transformed", "tensor by tensor"
    ),
    _pass("move_to_channels_first", "rank is None or rank < 3", "rank is None or rank > 2", "block", "pair directly"),
    _pass("simplify_reshapes", "sizes[list(perm)]", "sizes", "images", "onnx.checker"),
    _pass("fold_bias_additions", 'if add.op == "Add"', 'if add.op == "Sub"', "sequences", "has its bias outside"),
    _pass("fold_bias_additions", "(channels,)).copy()", "(channels,))[::-1].copy()", "sequences", "bias of 'conv'"),
    _pass("restore_gemm", "!= 2 or kernel is None", "!= 3 or kernel is None", "in_blocks", "has its bias outside"),
    _pass("restore_gemm", "bias.reshape(-1)", "bias.reshape(-1)[::-1]", "images", "bias of 'head'"),
    _pass("keep_biases_of_sequences_apart", "].ndim != 1", "].ndim != 2", "sequences", "a bias of one axis"),
    _pass("restore_global_average_pools", "len(left) == 2 and", "len(left) == 3 and", "block", "ReduceM"),
    _pass("fold_pads", 'reader.op != "QuantizeLinear"', 'reader.op == "QuantizeLinear"', "images", "holds 1 Pad, exp"),
    _pass("fold_pads", "[int(a + b) for", "[int(a) for", "images", "runs in ONNX Runtime"),
    _pass(
        "carry_into_loops",
        'None and producer.op == "D',
        'None and producer.op != "D',
        "looping",
        "dequantized and moved",
    ),
    _pass("quantize_biases", "    for node in graph.sorted_nodes():", "    for node in []:", "block", "a float bias"),
    _pass("quantize_biases", '/quantized", codes)', '/quantized", codes + 1)', "block", "bias of 'body'"),
    _pass(
        "quantize_biases",
        "    scale = bias_scale(data.scale, weight.scale)\n    codes",
        "    scale = 2 * bias_scale(data.scale, weight.scale)\n    codes",
        "block",
        "scale is not the product",
    ),
    _pass(
        "join_hard_sigmoids",
        "    for last in graph.sorted_nodes():",
        "    for last in []:",
        "transformed",
        "the Clip of",
    ),
    _pass("join_hard_sigmoids", "beta=SHIFT / WIDTH", "beta=0.4", "transformed", "tensor by tensor"),
    _pass(
        "keep_clips_from_blocks", 'weight.op != "Deq', 'weight.op == "Deq', "in_blocks", "hides its weight in blocks"
    ),
    _pass("keep_means_in_float", "list(_refused(graph))", "[]", "centered", "runs in ONNX Runtime"),
    _pass(
        "keep_weights_in_float",
        "values.dtype == np.float32",
        "values.dtype != np.float32",
        "partly_float",
        "float weight between two pairs",
    ),
    _pass("keep_pairs_apart", "list(_merged_by_runtime(graph))", "[]", "partly_float", "two pairs in a row"),
    _pass(
        "to_half",
        "if not half:\n                continue",
        "if half:\n                continue",
        "transformed",
        "onnx.checker",
        half=True,
    ),
]
#: Of the other steps: the cut, the fold, the float graph, encodings, pairs, weights and the finished file.
IN_STEPS = [
    Fault(
        "conversion/engine/cut",
        "return self._dequantized[name]",
        "return self.values[placement.tensor]",
        "block",
        "the pair 'each' is",
    ),
    _pass("pair_clips", "(grid.min, grid.max)", "(grid.min + 9, grid.max - 9)", "partly_float", "tensor by tensor"),
    _pass("pair_clips", 'producer.op != "Deq', 'producer.op == "Deq', "centered", "runs in ONNX Runtime"),
    Fault("conversion/engine/folding", "bias * gain + shift", "bias * gain", "block", "bias of 'stem'"),
    Fault(
        "export/keras_side/float_graph",
        'make_node("Add", node.input[2:])',
        'make_node("Sub", node.input[2:])',
        "images",
        "bias",
    ),
    Fault("export/encode", "negative = gain < 0", "negative = gain < -1", "block", "weight 'stem/kernel'"),
    Fault("export/encode", "pivot = 2 * zero_point", "pivot = 2 + zero_point", "block", "has a zero point"),
    Fault("export/insert_qdq", "axis=place.axis", "axis=1 - place.axis", "sequences", "weight 'conv/kernel'"),
    Fault(
        "export/moved_scales",
        "scale.reshape(-1)[found.index]",
        "scale.reshape(-1)[found.index[::-1]]",
        "sequences",
        "weight",
    ),
    Fault(
        "export/finish",
        "in wanted:\n            found |=",
        "not in wanted:\n            found |=",
        "in_blocks",
        "is stored",
    ),
]
FAULTS = [*IN_PASSES, *IN_STEPS]
#: Of the steps of a LiteRT file; `model` is "images", "few" (4-bit weights) or "wide" (16-bit activations).
IN_LITERT = [
    Fault(
        "export/litert/own_integers", "np.array([nearest], np.f", "np.array([2 * nearest], np.f", "images", "grid of"
    ),
    Fault("export/litert/own_integers", "arrange(ours), arrange(np", "arrange(-ours), arrange(np", "images", "weight"),
    Fault("export/litert/own_integers", "slices[:, 0], np.float32", "slices[::-1, 0], np.float32", "images", "weight"),
    Fault("export/litert/own_integers", "np.rint(exact / scale", "1 + np.rint(exact / scale", "images", "bias of"),
    Fault("export/litert/own_integers", "tensor, scale, 0)", "tensor, 2 * scale, 0)", "images", "bias of"),
    Fault("export/litert/own_integers", "tensor, codes, INT64)", "tensor, codes // 2, INT64)", "wide", "bias of"),
    Fault("export/litert/fake_quant_model", "(spec.qmin - zero) * scale,", "spec.qmin * scale,", "images", "grid of"),
    Fault(
        "export/litert/fake_quant_model",
        ".assign(encodings[placement.tensor].deq",
        ".assign(-encodings[placement.tensor].deq",
        "images",
        "weight",
    ),
    Fault("export/litert/tflite_file", "pack_pairs(codes) if", "pack_pairs(codes[::-1]) if", "few", "weight"),
    Fault("export/litert/wide_activations", "_LARGEST[8] / _LARGEST", "_LARGEST[8] * 2 / _LARGEST", "wide", ""),
    Fault("export/litert/wide_activations", "scale = fixed.get(index)", "scale = 1.0", "wide", "grid of"),
    Fault("conversion/engine/folding", "bias * gain + shift", "bias * gain", "images", "bias of 'conv'"),
    Fault("export/encode", "negative = gain < 0", "negative = gain < -1", "images", "weight 'conv/kernel'"),
]


def functions_of(module):
    """The functions of a module and the methods of its classes."""
    for value in vars(module).values():
        if inspect.isclass(value) and value.__module__ == module.__name__:
            yield from (each for each in vars(value).values() if inspect.isfunction(each))
        elif inspect.isfunction(value):
            yield value


def plant(fault, monkeypatch):
    """Give the function of a fault the code with the changed line, wherever it is known."""
    module = importlib.import_module(f"qdq_workbench.{fault.path.replace('/', '.')}")
    source = inspect.getsource(module)
    assert source.count(fault.old) == 1
    ((old, new),) = changed_functions(source, source.replace(fault.old, fault.new), module.__file__)
    (function,) = (each for each in functions_of(module) if each.__code__ == old)
    monkeypatch.setattr(function, "__code__", new)
