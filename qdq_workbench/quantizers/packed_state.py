"""Several small values of a layer in one variable, each of which reads and is assigned like a variable of its own.

Making a variable takes Keras and TensorFlow a third of a millisecond, whatever its size: with four of them the pairs of
a model cost more to make than its layers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf


class PackedState:
    """One float32 variable of a layer that holds numbers and switches.

    Args:
        layer: The layer that owns the variable.
        values: What it holds at first, by name; a bool makes a switch.

    Example:
        >>> import keras
        >>> state = PackedState(keras.layers.Layer(), {"on": True, "size": 2.0})
        >>> state["size"].assign(3.0)
        >>> bool(state["on"].numpy()), float(state["size"].numpy())
        (True, 3.0)
    """

    def __init__(self, layer: Any, values: Mapping[str, float | bool]) -> None:
        self._places = {name: place for place, name in enumerate(values)}
        self._switches = {name for name, value in values.items() if isinstance(value, bool)}
        start = np.array([float(value) for value in values.values()], np.float32)
        self._variable = layer.add_weight(
            name="state",
            shape=(len(values),),
            initializer=lambda shape, dtype: tf.constant(start, shape=shape, dtype=dtype),
            dtype="float32",
            trainable=False,
            autocast=False,
            aggregation="only_first_replica",  # whoever assigns gives all of them the same
        )

    def __getitem__(self, name: str) -> Slot:
        """Return one of the values, to be read at every use.

        Args:
            name: Its name.
        """
        return Slot(self, name)

    def read(self) -> dict[str, Slot]:
        """Return all values as they are now, read at once."""
        tensors = tf.unstack(tf.convert_to_tensor(self._variable), num=len(self._places))
        return {name: Slot(self, name, tensors[place]) for name, place in self._places.items()}

    def tensor(self, name: str, number: Any = None) -> Any:
        """Return a value as a scalar tensor: bool for a switch.

        Args:
            name: Its name.
            number: The value as read before; None to read it.
        """
        if number is None:
            number = tf.convert_to_tensor(self._variable)[self._places[name]]
        return number > 0.5 if name in self._switches else number

    def dtype(self, name: str) -> str:
        """Return the type that a value reads as.

        Args:
            name: Its name.
        """
        return "bool" if name in self._switches else "float32"

    def assign(self, values: Mapping[str, Any]) -> None:
        """Give some of the values new ones, in one step.

        Args:
            values: Numbers, bools or scalar tensors by name.
        """
        numbers = tf.unstack(tf.convert_to_tensor(self._variable), num=len(self._places))
        for name, value in values.items():
            numbers[self._places[name]] = tf.reshape(tf.cast(value, tf.float32), [])
        self._variable.assign(tf.stack(numbers))


class Slot:
    """One value of a `PackedState`.

    Args:
        state: The state that holds it.
        name: Its name there.
        number: What was read of it, where it is to stay at that.
    """

    shape = ()

    def __init__(self, state: PackedState, name: str, number: Any = None) -> None:
        self.state, self.name = state, name
        self._number = number

    @property
    def value(self) -> Any:
        """The value as a scalar tensor."""
        return self.state.tensor(self.name, self._number)

    @property
    def dtype(self) -> str:
        """The type that it reads as."""
        return self.state.dtype(self.name)

    def numpy(self) -> Any:
        """Return the value as NumPy has it."""
        return self.value.numpy()

    def assign(self, value: Any) -> None:
        """Give it a new value.

        Args:
            value: A number, a bool, or a scalar tensor.
        """
        self.state.assign({self.name: value})

    def __tf_tensor__(self, dtype: Any = None, name: Any = None) -> Any:
        """Let TensorFlow's functions take it for a tensor."""
        value = self.value
        return value if dtype is None else tf.cast(value, dtype, name=name)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """Let NumPy's functions take it for an array."""
        return np.array(self.numpy(), dtype)

    def __bool__(self) -> bool:
        """Return whether a switch is on, or a number is not zero."""
        return bool(self.numpy())

    def __float__(self) -> float:
        """Return the value as a number."""
        return float(self.numpy())
