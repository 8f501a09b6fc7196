"""`learn_rounding`: learn without labels whether every weight is rounded down or up.

Nearest rounding minimises the error of every weight, not the error of a layer's outputs. AdaRound (Nagel et al. 2020,
arXiv:2004.10568) learns for every value whether it is rounded down or up, so that the outputs of a layer match those
of the float model; BRECQ (Li et al. 2021, arXiv:2102.05426) does so for the layers of a block together; QDrop (Wei et
al. 2022, arXiv:2203.05740) leaves a random part of the activations in float during learning. The result is stored in
the float weights: each gets the exact value of its integer, and the scales stay as they are.
"""

from __future__ import annotations

import pathlib
import time
from collections.abc import Callable
from typing import Any, Literal

import keras
import numpy.typing as npt

from qdq_workbench._fingerprints import fingerprint_of, text_of, unnamed
from qdq_workbench._interrupts import interrupts_held
from qdq_workbench._progress import ProgressFunction, check_functions, shown_while_held
from qdq_workbench.conversion.engine.quantized_model import QuantizedModel, check_quantized
from qdq_workbench.errors import DataError
from qdq_workbench.post_training.rounding.checkpoint import Checkpoint
from qdq_workbench.post_training.rounding.reconstruct import Settings
from qdq_workbench.post_training.rounding.report import RoundingReport
from qdq_workbench.post_training.rounding.run import Run
from qdq_workbench.post_training.rounding.samples import check_calibrated, held_back_of, read_samples
from qdq_workbench.post_training.rounding.settings import check_integer, is_number
from qdq_workbench.post_training.rounding.units import GRANULARITIES

Array = npt.NDArray[Any]
_FEW_BITS = 4  # at 4 bits dropping costs accuracy and time (benchmarks/results/2026-11-23-rounding.md)


def learn_rounding(
    q_model: QuantizedModel,
    data: Any,
    *,
    granularity: Literal["layer", "block", "model"] = "block",
    steps: int = 1000,
    batch_size: int = 32,
    reference: keras.Model | None = None,
    biases: bool = True,
    drop: float | None = None,
    learning_rate: float = 1e-2,
    penalty: float = 20.0,
    seed: int = 0,
    checkpoint: str | pathlib.Path | None = None,
    progress: ProgressFunction | None = None,
    stop: Callable[[], bool] | None = None,
    verbose: bool = True,
) -> RoundingReport:
    """Learn for every quantized weight of a model whether it is rounded down or up; labels are not needed.

    The layers are learned unit by unit in computing order. Each unit reads the outputs of the quantized part in front
    of it and learns to match the outputs of the float model. Each weight gets the value of its integer, so training,
    export and verification work as before. Scales, zero points and the plan do not change. A unit whose learned
    rounding is no better on held-out samples keeps nearest rounding. Positions that the mask of an output leaves out,
    such as padding, do not count.

    Use it after `calibrate`, at 4 bits also after `clip_weights`, with the unclipped float model as `reference`. Do
    not combine it with `correct_biases`, which shifts the outputs of the float model; biases are learned here.

    Args:
        q_model: A calibrated model made by `quantize_model`; its weights change in place, unit by unit. Ctrl-C or an
            error puts all of them back.
        data: Samples as for `calibrate`, some hundreds to thousands; labels are ignored. All of them are kept in
            memory, and the tensors between two units: up to 2 GiB, more in temporary files.
        granularity: The layers that are learned together: "layer", "block" (residual blocks; single layers elsewhere),
            or "model". Blocks of more than 16 layers are learned layer by layer.
        steps: Steps of the optimizer per unit, at least 1.
        batch_size: Samples per step, at least 1.
        reference: The float model to match, with the same layers; None for the float model of `q_model`. Give the
            original one if weights were clipped before.
        biases: Whether to learn the biases of these layers too.
        drop: The probability, 0 to 1, that an activation stays unquantized while learning; None for 0.5 where
            activations have fewer than 4 bits, else 0.
        learning_rate: The learning rate of Adam, above 0.
        penalty: Weight of the regularizer that drives every value to one of its two roundings, above 0.
        seed: Seed of the order of the samples and of the dropped values. The same seed gives the same result on the
            same machine.
        checkpoint: A file, written after every unit; if it exists, the units in it are not learned again. It belongs
            to one model, data set and settings.
        progress: Called with the number of units done, their total, and the names of the layers.
        stop: Called before every unit; when it returns True, the units done so far keep their rounding and the report
            has `complete=False`.
        verbose: Whether to show a progress bar where there is no `progress`.

    Returns:
        The report: the error of each unit with nearest and with learned rounding, and the weights left out with the
        reason.

    Raises:
        NotQuantizedError: If the model was not made by `quantize_model`.
        UncalibratedError: If activations have no range yet.
        DataError: If the data do not fit or hold NaN, or a setting is out of range.
        SpecError: If `reference` has other layers.
        CheckpointError: If the checkpoint is of another run.
        OutputPathError: If the checkpoint cannot be written.

    Example:
        >>> import numpy as np
        >>> import qdq_workbench as qdq
        >>> keras.utils.set_random_seed(0)
        >>> image = keras.Input((8,), name="image")
        >>> model = keras.Model(image, keras.layers.Dense(4, name="head")(image))
        >>> x = np.random.default_rng(0).normal(size=(64, 8)).astype("float32")
        >>> wished = qdq.QuantizationSpec()
        >>> wished.add("head", quantize_config=qdq.LayerQuantizeConfig(weight={"num_bits": 3}))
        >>> q_model = qdq.quantize_model(model, quantization_spec=wished)
        >>> qdq.calibrate(q_model, x, verbose=False).samples
        64
        >>> report = learn_rounding(q_model, x, steps=200, verbose=False)
        >>> report.units[0].learned_error < report.units[0].nearest_error
        True
    """
    check_functions(progress=progress, stop=stop)
    check_quantized(q_model)
    _check_settings(granularity, steps, batch_size, biases, drop, learning_rate, penalty, seed)
    check_calibrated(q_model)
    began = time.monotonic()
    inputs = read_samples(q_model, data, batch_size, int(seed))
    count = len(inputs[0])
    held_back = held_back_of(count)
    settings = Settings(
        steps=int(steps),
        batch_size=int(batch_size),
        learning_rate=float(learning_rate),
        penalty=float(penalty),
        drop=_default_drop(q_model) if drop is None else float(drop),
        biases=bool(biases),
        seed=int(seed),
    )
    with interrupts_held():
        run = Run(q_model, reference, granularity, settings, inputs, held_back)
        # Before the first unit changes the weights, which the hash covers.
        done = Checkpoint(checkpoint, _fingerprint(q_model, reference, granularity, settings, inputs))
        with shown_while_held(progress, stop, f"Learning the rounding of {q_model.name}", verbose=verbose) as (
            shown,
            stopped,
        ):
            complete = run.learn(done, shown, stopped)
    return RoundingReport(
        model=q_model.name,
        granularity=granularity,
        units=tuple(unit.told for unit in done.units[: run.learned]),
        left_out=run.left_out,
        settings=settings.to_dict(),
        samples=count,
        held_back=held_back,
        seconds=time.monotonic() - began,
        complete=complete,
    )


