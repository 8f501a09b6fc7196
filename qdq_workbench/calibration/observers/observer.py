"""The base class of the observers, and the registry of the calibration methods."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from qdq_workbench._registry import Registry
from qdq_workbench.errors import DataError
from qdq_workbench.spec.quantizer_spec import QuantizerSpec


class Observer:
    """Base class of the observers: reads the batches of one tensor in one pass.

    Subclasses update their statistics in `observe` and compute the range in `result`. Those that also implement
    `state` and `absorb` can be saved and merged, so that calibration can run on parts of the data.

    Args:
        tensor: Name of the tensor, for error messages.
    """

    #: The grid that the range is for; methods that minimize the error of the quantized values need it.
    spec = QuantizerSpec(signed=False, symmetric=False)

    def __init__(self, tensor: str) -> None:
        self.tensor = tensor
        self.batches = 0

    def update(self, array: npt.ArrayLike) -> None:
        """Read one batch as float32; raise DataError, without any change, if it is empty or holds NaN or infinity."""
        with np.errstate(over="ignore"):  # values too large for float32 become infinity, and raise an error below
            values = np.asarray(array, np.float32)
        if values.size == 0:
            raise DataError(
                f"A batch of tensor {self.tensor!r} is empty; feed at least one sample. Received: shape={values.shape}"
            )
        low, high = float(values.min()), float(values.max())
        self.check(low, high)
        self.observe(values, low, high)
        self.batches += 1

    def check(self, low: float, high: float) -> None:
        """Raise DataError if the lowest or highest value of a batch is NaN or infinite."""
        if not np.isfinite(low) or not np.isfinite(high):
            what = "NaN" if np.isnan(low) or np.isnan(high) else "infinity"
            raise DataError(
                f"Tensor {self.tensor!r} holds {what} on calibration batch {self.batches}; drop such "
                f"samples, or look for the layer that makes it. Received: minimum={low}, maximum={high}"
            )

    def range(self) -> tuple[float, float]:
        """Return the range, its lowest and highest value, from the batches read so far.

        Raises:
            DataError: If no batch has been read.
        """
        if self.batches == 0:
            raise DataError(
                f"Tensor {self.tensor!r} has no range: no calibration batch was read. Feed at least one. "
                "Received: 0 batches"
            )
        return self.result()

    def observe(self, values: npt.NDArray[Any], low: float, high: float) -> None:
        """Update the statistics with one batch.

        Args:
            values: The batch: finite float32 values of any shape, at least one.
            low: Its lowest value.
            high: Its highest value.
        """
        raise NotImplementedError(f"{type(self).__name__} must say in `observe` what it keeps of a batch.")

    def result(self) -> tuple[float, float]:
        """Return the range after at least one batch."""
        raise NotImplementedError(f"{type(self).__name__} must say in `result` what range it found.")

    def state(self) -> dict[str, Any]:
        """Return the statistics of all batches as a JSON-compatible dictionary."""
        raise NotImplementedError(f"{type(self).__name__} must return in `state` what it has seen.")

    def absorb(self, state: dict[str, Any]) -> None:
        """Merge the `state` of another observer of this method, as if its batches had been read next."""
        raise NotImplementedError(f"{type(self).__name__} must add in `absorb` what another one has seen.")


OBSERVERS: Registry[type[Observer]] = Registry("calibration method", DataError)

ObserverClass = TypeVar("ObserverClass", bound=type[Observer])


def register_observer(method: str) -> Callable[[ObserverClass], ObserverClass]:
    """Return a class decorator that registers an observer under the name that users pass as `method=`."""

    def register(observer: ObserverClass) -> ObserverClass:
        OBSERVERS.add(method, observer)
        return observer

    return register


def make_observer(method: str, tensor: str, spec: QuantizerSpec | None = None, **settings: Any) -> Observer:
    """Return a new observer of a calibration method; `spec` is the grid, None for unsigned, asymmetric, 8 bits.

    Example:
        >>> observer = make_observer("minmax", "relu1")
        >>> observer.update([0.0, 2.0])
        >>> observer.update([-1.0, 1.0])
        >>> observer.range()
        (-1.0, 2.0)
    """
    observer = OBSERVERS.get(method)
    known = [name for name in inspect.signature(observer).parameters if name != "tensor"]
    unknown = sorted(set(settings) - set(known))
    if unknown:
        raise DataError(
            f"Calibration method {method!r} has no setting {unknown[0]!r}; "
            f"it takes {', '.join(known) or 'none'}. Received: settings={settings!r}"
        )
    made = observer(tensor, **settings)
    if spec is not None:
        made.spec = spec
    return made


def observer_names() -> list[str]:
    """Return the names of the calibration methods, sorted.

    Example:
        >>> "percentile" in observer_names()
        True
    """
    return OBSERVERS.names()
