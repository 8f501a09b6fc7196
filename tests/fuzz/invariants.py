"""What holds for every model, specification and target, whatever they are."""

from __future__ import annotations

import contextlib
import json

import keras
import numpy as np
import onnx
import tensorflow as tf
from agreement.statuses import compare
from fuzz.graphs import break_one, data_of, resized

import qdq_workbench as qdq
from qdq_workbench.conversion.engine.rebuild import keras_name
from qdq_workbench.errors import ExportError
from qdq_workbench.onnx_graph.qdq_graph import keeps_in_float
from qdq_workbench.wrappers import QuantizeDequantize

_SHARED = "is called with inputs of very different sizes"  # the one refusal of a model that can be quantized


def check_planning(model, spec, target):
    """Planning is a pure function of what it is given, and its plan goes through JSON unchanged; return the plan."""
    before, wishes = state_of(model), spec.to_dict()
    graph = qdq.build_graph(model)
    assert qdq.build_graph(model) == graph
    assert qdq.ModelGraph.from_dict(json.loads(json.dumps(graph.to_dict()))) == graph
    plan = qdq.plan_placement(model, quantization_spec=spec, target=target)
    assert qdq.plan_placement(graph, quantization_spec=spec, target=target) == plan
    assert qdq.PlacementPlan.from_dict(json.loads(json.dumps(plan.to_dict()))) == plan
    again = qdq.QuantizationSpec.from_dict(json.loads(json.dumps(wishes)))
    assert again == spec
    assert qdq.plan_placement(model, quantization_spec=again, target=target) == plan
    for runtime in ("tensorrt", "onnxruntime"):
        explained = {layer.layer for layer in qdq.explain(plan, runtime).layers}
        assert explained <= set(graph.layers)
    _check_fixes(plan)
    assert spec.to_dict() == wishes
    assert_same_state(state_of(model), before)
    return plan


def _check_fixes(plan):
    """What the explanations advise can be planned, helps, and costs no other layer its integers."""
    explained = qdq.explain(plan)
    fixed = qdq.plan_placement(plan.graph, quantization_spec=explained.apply_fixes(), target=plan.target)
    after = {layer.layer: layer for layer in qdq.explain(fixed).layers}
    assert not [layer for layer in after.values() if layer.fix]
    assert all(after[layer.layer].status == "int8" for layer in explained.layers if layer.status == "int8")


def check_model(model, spec, target, folder, seed, *, compiled=False, hard=False):
    """The whole way from a float model to a verified file."""
    plan = check_planning(model, spec, target)
    before = state_of(model)
    data = data_of(model, seed, hard=hard)
    try:
        expected = flat(run(model, data, compiled=compiled))
        # Nothing is left out in single calls: not a layer whose result nobody reads, which may have no kernel here.
        by_calls = flat(run(model, data, compiled=False)) if compiled else expected
    except (TypeError, ValueError, tf.errors.OpError):
        return None  # a shape that the layer cannot compute, though Keras promised it, or a dtype without a kernel
    if not all(np.isfinite(values).all() for values in expected):
        return None
    if not all(map(np.array_equal, by_calls, expected)):  # TensorFlow rewrites sums of equal terms, for one
        compiled, expected = False, by_calls
    q_model = qdq.quantize_model(model, quantization_spec=spec, target=target)
    assert q_model.plan == plan
    qdq.calibrate(q_model, data, verbose=False, freeze=True)
    q_model.quantization_enabled = False
    _check_same_outputs(q_model, model, data, expected, "off", compiled=compiled)
    q_model.quantization_enabled = True
    _check_same_outputs(qdq.strip(q_model), model, data, expected, "stripped", compiled=compiled)
    quantized = flat(run(q_model, data, compiled=False))
    if not all(np.isfinite(values).all() for values in quantized):
        # Small values round to 0, of which layers compute infinity or NaN: 1 / sqrt(0), 0 / 0.
        _check_pairs_are_finite(q_model, data)
        if any(np.isnan(values).any() for values in quantized):
            return None  # and ONNX says not what becomes of NaN in a QuantizeLinear
    _check_saving(q_model, data, quantized, folder)
    _check_file(q_model, data, folder, one_sample=hard)
    if hard and seed % 3 == 0:
        _check_fixed_batch(q_model, data, folder)
    assert_same_state(state_of(model), before)
    return q_model


