"""A handler for transposed convolutions, whose padding tf2onnx gets wrong.

* If the result has more values than the kernel reaches (the stride is larger than the kernel, or there is an output
  padding), it writes negative pads, on both sides if two or more values are missing. TensorFlow adds all of them at the
  end, which is ONNX's `output_padding`. ONNX infers no shape from negative pads, so they are never written.
* For open sizes, it crops and pads the result to sizes that are computed at run time: behind the bias, so that what it
  adds lacks the bias, and along the axes of channels-last tensors also where the channels come first. What a transposed
  convolution leaves out is the same for all sizes, and is written as for known ones.
"""

from __future__ import annotations

from typing import Any

OPERATIONS = ("Conv2DBackpropInput", "Conv3DBackpropInputV2")
_PROBED = (16, 25)  # sizes of open axes that are tried


def transposed_convolutions(traced: Any) -> dict[str, tuple[Any, list[Any]]]:
    """Return the handlers for the transposed convolutions of a TensorFlow graph, as tf2onnx takes them."""

    def write(graph: Any, node: Any, name: str, _: Any) -> None:
        from tf2onnx.onnx_opset.nn import ConvTranspose

        is_open = -1 in graph.get_shape(node.input[2])[1:]
        left_out = _left_out_of(traced, name) if is_open else None
        if left_out is not None:
            _fix_sizes(graph, node)
        ConvTranspose.version_11(graph, node)
        if left_out is not None:
            node.attr.pop("output_shape")
        elif "pads" in node.attr:
            pads = list(node.get_attr("pads").ints)
            half = len(pads) // 2
            left_out = [begin + end for begin, end in zip(pads[:half], pads[half:], strict=True)]
        if left_out is not None:
            _write_padding(node, left_out)

    return {operation: (write, []) for operation in OPERATIONS}


def _fix_sizes(graph: Any, node: Any) -> None:
    """Give a node constant sizes, of any value: tf2onnx then adds no operators that compute them."""
    import numpy as np
    from tf2onnx import utils

    sizes = np.full(len(graph.get_shape(node.input[2])), 2**20, np.int32)
    constant = graph.make_const(utils.make_name(node.name), sizes)
    graph.replace_input(node, node.input[0], constant.output[0], 0)


def _write_padding(node: Any, left_out: list[int]) -> None:
    """Write what a transposed convolution leaves out along every axis; a negative number is what it adds at the end."""
    totals = [max(count, 0) for count in left_out]
    node.set_attr("pads", [*(total // 2 for total in totals), *(total - total // 2 for total in totals)])
    node.set_attr("auto_pad", "NOTSET")
    if min(left_out) < 0:
        node.set_attr("output_padding", [max(-count, 0) for count in left_out])


def _left_out_of(traced: Any, name: str) -> list[int] | None:
    """Return how much of a result is left out along every axis; None if that depends on more than its settings."""
    import tensorflow as tf

    try:
        operation = traced.get_operation_by_name(name)
        if operation.type not in OPERATIONS:  # tf2onnx has joined it with the bias behind it
            operation = operation.inputs[0].op
        one, other = (_left_out_at(operation, size) for size in _PROBED)
    except (KeyError, tf.errors.InvalidArgumentError):  # in the body of a loop; or other tensors decide
        return None
    return one if one == other else None


def _left_out_at(operation: Any, size: int) -> list[int]:
    """Return how much is left out for an input with open axes of one size."""
    import numpy as np
    import tensorflow as tf

    source = operation.inputs[2]
    given = [size if axis is None else axis for axis in source.shape]
    with tf.compat.v1.Session(graph=operation.graph) as session:
        sizes = session.run(operation.inputs[0], {source: np.zeros(given, source.dtype.as_numpy_dtype)})
    first = 2 if operation.get_attr("data_format").startswith(b"NC") else 1
    kernel = [int(axis) for axis in operation.inputs[1].shape[:-2]]
    strides, dilations = operation.get_attr("strides"), operation.get_attr("dilations")
    return [
        (given[axis] - 1) * strides[axis] + (length - 1) * dilations[axis] + 1 - int(sizes[axis])
        for axis, length in enumerate(kernel, first)
    ]
