"""Computing a layer with other values in place of some of its weights, without changing the layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import keras

if TYPE_CHECKING:
    from typing_extensions import Self


class WeightSubstitution(keras.StatelessScope):
    """A scope in which reads of some variables return other tensors; everything else works as outside of it.

    A plain `StatelessScope` intercepts assignments and losses: batch normalization would not learn, dropout would
    repeat its values, regularizers would vanish. This one passes assignments on, to the enclosing scope or to the
    variable, and losses to the enclosing scope. Without one it keeps the losses in `losses`, because Keras does not
    say which layer a loss belongs to: the caller adds them to its own.

    Args:
        values: Tensors by variable; shapes and dtypes equal the variables'.

    Example:
        >>> layer = keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")
        >>> layer.build((None, 2))
        >>> with WeightSubstitution([(layer.kernel, keras.ops.zeros((2, 1)))]):
        ...     inside = layer.call(keras.ops.ones((1, 2)))
        >>> float(inside[0, 0]), float(layer.call(keras.ops.ones((1, 2)))[0, 0])
        (0.0, 2.0)
    """

    def __init__(self, values: list[tuple[Any, Any]]) -> None:
        super().__init__(values, initialize_variables=False)

    def __enter__(self) -> Self:
        """Enter the scope; losses are collected unless an enclosing scope discards them."""
        super().__enter__()
        # Keras hands a loss to the innermost scope only, and to none that does not collect losses.
        self.collect_losses = self.original_scope is None or self.original_scope.collect_losses
        return self

    def get_current_value(self, variable: Any) -> Any:
        """Return the substitute of a variable, or its value in the enclosing scope."""
        value = super().get_current_value(variable)
        # Keras asks the innermost scope only; `stateless_call` opens one around this.
        if value is None and self.original_scope is not None:
            value = self.original_scope.get_current_value(variable)
        return value

    def add_update(self, update: tuple[Any, Any]) -> None:
        """Pass an assignment on to the enclosing scope, or execute it."""
        variable, value = update
        if self.original_scope is not None:
            self.original_scope.add_update(update)
        else:
            variable._direct_assign(value)  # noqa: SLF001 - `assign` would call this method again

    def add_loss(self, loss: Any) -> None:
        """Pass a loss on to the enclosing scope, or collect it in `losses`, for the caller to add."""
        if self.original_scope is not None:
            self.original_scope.add_loss(loss)
        else:
            super().add_loss(loss)
