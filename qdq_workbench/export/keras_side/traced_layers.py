"""Layers that are traced with other operations than TensorFlow runs: those have an ONNX form, and the same values.

* `TimeDistributed` traces its layer once per step, or for open steps as many times as there are samples (Keras 3.15);
  here all steps of all samples are one batch.
* TensorFlow computes a one-dimensional transposed convolution in two dimensions, with sizes computed at run time that
  no converter can read. Traced in two dimensions, it keeps its static sizes.
* TensorFlow computes a dilated convolution by moving space into the batch, which no converter recognises for unknown
  sizes. Here it is traced with the dilations as attributes; tracing needs no CPU kernel for them.
* `UpSampling2D` reads the sizes in Python, where an unknown one is None during tracing.
* TensorFlow adds up a bias of one value and the number that an activation or the layer behind begins with, as a hard
  sigmoid does. A StopGradient keeps them apart; its optimizer looks through an Identity.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from qdq_workbench.errors import ExportError
from qdq_workbench.graph.kinds import DIRECT_CONVOLUTIONS, HOLDING_ONE, SEPARABLE
from qdq_workbench.graph_builder import carries_mask, keras_layers


def traced_otherwise(operation: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[[], Any] | None:
    """Return a function that computes a call in place of the layer; None where the layer itself is traced."""
    from keras import layers

    # Exact classes below: a subclass may compute something else in its `call`.
    kind = type(operation)
    if kind is layers.TimeDistributed and can_call_at_once(operation, args[0], kwargs.get("mask")):
        return lambda: all_steps_at_once(operation.layer, args[0], functools.partial(_one_step, operation.layer))
    if kind is layers.SpectralNormalization:  # at inference it calls its layer and no more
        return traced_otherwise(operation.layer, args, {})
    if kind is layers.UpSampling2D and operation.interpolation != "nearest" and None in args[0].shape[1:]:
        return lambda: _resized(operation, args[0])
    if kind is layers.Conv1DTranspose:
        return lambda: _transposed_in_two_dimensions(operation, args[0])
    if kind in keras_layers((*DIRECT_CONVOLUTIONS, *SEPARABLE)) and max(operation.dilation_rate) > 1:
        return lambda: _dilated(operation, args[0])
    if _adds_one_value(operation):
        return lambda: _activated_apart(operation, args, kwargs)
    return None


def _reads_mask(layer: Any, inputs: Any, mask: Any) -> bool:
    """Return whether a layer reads a mask, the one inside in place of a `TimeDistributed`, which only hands it on."""
    from keras import layers

    return (mask is not None or carries_mask(inputs)) and _takes(_inside(layer, layers.TimeDistributed), "mask")


def can_call_at_once(layer: Any, inputs: Any, mask: Any) -> bool:
    """Return whether a `TimeDistributed` can be called on all steps at once: if the layer inside reads no mask.

    Raises:
        ExportError: If it reads one of an open number of steps, of which Keras computes as many as there are samples.
    """
    if not _reads_mask(layer, inputs, mask):
        return True
    if inputs.shape[1] is None:
        raise ExportError(
            f"TimeDistributed {layer.name!r} applies a layer that reads a mask to an open number of steps, which Keras "
            "cannot trace. Give the sequences a fixed length, such as Input((100, 8)) in place of Input((None, 8)), or "
            f"leave the mask out. Received: an input of shape {tuple(inputs.shape)}"
        )
    return False


def _inside(layer: Any, *wrappers: type) -> Any:
    """Return the layer inside one or several wrappers of some exact classes, or the layer itself."""
    while type(layer) in wrappers:
        layer = layer.layer
    return layer


def takes_training(operation: Any) -> bool:
    """Return whether a call takes a `training` argument."""
    return _takes(operation, "training")


def _takes(operation: Any, argument: str) -> bool:
    with suppress(TypeError, ValueError):
        return argument in inspect.signature(operation.call).parameters
    return False


def _transposed_in_two_dimensions(layer: Any, inputs: Any) -> Any:
    from keras import ops

    added = layer.output_padding
    channels_first = layer.data_format == "channels_first"
    result = ops.conv_transpose(
        ops.expand_dims(ops.swapaxes(inputs, 1, 2) if channels_first else inputs, 2),
        ops.expand_dims(layer.kernel, 1),
        strides=(layer.strides[0], 1),
        padding=layer.padding,
        output_padding=None if added is None else (added if isinstance(added, int) else added[0], 0),
        data_format="channels_last",
        dilation_rate=(layer.dilation_rate[0], 1),
    )
    result = ops.squeeze(result, 2)
    return _finished(layer, ops.swapaxes(result, 1, 2) if channels_first else result)


def _dilated(layer: Any, inputs: Any) -> Any:
    """Compute a dilated convolution with the dilations as attributes; its strides are one, as TensorFlow demands."""
    import tensorflow as tf

    rank = layer.rank
    first_to_last, last_to_first = [0, *range(2, rank + 2), 1], [0, rank + 1, *range(1, rank + 1)]
    channels_first = layer.data_format == "channels_first"
    result = tf.transpose(inputs, first_to_last) if channels_first else inputs
    padding = layer.padding.upper()
    # TensorFlow's operations know SAME and VALID only.
    if padding == "CAUSAL":
        missing = layer.dilation_rate[0] * (layer.kernel_size[0] - 1)
        result, padding = tf.pad(result, [[0, 0], [missing, 0], [0, 0]]), "VALID"
    kernels = [layer.depthwise_kernel, layer.pointwise_kernel] if _is_separable(layer) else [layer.kernel]
    dilations = list(layer.dilation_rate)
    if rank == 1:
        result, kernels, dilations = _flat(result, 1), [_flat(kernel, 0) for kernel in kernels], [1, *dilations]
    common = {"strides": [1] * (len(dilations) + 2), "padding": padding, "dilations": [1, *dilations, 1]}
    if _is_separable(layer) or type(layer).__name__.startswith("Depthwise"):
        result = tf.raw_ops.DepthwiseConv2dNative(input=result, filter=kernels[0], **common)
    else:
        operation = tf.raw_ops.Conv3D if rank == 3 else tf.raw_ops.Conv2D
        result = operation(input=result, filter=kernels[0], **common)
    if _is_separable(layer):
        result = tf.nn.conv2d(result, kernels[1], strides=1, padding="VALID")
    result = tf.squeeze(result, [1]) if rank == 1 else result
    return _finished(layer, tf.transpose(result, last_to_first) if channels_first else result)


def _adds_one_value(layer: Any) -> bool:
    """Return whether a layer has a bias of one value in front of its activation, which may be linear."""
    bias, activation = getattr(layer, "bias", None), getattr(layer, "activation", None)
    return callable(activation) and tuple(getattr(bias, "shape", ())) == (1,)


def _activated_apart(layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Compute a layer whose bias and activation TensorFlow does not put together."""
    import tensorflow as tf

    activation = layer.activation
    layer.activation = lambda inputs: activation(tf.stop_gradient(inputs))
    try:
        return layer(*args, **kwargs)
    finally:
        layer.activation = activation


