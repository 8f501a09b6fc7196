"""Operations on a symbolic tensor with sizes that are known only at run time, such as `x[:, : ops.shape(y)[1]]`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

_SIZE = "size"  # in the arguments, the next of the sizes
_REST = "..."
_ITEM = "get_item"
Shape = list[int | None]


@keras.saving.register_keras_serializable(package="qdq_workbench")
class SizedCall(keras.layers.Layer):
    """A function of `keras.ops` of one tensor, with arguments that hold sizes which are known only at run time.

    Args:
        function: Name of the function: one of `get_item`, `pad`, `broadcast_to`, `slice`.
        arguments: Its arguments behind the tensor, as JSON values. `"size"` stands for the next of the sizes, `"..."`
            for an ellipsis, and `{"slice": [start, stop, step]}` for a slice.
        shape: Shape of the result, None for open axes.
        **kwargs: Those of `keras.layers.Layer`.
    """

    _qdq_transparent = True

    def __init__(self, function: str, arguments: Sequence[Any], shape: Sequence[int | None], **kwargs: Any) -> None:
        kwargs.setdefault("autocast", False)  # the tensor keeps its dtype
        super().__init__(**kwargs)
        if function not in _SHAPES:
            message = f"A SizedCall is a call of {', '.join(_SHAPES)}. Received: {function}"
            raise ValueError(message)
        self._form: dict[str, Any] = {"function": function, "arguments": list(arguments), "shape": list(shape)}

    def call(self, inputs: Any, sizes: Any) -> Any:
        """Call the function on a tensor with the sizes in its arguments, a vector of integers."""
        values = iter(tf.unstack(sizes))
        arguments = [_filled(argument, values) for argument in self._form["arguments"]]
        name = self._form["function"]
        result = inputs[arguments[0]] if name == _ITEM else getattr(keras.ops, name)(inputs, *arguments)
        result.set_shape(self._form["shape"])
        return result

    def compute_output_spec(self, inputs: Any, sizes: Any) -> keras.KerasTensor:  # noqa: ARG002 - Keras's signature
        """Return the symbolic result."""
        return keras.KerasTensor(self._form["shape"], dtype=inputs.dtype)

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {**super().get_config(), **self._form, "autocast": False}


def sized_call(function: str, tensor: Any, arguments: Sequence[Any]) -> Any:
    """Return the result of a call of a tensor and arguments that hold sizes of a trace; None if they hold none."""
    sizes: list[Any] = []
    form = [_form(argument, sizes) for argument in arguments]
    if not sizes:
        return None
    shape = _SHAPES[function](list(tensor.shape), *form)
    return SizedCall(function, form, shape, name=function)(tensor, sizes=tf.stack(sizes))


def sized_item(operation: Any, arguments: Sequence[Any]) -> Any:
    """Return the result of an operation `x[key]` whose key holds sizes of a trace; None for anything else."""
    is_item = type(operation).__name__ == "GetItem" and len(arguments) == 2
    return sized_call(_ITEM, arguments[0], [arguments[1]]) if is_item else None


def _form(value: Any, sizes: list[Any]) -> Any:
    """Return a value as JSON, and add the tensors in it to the sizes."""
    if isinstance(value, (list, tuple)):
        return [_form(item, sizes) for item in value]
    if isinstance(value, slice):
        return {"slice": [_form(end, sizes) for end in (value.start, value.stop, value.step)]}
    if tf.is_tensor(value) and value.shape.rank == 0:
        sizes.append(value)
        return _SIZE
    return _REST if value is Ellipsis else value


def _filled(form: Any, sizes: Iterator[Any]) -> Any:
    if isinstance(form, (list, tuple)):
        return tuple(_filled(item, sizes) for item in form)
    if isinstance(form, dict):
        return slice(*(_filled(end, sizes) for end in form["slice"]))
    if form == _SIZE:
        return next(sizes)
    return Ellipsis if form == _REST else form


def _known(sizes: Sequence[Any]) -> Shape:
    return [size if isinstance(size, int) and size >= 0 else None for size in sizes]


def _padded(shape: Shape, widths: Any, *_: Any) -> Shape:
    found: Shape = []
    for size, pair in zip(shape, widths, strict=True):
        parts = [part for part in _known((size, *pair)) if part is not None]
        found.append(sum(parts) if len(parts) == 1 + len(pair) else None)
    return found


def _part(shape: Shape, key: Any) -> Shape:
    parts = list(key) if isinstance(key, list) else [key]
    if _REST not in parts:
        parts.append(_REST)
    taken = sum(part is not None and part != _REST for part in parts)
    rest, found = iter(shape), []
    for part in parts:
        if part == _REST:
            found += [next(rest) for _ in range(len(shape) - taken)]
        elif part is None:
            found.append(1)
        else:
            size = next(rest)
            if isinstance(part, dict):
                ends = part["slice"]
                found.append(None if size is None or _SIZE in ends else len(range(*slice(*ends).indices(size))))
    return found


#: The shape of the result from that of the tensor and the arguments, by the name of the function.
_SHAPES: dict[str, Callable[..., Shape]] = {
    _ITEM: _part,
    "pad": _padded,
    "broadcast_to": lambda _, sizes: _known(sizes),
    "slice": lambda _, __, sizes: _known(sizes),
}
#: The functions of `keras.ops` that take sizes.
SIZED_FUNCTIONS = tuple(name for name in _SHAPES if name != _ITEM)