def _check_same_outputs(found, model, data, expected, when, *, compiled):
    """Two models compute the same, bit for bit; compiled, before TensorFlow multiplies constants of one of them."""
    outputs = flat(run(found, data, compiled=compiled))
    if compiled and not all(map(np.array_equal, outputs, expected)):
        with _constants_as_they_are():
            for each in (found, model):
                each.make_predict_function(force=True)
            outputs, expected = (flat(run(each, data, compiled=True)) for each in (found, model))
        for each in (found, model):
            each.make_predict_function(force=True)
    assert_same(outputs, expected, when)


@contextlib.contextmanager
def _constants_as_they_are():
    tf.config.optimizer.set_experimental_options({"constant_folding": False})
    try:
        yield
    finally:
        tf.config.optimizer.set_experimental_options({"constant_folding": True})


def _check_pairs_are_finite(q_model, data):
    """Pairs return numbers for numbers, so that it is the layers, exact without pairs, that return anything else."""
    pairs = [layer for layer in q_model.layers if isinstance(layer, QuantizeDequantize)]
    ends = [end for pair in pairs for end in (pair.input, pair.output)]
    values = flat(keras.Function(q_model._inputs_struct, ends)(data))
    for given, returned in zip(values[::2], values[1::2], strict=True):
        assert np.isfinite(returned)[np.isfinite(given)].all()


def check_broken(model, spec, target, folder, seed):
    """A model with a NaN or an infinity in a weight is refused by name, or its file is one; nothing else happens."""
    try:
        run(model, data_of(model, seed), compiled=False)
    except (TypeError, ValueError, tf.errors.OpError):
        return  # Keras cannot run the model
    break_one(model, seed)
    before, path = state_of(model), folder / "broken.onnx"
    try:
        q_model = qdq.quantize_model(model, quantization_spec=spec, target=target)
        qdq.calibrate(q_model, data_of(model, seed), verbose=False, freeze=True)
        qdq.export_onnx(q_model, path)
    except qdq.QDQError:
        assert not any(folder.iterdir()), "a refused model leaves a file"
    else:
        assert path.is_file()
    assert_same_state(state_of(model), before)


def check_litert(q_model, folder):
    """The LiteRT file of a model holds the model's grids and integers, or the export is refused by name."""
    path = folder / "model.tflite"
    try:
        qdq.export_tflite(q_model, path)
    except ExportError as error:
        assert not path.exists(), "a refused export leaves a file"
        if "where the model's has" in str(error):  # a shape that the converter computes otherwise is a finding
            raise
        return
    for check in qdq.files.verify_tflite(path, q_model).checks:
        assert check.passed or check.name == "outputs", check.detail  # of which the exporter warns, with the cause


def check_training(model, q_model, data):
    """One step of training changes weights, keeps frozen ranges, and leaves the float model alone."""
    before = state_of(model)
    ranges = _frozen_ranges(q_model)
    try:
        result = _trained(q_model, data)
    except (TypeError, ValueError, tf.errors.OpError):
        try:
            _trained(keras.models.clone_model(model), data)
        except (TypeError, ValueError, tf.errors.OpError):
            return  # Keras cannot train the float model either
        raise
    assert "loss" in result
    assert _frozen_ranges(q_model) == ranges
    assert_same_state(state_of(model), before)


def _frozen_ranges(q_model):
    """Return the ranges but those whose steps are learned."""
    learned = {tensor.name for tensor in q_model.plan.tensors if tensor.method and tensor.method.name == "lsq"}
    return {name: ends for name, ends in q_model.activation_ranges().items() if name not in learned}


def _trained(model, data):
    model.compile("sgd", loss=keras.tree.map_structure(lambda _: "mse", model._outputs_struct))
    targets = keras.tree.map_structure(np.zeros_like, run(model, data, compiled=False))
    return model.train_on_batch(data, targets, return_dict=True)