def _resized(layer: Any, inputs: Any) -> Any:
    """Resize to sizes that are computed at run time."""
    import tensorflow as tf

    channels_first = layer.data_format == "channels_first"
    images = tf.transpose(inputs, [0, 2, 3, 1]) if channels_first else inputs
    resized = tf.image.resize(images, tf.shape(images)[1:3] * tf.constant(layer.size), method=layer.interpolation)
    result = tf.cast(resized, inputs.dtype)
    return tf.transpose(result, [0, 3, 1, 2]) if channels_first else result


def _is_separable(layer: Any) -> bool:
    return hasattr(layer, "pointwise_kernel")


def _flat(tensor: Any, axis: int) -> Any:
    """Add the axis of size one that makes a one-dimensional convolution a two-dimensional one."""
    import tensorflow as tf

    return tf.expand_dims(tensor, axis)


def _finished(layer: Any, result: Any) -> Any:
    """Add the bias to a convolution's result as Keras does, then apply the activation."""
    import tensorflow as tf
    from keras import ops

    if layer.use_bias:
        channels_first = layer.data_format == "channels_first"
        sizes = (1, -1, *[1] * layer.rank) if channels_first else (*[1] * (layer.rank + 1), -1)
        result = ops.add(result, ops.reshape(layer.bias, sizes))
    return layer.activation(tf.stop_gradient(result) if _adds_one_value(layer) else result)


def all_steps_at_once(layer: Any, inputs: Any, call: Callable[[Any], Any]) -> Any:
    """Call a layer, by `call`, on all steps of all samples as one batch; at inference no layer mixes samples."""
    import tensorflow as tf
    from keras import layers

    flat = tf.reshape(inputs, _sizes(inputs, [-1], range(2, len(inputs.shape)), inputs))
    result = call(flat)
    # A result that a Shape reads beside its pair has no integer kernel; a Dense keeps all sizes but the last.
    product = _inside(layer, *keras_layers(HOLDING_ONE))
    source = flat if type(product) is layers.Dense else result
    return tf.reshape(result, _sizes(result, _first_sizes(inputs), range(1, len(result.shape)), source))


def _first_sizes(inputs: Any) -> list[Any]:
    """Return the number of samples and of steps for a Reshape, which computes one size at most from the others."""
    import tensorflow as tf

    samples, steps = inputs.shape[:2]
    if steps is not None:
        return [-1, steps]
    if samples is not None:
        return [samples, -1]
    sizes = tf.shape(inputs)
    return [sizes[0], sizes[1]]


def _one_step(layer: Any, inputs: Any) -> Any:
    keywords = {"training": False} if takes_training(layer) else {}
    otherwise = traced_otherwise(layer, (inputs,), keywords)
    return layer(inputs, **keywords) if otherwise is None else otherwise()


def _sizes(tensor: Any, first: list[Any], axes: Iterable[int], source: Any) -> list[Any]:
    """Return sizes for a Reshape of `tensor`; open ones are read from `source`, which has the same."""
    import tensorflow as tf

    known = [tensor.shape[axis] for axis in axes]
    rest = [tf.shape(source)[axis] if size is None else size for axis, size in zip(axes, known, strict=True)]
    return [*first, *rest]