def _default_drop(q_model: QuantizedModel) -> float:
    bits = [layer.spec.num_bits for layer in q_model.activation_quantizers if layer.quantizer.has_grid]
    return 0.5 if any(number < _FEW_BITS for number in bits) else 0.0


def _fingerprint(
    q_model: QuantizedModel, reference: keras.Model | None, granularity: str, settings: Settings, inputs: list[Array]
) -> str:
    """Return a hash of everything that the result depends on."""
    plan = q_model.plan
    placements = [placement.to_dict() for placement in plan.placements]
    target = plan.target_object.to_dict()
    told = text_of(placements, unnamed(plan.graph), target, granularity, settings.to_dict())
    return fingerprint_of(told, (*q_model.variables, *(() if reference is None else reference.variables)), inputs)


def _check_settings(
    granularity: Any,
    steps: Any,
    batch_size: Any,
    biases: Any,
    drop: Any,
    learning_rate: Any,
    penalty: Any,
    seed: Any,
) -> None:
    if granularity not in GRANULARITIES:
        raise DataError(f'granularity must be "layer", "block" or "model". Received: granularity={granularity!r}')
    for name, value, least in (("steps", steps, 1), ("batch_size", batch_size, 1), ("seed", seed, 0)):
        check_integer(name, value, least)
    if not isinstance(biases, bool):
        raise DataError(f"biases must be True or False. Received: biases={biases!r}")
    for name, value in (("learning_rate", learning_rate), ("penalty", penalty)):
        if not is_number(value) or not 0.0 < value < float("inf"):
            raise DataError(f"{name} must be a number above 0. Received: {name}={value!r}")
    if drop is not None and (not is_number(drop) or not 0.0 <= drop <= 1.0):
        raise DataError(f"drop must be a probability from 0 to 1, or None. Received: drop={drop!r}")