def _check_saving(q_model, data, quantized, folder):
    q_model.save(folder / "model.keras")
    loaded = keras.models.load_model(folder / "model.keras")
    assert loaded.plan == q_model.plan
    assert loaded.activation_ranges() == q_model.activation_ranges()
    assert_same(flat(run(loaded, data, compiled=False)), quantized, "loaded")


def _check_file(q_model, data, folder, *, one_sample):
    path = folder / "model.onnx"
    try:
        left_out = qdq.export_onnx(q_model, path).left_out
    except ExportError as error:
        if _SHARED not in str(error) or path.exists():
            raise
        return
    graph = onnx.load(path).graph
    count = {"activation": 0, "weight": 0}
    for tensor in q_model.plan.tensors:
        if tensor.name in left_out:
            assert _is_read_by_masks_alone(q_model.plan, tensor)
        else:
            count[tensor.kind] += 1
    assert sum(node.op_type == "QuantizeLinear" for node in graph.node) == count["activation"]
    biases = sum(
        node.op_type == "DequantizeLinear" and constant.data_type == onnx.TensorProto.INT32
        for node in graph.node
        for constant in graph.initializer
        if node.input[0] == constant.name
    )
    dequantized = sum(node.op_type == "DequantizeLinear" for node in graph.node)
    assert dequantized - biases == count["activation"] + count["weight"]
    assert not _local_functions(path)
    _check_biases(q_model)
    _check_explanation(q_model, path)
    _verify(path, q_model, data)
    if one_sample:
        _verify(path, q_model, keras.tree.map_structure(lambda values: values[:1], data))
        _check_other_sizes(path, q_model, data)


def _check_other_sizes(path, q_model, data):
    """A file with open sizes computes what the model does for other ones, too, where Keras has results for them."""
    if not any(None in tensor.shape[1:] for tensor in q_model.inputs):
        return
    for count, size in ((4, 6), (5, 12)):
        other = resized(q_model, data, count, size)
        try:
            expected = flat(run(q_model, other, compiled=False))
        except (TypeError, ValueError, tf.errors.OpError):
            continue
        if all(np.isfinite(values).all() for values in expected):
            _verify(path, q_model, other)


def _check_fixed_batch(q_model, data, folder):
    """The file with a batch of one computes what the model does, or is refused as the one with an open batch is."""
    path = folder / "one.onnx"
    try:
        qdq.export_onnx(q_model, path, dynamic_batch=False)
    except ExportError as error:
        if _SHARED not in str(error) or path.exists():
            raise
        return
    _verify(path, q_model, keras.tree.map_structure(lambda values: values[:1], data))


def _verify(path, q_model, data):
    qdq.verify_onnx(path, q_model, data).raise_if_failed()


def _check_explanation(q_model, path):
    """What is said to run on integers does, in ONNX Runtime's graph of the file."""
    if q_model.plan.target != "onnxruntime":
        return
    explanation = qdq.explain(q_model)
    file = onnx.load(path)
    _, differing = compare(explanation, file, path.parent)
    graph = q_model.plan.graph
    floats = {layer for layer, _, status, _, runs in differing if status == "int8" and "float" in runs}
    floats = {layer for layer in floats if keras_name(layer) not in _means_in_float(file)}
    # The runtime computes two calls on one tensor once, and TensorFlow leaves out a bias of zeros.
    wrapped = q_model.wrappers_by_path()
    floats = {layer for layer in floats if len(graph.calls(layer)) == 1 and not _has_zero_bias(wrapped.get(layer))}
    assert not floats, explanation.summary()


def _means_in_float(file):
    """The layers whose means ONNX Runtime cannot compute on integers with their scales, of which a plan has none."""
    clips = {node.output[0] for node in file.graph.node if keeps_in_float(node)}
    pools = [node for node in file.graph.node if node.op_type == "GlobalAveragePool"]
    return {pool.name.partition("/")[0] for pool in pools if pool.input[0] in clips}


