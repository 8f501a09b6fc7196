"""Translation of model configurations from Keras 2 to Keras 3.

The differences, found by saving one model per layer class with tf_keras 2.21 and loading it with Keras 3.15:

* `groups` in depthwise, separable and transposed convolutions, `time_major` in recurrent layers, the three shapes in
  MultiHeadAttention, `score_mode` in Attention, `rng_type` in random layers: keys that Keras 3 refuses.
* `ThresholdedReLU` and `SyncBatchNormalization` are settings of other layers now.
* `hard_sigmoid` is another function in Keras 3 (up to 0.08 apart): without translation the model would load, and
  compute wrong results.
* `x + y` and calls of TensorFlow functions are layers of the class TFOpLambda, which Keras 3 does not have.
* Calls of a nested model are counted from 1, because its creation was call 0; Keras 3 counts from 0.
* Dtype policies (`mixed_float16`) are objects of a class that Keras 3 does not have; it takes their names.
* Tensors passed by keyword (`attention(x, value=y)`) are lists that Keras 3 reads as constants.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras

from qdq_workbench._pages import page
from qdq_workbench.errors import UnsupportedModelError

#: Keys that Keras 3 refuses, with the only values that may be dropped; None for any.
_Keys = dict[str, tuple[Any, ...] | None]
_NO_GROUPS: _Keys = {"groups": (1,)}
_NO_KERNEL: _Keys = {
    f"kernel_{what}": None for what in ("initializer", "regularizer", "constraint")
}  # it has two kernels
_NO_TIME_MAJOR: _Keys = {"time_major": (False,)}
_DROPPED: dict[str, _Keys] = {
    **dict.fromkeys(("DepthwiseConv1D", "DepthwiseConv2D"), _NO_GROUPS),
    "SeparableConv1D": {**_NO_GROUPS, **_NO_KERNEL},
    "SeparableConv2D": {**_NO_GROUPS, **_NO_KERNEL},
    **dict.fromkeys(("Conv1DTranspose", "Conv2DTranspose", "Conv3DTranspose"), _NO_GROUPS),
    **dict.fromkeys(("LSTM", "GRU", "SimpleRNN", "RNN"), _NO_TIME_MAJOR),
    **dict.fromkeys(("ConvLSTM1D", "ConvLSTM2D", "ConvLSTM3D"), _NO_TIME_MAJOR),
    "MultiHeadAttention": {
        "query_shape": None,
        "key_shape": None,
        "value_shape": None,
        "softmax_robust_masking": (False,),
    },
    "Attention": {"score_mode": ("dot",)},
}
_MERGES = {
    "__operators__.add": "Add",
    "math.add": "Add",
    "math.subtract": "Subtract",
    "math.multiply": "Multiply",
    "math.maximum": "Maximum",
    "math.minimum": "Minimum",
}
_ACTIVATIONS = {
    "nn.relu": "relu",
    "nn.relu6": "relu6",
    "nn.elu": "elu",
    "nn.selu": "selu",
    "nn.silu": "silu",
    "nn.swish": "silu",
    "nn.softplus": "softplus",
    "math.sigmoid": "sigmoid",
    "math.tanh": "tanh",
}
_MODELS = ("Sequential", "Functional", "Model")
_POLICIES = ("Policy", "PolicyV1")
_HARD_SIGMOID = "hard_sigmoid_of_keras_2"


@keras.saving.register_keras_serializable(package="qdq_workbench", name=_HARD_SIGMOID)
def hard_sigmoid_of_keras_2(x: Any) -> Any:
    """Return `clip(0.2 x + 0.5, 0, 1)`; the slope in Keras 3 is 1/6."""
    return keras.ops.clip(0.2 * x + 0.5, 0.0, 1.0)


def translate(config: Any) -> Any:
    """Translate the parsed JSON of a Keras 2 model to Keras 3, at any depth; refuse operations that Keras 3 lacks."""
    unknown: list[str] = []
    translated = _count_calls_from_zero(_translate(config, unknown))
    if unknown:
        raise UnsupportedModelError(
            "The model was saved by Keras 2 with operations that Keras 3 cannot load: "
            f"{', '.join(unknown[:5])}{', ...' if len(unknown) > 5 else ''}. Build the network again with Keras 3 "
            "(keras.ops functions in their place) and read the weights of this file into it: "
            f"model.load_weights(path); see {page('importing.md')}."
        )
    return translated


def unwrap_single_ends(config: Any) -> Any:
    """Make models with one input or output take and return a tensor, not a list of one.

    HDF5 files store lists, so Keras warns at every call of a model loaded from one.
    """
    if isinstance(config, list):
        return [unwrap_single_ends(item) for item in config]
    if not isinstance(config, dict):
        return config
    config = {key: unwrap_single_ends(item) for key, item in config.items()}
    for key in ("input_layers", "output_layers"):
        ends = config.get(key)
        if "layers" in config and isinstance(ends, list) and len(ends) == 1 and isinstance(ends[0], list):
            config[key] = ends[0]
    return config


def _translate(value: Any, unknown: list[str]) -> Any:
    if isinstance(value, list):
        return [_translate(item, unknown) for item in value]
    if not isinstance(value, dict):
        return value
    value = {key: _translate(item, unknown) for key, item in value.items()}
    kind, config = value.get("class_name"), value.get("config")
    if kind in _POLICIES and isinstance(config, dict) and "name" in config:
        return config["name"]
    if isinstance(kind, str) and isinstance(config, dict):
        return _translate_layer(value, kind, dict(config), unknown)
    return value


def _translate_layer(value: dict[str, Any], kind: str, config: dict[str, Any], unknown: list[str]) -> dict[str, Any]:
    for key, droppable in _DROPPED.get(kind, {}).items():
        if key in config and (droppable is None or config[key] in droppable):
            del config[key]
    config.pop("rng_type", None)
    for key in ("activation", "recurrent_activation"):
        if config.get(key) == "hard_sigmoid":
            config[key] = _function(_HARD_SIGMOID)
    renamed = _RENAMED.get(kind)
    if renamed is not None:
        kind, config = renamed(config)
    elif kind in ("TFOpLambda", "SlicingOpLambda"):
        return _translate_operation(value, kind, config, unknown)
    if isinstance(value.get("inbound_nodes"), list):
        value = {**value, "inbound_nodes": [_with_tensors_by_keyword(call) for call in value["inbound_nodes"]]}
    return {**value, "class_name": kind, "config": config}


def _with_tensors_by_keyword(call: Any) -> Any:
    """Translate a call of one tensor with further tensors by keyword; return any other call unchanged."""
    if not (isinstance(call, list) and len(call) == 1 and isinstance(call[0], list) and len(call[0]) == 4):
        return call
    name, node, tensor, given = call[0]
    if not any(_is_tensor(item) for item in given.values()):
        return call
    kwargs = {key: _tensor(*item) if _is_tensor(item) else item for key, item in given.items()}
    return {"args": [_tensor(name, node, tensor)], "kwargs": kwargs}


def _tensor(*history: Any) -> dict[str, Any]:
    return {
        "class_name": "__keras_tensor__",
        # Keras finds the tensor by its history alone; shape and dtype are required and not used.
        "config": {"shape": [None], "dtype": "float32", "keras_history": [*history]},
    }


def _count_calls_from_zero(config: Any) -> Any:
    """Number the calls of nested models from 0, at any depth."""
    if isinstance(config, list):
        return [_count_calls_from_zero(item) for item in config]
    if not isinstance(config, dict):
        return config
    config = {key: _count_calls_from_zero(item) for key, item in config.items()}
    layers = config.get("layers")
    if not isinstance(layers, list) or "output_layers" not in config:
        return config
    counted = {layer.get("name") for layer in layers if layer.get("class_name") in _MODELS}
    # Not the configurations of the layers: inside of a nested model another layer may have the name of a counted one.
    places = [(config, "input_layers"), (config, "output_layers"), *((layer, "inbound_nodes") for layer in layers)]
    for part, key in places if counted else ():
        if key in part:
            part[key] = _counted_from_zero(part[key], counted)
    return config


def _counted_from_zero(value: Any, names: set[Any]) -> Any:
    """Subtract 1 from the call number in every reference to one of the layers."""
    if isinstance(value, dict):
        return {key: _counted_from_zero(item, names) for key, item in value.items()}
    if not isinstance(value, list):
        return value
    if len(value) in (3, 4) and isinstance(value[0], str) and value[0] in names and value[1:2] != [0]:
        return [value[0], value[1] - 1, *(_counted_from_zero(item, names) for item in value[2:])]
    return [_counted_from_zero(item, names) for item in value]


def _translate_operation(
    value: dict[str, Any], kind: str, config: dict[str, Any], unknown: list[str]
) -> dict[str, Any]:
    """Translate `x + y` and activations to layers; append anything else to `unknown`."""
    function, calls = config.get("function"), value.get("inbound_nodes", [])
    common = {"name": config.get("name"), "trainable": True, "dtype": config.get("dtype", "float32")}
    operands = [_operands(call) for call in calls]
    if function in _MERGES and operands and all(len(found) == 2 for found in operands):
        return {**value, "class_name": _MERGES[function], "config": common, "inbound_nodes": operands}
    if function in _ACTIVATIONS and operands and all(len(found) == 1 for found in operands):
        config = {**common, "activation": _ACTIVATIONS[function]}
        return {**value, "class_name": "Activation", "config": config, "inbound_nodes": operands}
    unknown.append(f"{config.get('name')} ({function or kind})")
    return value


def _operands(call: Any) -> list[Any]:
    """Return the tensors of a call: a positional one and an optional second one (`y`); empty for any other call."""
    if not (isinstance(call, list) and len(call) == 4 and isinstance(call[0], str) and isinstance(call[3], dict)):
        return []
    given = {key: item for key, item in call[3].items() if item is not None}
    others = [given.pop(key) for key in ("y",) if key in given]
    if given or not all(_is_tensor(other) for other in others):
        return []
    return [[*call[:3], {}], *([*other[:3], {}] for other in others)]


def _is_tensor(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 3 and isinstance(value[0], str) and value[0] != "_CONSTANT_VALUE"


def _function(name: str) -> dict[str, Any]:
    return {"module": "builtins", "class_name": "function", "config": name, "registered_name": f"qdq_workbench>{name}"}


def _thresholded_relu(config: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    theta = float(config.pop("theta", 1.0))
    return "ReLU", {**config, "threshold": theta}


def _sync_batch_norm(config: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    return "BatchNormalization", {**config, "synchronized": True}


_RENAMED: dict[str, Callable[[dict[str, Any]], tuple[str, dict[str, Any]]]] = {
    "ThresholdedReLU": _thresholded_relu,
    "SyncBatchNormalization": _sync_batch_norm,
}
