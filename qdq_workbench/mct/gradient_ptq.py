"""MCT's `GradientPTQConfig`: rounding of weights learned after calibration, by `learn_rounding`."""

from __future__ import annotations

import dataclasses
import numbers
from collections.abc import Callable
from typing import Any

from qdq_workbench.errors import DataError, SpecError

_INSTEAD = {
    "optimizer": "Rounding is learned by Adam; the variables of AdaRound are no weights, so an optimizer and its "
    "learning rate do not carry over. learn_rounding(quantized_model, data, learning_rate=...) takes another rate.",
    "loss": "What is minimised is the mean squared difference of each block's outputs from those of the float model.",
    "log_function": "learn_rounding(quantized_model, data, progress=...) reports every block.",
}


@dataclasses.dataclass(frozen=True)
class GradientPTQConfig:
    """Settings for learning the rounding of the weights, with MCT's name and arguments.

    MCT trains the weights by gradients; this library rounds each weight to one of its two neighbouring integers
    (AdaRound, Nagel et al. 2020, arXiv:2004.10568), block by block. Neither needs labels.

    Args:
        n_iter: Steps of the optimizer for every block, at least 1; 1000 is a good value.
        optimizer: Not available; must be None.
        loss: Not available; must be None.
        log_function: Not available; must be None.
        train_bias: Whether the biases of these layers are learned as well.
        representative_data_gen: A function as for `keras_post_training_quantization` that returns the batches to learn
            from; None for the calibration batches.

    Raises:
        SpecError: If an argument has the wrong type or is not available.
        DataError: If `representative_data_gen` is no function.

    Example:
        >>> GradientPTQConfig(200).n_iter
        200
    """

    n_iter: int
    optimizer: Any = None
    loss: Callable[..., Any] | None = None
    log_function: Callable[..., Any] | None = None
    train_bias: bool = True
    representative_data_gen: Callable[[], Any] | None = None

    def __post_init__(self) -> None:
        """Check the arguments."""
        object.__setattr__(self, "n_iter", checked_n_iter(self.n_iter))
        if not isinstance(self.train_bias, bool):
            raise SpecError(f"train_bias must be True or False. Received: train_bias={self.train_bias!r}")
        for name, advice in _INSTEAD.items():
            if getattr(self, name) is not None:
                raise SpecError(
                    f"{name} of a GradientPTQConfig is not available. {advice} Leave it out. "
                    f"Received: {name}={getattr(self, name)!r}"
                )
        if self.representative_data_gen is not None and not callable(self.representative_data_gen):
            raise DataError(
                "representative_data_gen must be a function that returns a batch, a list of one array per input, or "
                f"None. Received: {type(self.representative_data_gen).__name__}"
            )


def checked_n_iter(n_iter: Any) -> int:
    """Return a number of batches as an int; raise SpecError unless it is an integer from 1 on."""
    if isinstance(n_iter, bool) or not isinstance(n_iter, numbers.Integral) or n_iter < 1:
        raise SpecError(f"n_iter must be an integer from 1 on. Received: n_iter={n_iter!r}")
    return int(n_iter)