def _has_zero_bias(wrapper):
    bias = None if wrapper is None else getattr(wrapper.layer, "bias", None)
    return bias is not None and not np.any(np.array(bias))


def _is_read_by_masks_alone(plan, pair):
    """Whether nothing but masks follows a pair: Keras hands a mask to layers that do not use it."""
    graph = plan.graph
    placed = [p for p in plan.placements if (p.tensor, p.quantizer) == (pair.tensor, pair.quantizer)]
    if any(placement.site == "output" for placement in placed):
        return _leads_to_masks_alone(graph, pair.tensor)
    written = [name for placement in placed for name in graph.node(placement.node).outputs]
    return all(_leads_to_masks_alone(graph, name) for name in written)


def _leads_to_masks_alone(graph, tensor):
    if graph.tensors[tensor].dtype == "bool":
        return True
    written = [name for node, _ in graph.readers(tensor) for name in node.outputs]
    return bool(written) and tensor not in graph.outputs and all(_leads_to_masks_alone(graph, name) for name in written)


def _check_biases(q_model):
    """Integer biases are off by half a step at most, those of channels of zeros by a float's rounding."""
    weights = qdq.integer_weights(q_model)
    floats = {f"{path}/bias": wrapper.layer for path, wrapper in q_model.wrappers_by_path().items()}
    for name, bias in weights.items():
        if not isinstance(bias, np.ndarray) and bias.num_bits == 32 and name in floats:
            exact, kernel = np.array(floats[name].bias, np.float64), weights[name[: -len("bias")] + "kernel"]
            off = np.abs(bias.dequantize() - exact)
            assert (off <= 0.51 * bias.scale + 1e-6 * np.abs(exact)).all()
            if kernel.axis == kernel.codes.ndim - 1:
                dead = (kernel.codes == kernel.zero_point).reshape(-1, exact.size).all(axis=0)
                # One scale serves all calls: the least scale of an input bounds the codes, the greatest makes the step.
                steps = np.array([weights[call].scale for call in weights if _layer_of(call) == name])
                spread = (steps.max(axis=0) / steps.min(axis=0))[dead]
                assert (off[dead] <= (1e-6 + 2.0**-30 * spread) * np.abs(exact[dead]) + 2.0**-90).all()


def _layer_of(bias):
    """Return the name of the bias of the first call: `dense/bias` for `dense#1/bias`."""
    path, _, name = bias.rpartition("/")
    return f"{path.partition('#')[0]}/{name}"


def _local_functions(path):
    """A file for inference runtimes holds no operators of other domains."""
    return [node.op_type for node in onnx.load(path).graph.node if node.domain not in ("", "ai.onnx")]


def run(model, data, *, compiled):
    """Return the outputs; through `predict`, where TensorFlow compiles a graph, or call by call."""
    if compiled:
        return model.predict(data, verbose=0)
    tensors = keras.tree.map_structure(keras.ops.convert_to_tensor, data)
    return model(tensors, training=False)


def flat(outputs):
    """Outputs as a flat list of arrays."""
    return [keras.ops.convert_to_numpy(value) for value in keras.tree.flatten(outputs)]


def assert_same(found, expected, when):
    """Equal bit for bit."""
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs, err_msg=when)


def state_of(model):
    """Everything that could be changed by mistake: configuration, values, trainability, what the layers are called."""
    return (
        model.get_config(),
        [(variable.path, variable.trainable, np.array(variable)) for variable in model.variables],
        [(layer.name, layer.trainable, len(layer._inbound_nodes)) for layer in model._flatten_layers()],
    )


def assert_same_state(now, before):
    """The model is as it was."""
    assert now[2] == before[2]
    assert [entry[:2] for entry in now[1]] == [entry[:2] for entry in before[1]]
    for (path, _, ours), (_, _, theirs) in zip(now[1], before[1], strict=True):
        np.testing.assert_array_equal(ours, theirs, err_msg=path)
    assert json.dumps(now[0], default=str, sort_keys=True) == json.dumps(before[0], default=str, sort_keys=True)
