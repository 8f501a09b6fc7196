"""`gptq_weights`: round the weights of matrix products by GPTQ, without labels.

GPTQ (Frantar et al. 2022, arXiv:2210.17323) rounds the rows of a matrix one after the other and changes the remaining
rows to compensate for the error that each rounding causes in the products with the layer's inputs. It needs no
gradients: one pass over some hundreds of samples, and the inverse of a matrix of the size of the layer's inputs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from qdq_workbench._interrupts import interrupts_held
from qdq_workbench._progress import ProgressFunction, check_functions, shown_while_held
from qdq_workbench.conversion.engine.quantized_model import QuantizedModel, check_quantized
from qdq_workbench.errors import DataError
from qdq_workbench.post_training.rounding.gptq_run import GPTQRun
from qdq_workbench.post_training.rounding.report import RoundingReport
from qdq_workbench.post_training.rounding.samples import check_calibrated, held_back_of, read_samples
from qdq_workbench.post_training.rounding.settings import check_integer, is_number


def gptq_weights(
    q_model: QuantizedModel,
    data: Any,
    *,
    damping: float = 0.01,
    activation_order: bool = False,
    batch_size: int = 32,
    seed: int = 0,
    progress: ProgressFunction | None = None,
    stop: Callable[[], bool] | None = None,
    verbose: bool = True,
) -> RoundingReport:
    """Round the kernels of `Dense` and `EinsumDense` layers by GPTQ; labels are not needed.

    The layers are rounded in computing order, each with the inputs that the quantized part in front of it computes.
    Each weight gets the value of its integer, so training, export and verification work as before. Scales, also those
    of blocks, zero points and the plan do not change; if a scale is computed from the range of the weights, the ends
    of that range keep their values. A layer whose rounding is no better on held-out samples keeps nearest rounding.
    Positions that a mask leaves out, such as padding, do not count for a layer that supports masking.

    `learn_rounding` is slower and rounds convolutions too: it learns by gradient descent to match the outputs of whole
    blocks.

    Args:
        q_model: A model made by `quantize_model`, calibrated where it quantizes activations; its weights change in
            place, layer by layer. Ctrl-C or an error puts all of them back.
        data: Samples as for `calibrate`, some hundreds; labels are ignored. All of them are kept in memory, and the
            tensors between two layers: up to 2 GiB, more in temporary files.
        damping: Value added to the diagonal of the Hessian of a layer's inputs, as a share of its mean, above 0.
        activation_order: Whether the rows of the largest inputs are rounded first, while all other rows can still
            compensate for their errors. The order of the stored integers and their scales do not change.
        batch_size: Samples per batch if the data are an array.
        seed: Seed of the order of the samples, which decides the held-out ones.
        progress: Called with the number of layers done, their total, and the path of the layer.
        stop: Called before every layer; when it returns True, the layers done so far keep their rounding and the
            report has `complete=False`.
        verbose: Whether to show a progress bar where there is no `progress`.

    Returns:
        The report: the mean squared error of each layer's products with nearest rounding and with GPTQ, and the
        weights left out with the reason.

    Raises:
        NotQuantizedError: If the model was not made by `quantize_model`.
        UncalibratedError: If activations have no range yet.
        DataError: If the data do not fit or hold NaN, or a setting is out of range.

    Source:
        Frantar et al. 2022, arXiv:2210.17323, section 3.3 and algorithm 1.

    Example:
        >>> import keras, numpy as np
        >>> import qdq_workbench as qdq
        >>> keras.utils.set_random_seed(0)
        >>> image = keras.Input((64,), name="image")
        >>> model = keras.Model(image, keras.layers.Dense(8, name="head")(image))
        >>> mixed = np.random.default_rng(0).normal(size=(256, 8)) @ np.random.default_rng(1).normal(size=(8, 64))
        >>> q_model = qdq.quantize_model(model, "partial", qdq.correction.weights_alone(model), target="onnxruntime")
        >>> report = gptq_weights(q_model, mixed.astype("float32"), verbose=False)
        >>> report.units[0].learned_error < report.units[0].nearest_error / 2
        True
    """
    check_functions(progress=progress, stop=stop)
    check_quantized(q_model)
    _check_settings(damping, activation_order, batch_size, seed)
    check_calibrated(q_model)
    began = time.monotonic()
    inputs = read_samples(q_model, data, int(batch_size), int(seed))
    count = len(inputs[0])
    held_back = held_back_of(count)
    with interrupts_held():
        run = GPTQRun(q_model, inputs, held_back, damping=float(damping), activation_order=activation_order)
        with shown_while_held(progress, stop, f"Rounding the matrices of {q_model.name}", verbose=verbose) as (
            shown,
            stopped,
        ):
            complete = run.round(shown, stopped)
    return RoundingReport(
        model=q_model.name,
        granularity="layer",
        units=tuple(run.told),
        left_out=run.left_out,
        settings={"method": "GPTQ", "damping": float(damping), "activation_order": activation_order, "seed": int(seed)},
        samples=count,
        held_back=held_back,
        seconds=time.monotonic() - began,
        complete=complete,
    )


def _check_settings(damping: Any, activation_order: Any, batch_size: Any, seed: Any) -> None:
    if not is_number(damping) or not 0.0 < damping < float("inf"):
        raise DataError(f"damping must be a number above 0, such as 0.01. Received: damping={damping!r}")
    if not isinstance(activation_order, bool):
        raise DataError(f"activation_order must be True or False. Received: activation_order={activation_order!r}")
    check_integer("batch_size", batch_size, 1)
    check_integer("seed", seed, 0)
