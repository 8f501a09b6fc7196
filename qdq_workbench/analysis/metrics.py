"""Metrics of the difference between the outputs of a quantized model and of its float model, with unit and direction.

With the float outputs r and the quantized outputs q, over all samples of the data:

    sqnr     = 10 log10( sum r^2 / sum (r - q)^2 )                      dB, higher is better, inf for equal outputs
    mse      = mean (r - q)^2                                           squared units of the output, lower is better
    kl       = mean over samples of sum_c p_r(c) ln( p_r(c) / p_q(c) )  nats, lower is better, 0 for equal outputs
    cosine   = mean over samples of  r.q / (|r| |q|)                    +1 = same direction, higher is better
    accuracy = share of predictions that equal the labels               0 to 1, higher is better; needs labels

p are the outputs themselves if every row of the float outputs is a probability distribution, else their softmax.
The metric of a model with several outputs is that of its worst output. Outputs are compared as the exported file
returns them, which has no masks: padded positions of sequences count. A function as metric can leave them out by the
labels.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from qdq_workbench.errors import DataError, nearest_names

Array = npt.NDArray[Any]
OutputFunction = Callable[[Array, Array, Any], float]

# Keeps the logarithms of the divergence finite where a probability is 0.
_SMALLEST_PROBABILITY = 1e-12


@dataclasses.dataclass(frozen=True)
class Metric:
    """A measure of a quantized model's outputs against the float model's.

    Args:
        name: Its name in reports.
        unit: Its unit, such as "dB"; empty for a pure number.
        function: `function(reference, outputs, labels)` of the float outputs, the quantized outputs (arrays, sample
            first) and the labels or None.
        higher_is_better: Whether a higher value is better.
        needs_labels: Whether it needs labels.
        joint: Whether `function` takes the lists of all outputs of a model with several outputs, instead of one output
            per call.
        source: The source of the definition.

    Example:
        >>> largest = Metric("largest error", "", lambda r, q, _: abs(r - q).max(), higher_is_better=False)
        >>> float(largest.measure([np.zeros(2)], [np.array([0.5, -2.0])]))
        2.0
    """

    name: str
    unit: str
    function: OutputFunction
    higher_is_better: bool = True
    needs_labels: bool = False
    joint: bool = False
    source: str = ""

    def check_labels(self, labels: Sequence[Array] | None) -> None:
        """Check that there are labels, if the metric needs them.

        Args:
            labels: One array per output; None for data without labels.

        Raises:
            DataError: If the metric needs labels and there are none.
        """
        if self.needs_labels and labels is None:
            raise DataError(
                f"The metric {self.name!r} compares with labels: pass data as (inputs, labels), or as batches of "
                "(inputs, labels). Received: data without labels"
            )

    def measure(
        self, reference: Sequence[Array], outputs: Sequence[Array], labels: Sequence[Array] | None = None
    ) -> float:
        """Return the value over all samples.

        Args:
            reference: The float model's outputs, one array per output.
            outputs: The quantized model's outputs.
            labels: One array per output; None for data without labels.

        Raises:
            DataError: If the metric needs labels and there are none, the labels do not fit the outputs, or its
                function does not return a number.
        """
        self.check_labels(labels)
        if self.joint:
            first: Any = [_only(values) for values in (reference, outputs, labels)]
            return number(self.function(*first), f"The metric {self.name!r}")
        targets: Sequence[Any] = [None] * len(outputs) if labels is None else labels
        if len(targets) != len(outputs):
            raise DataError(
                f"The model has {len(outputs)} outputs, so there must be labels for each. Received: labels for "
                f"{len(targets)}"
            )
        of_each = zip(reference, outputs, targets, strict=True)
        values = [number(self.function(*each), f"The metric {self.name!r}") for each in of_each]
        # With a NaN among the values, Python's min and max depend on their order.
        if np.isnan(values).any():
            return float("nan")
        return min(values) if self.higher_is_better else max(values)


def sqnr(reference: Array, outputs: Array, labels: Any = None) -> float:  # noqa: ARG001 - as every metric
    """Return the signal to quantization noise ratio in dB; higher is better, infinite for equal outputs.

    Source: B. Widrow and I. Kollar, "Quantization Noise", Cambridge University Press, 2008.

    Example:
        >>> sqnr(np.array([3.0, 4.0]), np.array([3.0, 3.5]))
        20.0
    """
    wide = reference.astype(np.float64)
    noise = float(np.sum((wide - outputs) ** 2))
    signal = float(np.sum(wide**2))
    # First, so that two outputs of zeros count as equal, not as a signal of 0.
    if noise == 0.0:
        return float("inf")
    return float("-inf") if signal == 0.0 else 10.0 * float(np.log10(signal / noise))


def mse(reference: Array, outputs: Array, labels: Any = None) -> float:  # noqa: ARG001 - as every metric
    """Return the mean squared error, in the squared units of the output; lower is better.

    Example:
        >>> mse(np.array([1.0, 2.0]), np.array([1.0, 4.0]))
        2.0
    """
    return float(np.mean((reference.astype(np.float64) - outputs) ** 2))


def kl(reference: Array, outputs: Array, labels: Any = None) -> float:  # noqa: ARG001 - as every metric
    """Return the Kullback-Leibler divergence of the quantized from the float distribution, in nats per sample.

    Lower is better, 0 for equal outputs. The outputs are probabilities, or else logits, classes last. Source: S.
    Kullback and R. A. Leibler, "On Information and Sufficiency", Annals of Mathematical Statistics 22, 1951.

    Example:
        >>> round(kl(np.array([[0.5, 0.5]]), np.array([[0.25, 0.75]])), 4)
        0.1438
    """
    given = _are_probabilities(reference)
    p, q = (_probabilities(values, given) for values in (reference, outputs))
    return float(np.mean(np.sum(p * (np.log(p) - np.log(q)), axis=-1)))


def cosine(reference: Array, outputs: Array, labels: Any = None) -> float:  # noqa: ARG001 - as every metric
    """Return the mean cosine similarity of the samples' outputs, sample first: +1 = same direction; higher is better.

    Example:
        >>> cosine(np.array([[1.0, 0.0]]), np.array([[1.0, 1.0]])).__round__(4)
        0.7071
    """
    r, q = (values.reshape(len(values), -1).astype(np.float64) for values in (reference, outputs))
    lengths = np.linalg.norm(r, axis=1) * np.linalg.norm(q, axis=1)
    both_zero = np.logical_and(~r.any(axis=1), ~q.any(axis=1))
    # A zero vector has length 0 and product 0: its cosine becomes 0 without a division by zero.
    cosines = np.sum(r * q, axis=1) / np.where(lengths == 0.0, 1.0, lengths)
    return float(np.mean(np.where(both_zero, 1.0, cosines)))


def accuracy(reference: Array, outputs: Array, labels: Any = None) -> float:
    """Return the share of predictions that equal the labels: top-1, from 0 to 1; higher is better.

    Args:
        reference: Float outputs. One score per sample is a binary prediction: its threshold is 0.5 if all float
            outputs are from 0 to 1, else 0.
        outputs: Quantized outputs, classes last.
        labels: Class numbers, or one-hot rows.

    Raises:
        DataError: If the labels do not fit the outputs, or are not whole numbers.

    Example:
        >>> scores = np.array([[0.1, 0.9], [0.8, 0.2]])
        >>> accuracy(scores, scores, np.array([1, 1]))
        0.5
    """
    wanted = np.asarray(labels)
    if outputs.ndim < 2 or outputs.shape[-1] == 1:
        # Judged by the float outputs, so that all placements have the same threshold.
        is_probability = bool((reference >= 0).all() and (reference <= 1).all())
        predicted = outputs.reshape(len(outputs), -1) > (0.5 if is_probability else 0.0)
        wanted = wanted.reshape(len(wanted), -1) if wanted.ndim else wanted
    else:
        predicted = np.argmax(outputs, axis=-1)
        if wanted.shape == outputs.shape:
            wanted = np.argmax(wanted, axis=-1)
        # A column of class numbers, as `keras.datasets.cifar10` has.
        elif wanted.shape == (*predicted.shape, 1):
            wanted = wanted[..., 0]
    if wanted.shape != predicted.shape:
        raise DataError(
            f"The labels do not fit the outputs: expected class numbers of shape {predicted.shape}, or one-hot rows of "
            f"shape {outputs.shape}. Received: labels of shape {np.shape(labels)}"
        )
    if wanted.dtype.kind == "f" and not np.array_equal(wanted, np.round(wanted)):
        raise DataError(
            "Accuracy compares class numbers, and these labels are not whole numbers. For a regression choose another "
            "metric: 'sqnr' compares with the float model, a function of your own with the labels. "
            f"Received: labels such as {wanted[wanted != np.round(wanted)].flat[0]:.4g}"
        )
    return float(np.mean(predicted == wanted))


METRICS = {
    metric.name: metric
    for metric in (
        Metric("sqnr", "dB", function=sqnr, source="Widrow and Kollar, Quantization Noise, 2008"),
        Metric("mse", "", function=mse, higher_is_better=False),
        Metric(
            "kl",
            "nats",
            function=kl,
            higher_is_better=False,
            source="Kullback and Leibler, On Information and Sufficiency, 1951",
        ),
        Metric("cosine", "", function=cosine),
        Metric("accuracy", "", function=accuracy, needs_labels=True),
    )
}


def get_metric(metric: Any) -> Metric:
    """Return a metric by name, or make one of a function of float outputs, quantized outputs and perhaps labels.

    Higher values of a function are better, unless it has an attribute `higher_is_better` that is False.

    Example:
        >>> get_metric("kl").unit
        'nats'
    """
    if isinstance(metric, Metric):
        return metric
    if isinstance(metric, str) and metric in METRICS:
        return METRICS[metric]
    if isinstance(metric, str) or not callable(metric):
        hint = nearest_names(metric, METRICS) if isinstance(metric, str) else ""
        raise DataError(
            f"A metric is one of {', '.join(METRICS)}, a Metric, or a function of the float and the quantized outputs. "
            f"{hint} Received: metric={metric!r}"
        )
    if not any(_takes(metric, count) for count in (2, 3)):
        raise DataError(
            "A metric is a function of the float outputs, the quantized outputs and, if it takes a third argument, the "
            "labels; a function of a model is the argument evaluate of search. "
            f"Received: metric={metric!r}, which takes another number of arguments"
        )
    # An optional third argument need not be the labels; it may be a factor.
    with_labels = _positional_count(metric) >= 3
    function: OutputFunction = metric if with_labels else lambda reference, outputs, _labels: metric(reference, outputs)
    return Metric(
        name=getattr(metric, "__qualname__", type(metric).__qualname__),
        unit=str(getattr(metric, "unit", "")),
        higher_is_better=bool(getattr(metric, "higher_is_better", True)),
        function=function,
        needs_labels=with_labels,
        joint=True,
    )


def number(value: Any, source: str) -> float:
    """Return the result of a user's function as a float.

    Args:
        value: The result.
        source: The name of the function in the message, such as "The metric 'mine'".

    Raises:
        DataError: If it is not one number.

    Example:
        >>> number(np.float32(0.5), "The metric 'mine'")
        0.5
    """
    try:
        # float() would also take the text "0.5".
        if not isinstance(value, (str, bytes)):
            return float(value)
    except (TypeError, ValueError):
        pass
    shape = f" of shape {tuple(value.shape)}" if hasattr(value, "shape") else ""
    raise DataError(
        f"{source} must return one number, such as float(np.mean(...)). "
        f"Received: {type(value).__name__}{shape} {str(value)[:80]!r}"
    )


def _takes(function: Callable[..., Any], count: int) -> bool:
    """Return whether a function can be called with so many positional arguments; True without a readable signature."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return True
    try:
        signature.bind(*range(count))
    except TypeError:
        return False
    return True


def _positional_count(function: Callable[..., Any]) -> int:
    """Return the number of required positional arguments of a function; 2 if it has no readable signature."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return 2
    return sum(item.kind in kinds and item.default is inspect.Parameter.empty for item in parameters)


def _only(values: Sequence[Array] | None) -> Any:
    """Return the array of a model with one output, the list of a model with several."""
    return values[0] if values is not None and len(values) == 1 else values


def _are_probabilities(values: Array) -> bool:
    return bool((values >= 0).all() and np.allclose(values.sum(axis=-1, dtype=np.float64), 1.0, atol=1e-3))


def _probabilities(values: Array, given: bool) -> Array:
    wide = values.astype(np.float64)
    if not given:
        # The softmax does not depend on the subtracted maximum; without it, large logits overflow.
        wide = np.exp(wide - wide.max(axis=-1, keepdims=True))
        wide /= wide.sum(axis=-1, keepdims=True)
    return np.maximum(wide, _SMALLEST_PROBABILITY)
