"""`keras_post_training_quantization`: MCT's main function, built from this library's functions."""

from __future__ import annotations

import dataclasses
import itertools
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

import keras
import numpy as np
import numpy.typing as npt

from qdq_workbench import (
    CalibrationResult,
    FrameworkInfo,
    PlacementPlan,
    QuantizationMethod,
    QuantizedModel,
    Target,
    apply_calibration,
    build_graph,
    calibrate,
    clip_weights,
    codebook_weights,
    correct_biases,
    equalize_scales,
    fold_batch_norm,
    get_target,
    learn_rounding,
    plan_placement,
    quantize_model,
)
from qdq_workbench.errors import DataError, SpecError
from qdq_workbench.mct.decisions import adapted_plan
from qdq_workbench.mct.default_keras_info import DEFAULT_KERAS_INFO
from qdq_workbench.mct.gradient_ptq import GradientPTQConfig, checked_n_iter
from qdq_workbench.mct.inserted import knowing
from qdq_workbench.mct.quantization_config import (
    CALIBRATION_METHODS,
    DEFAULTCONFIG,
    QuantizationConfig,
    QuantizationErrorMethod,
)
from qdq_workbench.post_training.shift_negative import Inserted, shifted

_WIDEST = 16


@dataclasses.dataclass(frozen=True)
class UserInformation:
    """The record of a `keras_post_training_quantization`.

    Args:
        plan: The placement plan of the Q/DQ pairs.
        calibration: The ranges of all activation tensors; None if no activation is quantized.
        steps: The steps applied to the model, in order, one sentence each.
        input_scale: The factor for scaling the inputs: always 1.
    """

    plan: PlacementPlan
    calibration: CalibrationResult | None
    steps: tuple[str, ...]
    input_scale: float = 1.0


def keras_post_training_quantization(
    in_model: keras.Model,
    representative_data_gen: Callable[[], Any],
    n_iter: int = 500,
    quant_config: QuantizationConfig = DEFAULTCONFIG,
    fw_info: FrameworkInfo = DEFAULT_KERAS_INFO,
    network_editor: Collection[Any] = (),
    gptq_config: GradientPTQConfig | None = None,
    analyze_similarity: bool = False,
    *,
    target: str | Target = "onnxruntime",
) -> tuple[QuantizedModel, UserInformation]:
    """Quantize a trained model without training, with the interface of MCT's function of this name.

    The steps, each only if `quant_config` enables it: fold batch normalizations, equalize channels, shift negative
    activations, clip weights at the thresholds of the error method (or cluster them), correct biases, calibrate
    activations. With a `gptq_config` the rounding of the weights is then learned; if it also trains the biases, they
    are not corrected before.

    Args:
        in_model: A built functional or sequential Keras 3 model; it is only read.
        representative_data_gen: Called without arguments, returns the inputs of one batch as a list of arrays, one per
            input of the model; or a generator function that yields such lists.
        n_iter: The number of batches to read. Each step that needs data reads them again.
        quant_config: Methods and corrections.
        fw_info: The layers to quantize, the channel axes of their kernels, and the known ranges of activations.
        network_editor: Not available (use a QuantizationSpec to change single layers); must be empty.
        gptq_config: Settings for learning the rounding of the weights; None for rounding to nearest.
        analyze_similarity: Not available; must be False. See `qdq_workbench.sensitivity`.
        target: The inference runtime to place pairs for.

    Returns:
        The quantized model, calibrated and not compiled, and the record of the steps.

    Raises:
        SpecError: If an argument has the wrong type, or requests something that is not available.
        DataError: If the data do not fit the model, or `representative_data_gen` is not callable.
        UnsupportedModelError: If the model's graph cannot be read.

    Warns:
        UserWarning: If a layer or an activation is not in `fw_info`, and so stays in float.

    Example:
        >>> import numpy as np
        >>> image = keras.Input((8, 8, 3), name="image")
        >>> model = keras.Model(image, keras.layers.Conv2D(4, 3, activation="relu", name="conv")(image))
        >>> batch = [np.random.default_rng(0).random((4, 8, 8, 3))]
        >>> quantized_model, info = keras_post_training_quantization(model, lambda: batch, n_iter=2)
        >>> [tensor.name for tensor in info.plan.tensors], info.calibration.samples
        (['image', 'conv', 'conv/kernel'], 8)
    """
    _check_arguments(quant_config, fw_info, network_editor, gptq_config, analyze_similarity)
    data = _Data(representative_data_gen, n_iter)
    return _Run(quant_config, fw_info, get_target(target), data, gptq_config).run(in_model)


class _Data:
    """The representative data, which can be read several times."""

    def __init__(self, source: Any, n_iter: int) -> None:
        if not callable(source):
            raise DataError(
                "representative_data_gen must be a function that returns a batch, a list of one array per input, or a "
                f"generator function that yields batches. Received: {type(source).__name__}"
            )
        self._source = source
        self._n_iter = checked_n_iter(n_iter)

    def of(self, source: Any) -> _Data:
        """Return the same number of batches from another function."""
        return _Data(source, self._n_iter)

    def __call__(self) -> Iterator[list[Any]]:
        first = self._source()
        if isinstance(first, Iterator):
            yield from map(_inputs, itertools.islice(first, self._n_iter))
            return
        yield _inputs(first)
        for _ in range(self._n_iter - 1):
            yield _inputs(self._source())


def _inputs(batch: Any) -> list[Any]:
    """Return a batch as the list of the model's inputs."""
    if not isinstance(batch, Iterable) or isinstance(batch, (str, bytes, Mapping)):
        raise DataError(
            "representative_data_gen must return the inputs of one batch as a list of arrays, one per input of the "
            f"model ([images]), or yield such lists. Received: a batch that is {type(batch).__name__}"
        )
    return list(batch)


class _Run:
    def __init__(
        self,
        config: QuantizationConfig,
        info: FrameworkInfo,
        target: Target,
        data: _Data,
        learning: GradientPTQConfig | None,
    ) -> None:
        self._config = config
        self._learning = learning
        self._info = info
        self._target = target
        self._data = data
        self._steps: list[str] = []
        self._inserted: Mapping[str, Inserted] = {}

    def run(self, source: keras.Model) -> tuple[QuantizedModel, UserInformation]:
        model = self._equalized_or_folded(source)
        # The reference for learning: the steps so far do not change what the model computes, those below do.
        original = model = self._with_shifts(model)
        model = self._weights_chosen(model)
        corrects = self._config.weights_bias_correction and self._config.enable_weights_quantization
        # Learning would move the corrected biases again.
        if corrects and not (self._learning and self._learning.train_bias):
            model = self._corrected(model, original)
        plan = self._plan(model)
        q_model = quantize_model(model, plan=plan)
        calibration = self._calibrated(q_model)
        if self._learning is not None:
            self._learn(q_model, original, self._learning)
        return q_model, UserInformation(plan, calibration, tuple(self._steps))

    def _corrected(self, model: keras.Model, original: keras.Model) -> keras.Model:
        """Return the model with biases that take back the shift of its chosen and rounded weights."""
        config = self._config
        if config.weights_quantization_method is QuantizationMethod.KMEANS:
            # Its levels stay in float: a grid of 16 bits rounds them by next to nothing.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # the user's configuration has warned already
                config = dataclasses.replace(
                    config, weights_quantization_method=QuantizationMethod.SYMMETRIC, weights_n_bits=_WIDEST
                )
        plan = self._plan(model, quiet=True, config=config)
        corrected = correct_biases(model, self._data, plan=plan, reference=original)
        before, after = _biases(model), _biases(corrected)
        if len(before) != len(after) or not all(map(np.array_equal, before, after)):
            why = "choice and rounding" if model is not original else "rounding"
            self._steps.append(f"biases corrected for the {why} of the weights")
        return corrected

    def _learn(self, q_model: QuantizedModel, original: keras.Model, learning: GradientPTQConfig) -> None:
        """Learn the rounding of the weights, with the float model before clipping as the reference."""
        source = learning.representative_data_gen
        data = self._data if source is None else self._data.of(source)
        report = learn_rounding(
            q_model, data, steps=learning.n_iter, biases=learning.train_bias, reference=original, verbose=False
        )
        better = sum(unit.kept for unit in report.units)
        self._steps.append(
            f"rounding learned in {learning.n_iter} steps, better in {better} of {len(report.units)} blocks"
        )

    def _equalized_or_folded(self, model: keras.Model) -> keras.Model:
        if not self._config.batch_normalization_folding:
            return model
        equalize = self._config.activation_channel_equalization
        folded = equalize_scales(model, "moments") if equalize else fold_batch_norm(model)
        if len(build_graph(folded).nodes) < len(build_graph(model).nodes):  # else there are no moments either
            more = ", channels equalized by the moments they predict" if equalize else ""
            self._steps.append(f"batch normalizations folded{more}")
        return folded

    def _with_shifts(self, model: keras.Model) -> keras.Model:
        if not self._config.shift_negative_activation_correction:
            return model
        probe = quantize_model(model, plan=self._plan(model, quiet=True))
        ranges = calibrate(probe, self._data, verbose=False).ranges
        ratio = self._config.shift_negative_ratio
        other, inserted = shifted(model, ratio, lambda tensor: ranges.get(tensor, (0.0, 0.0))[1])
        if not inserted:
            return model
        self._inserted, self._info = inserted, knowing(self._info, inserted)
        self._steps.append("activations with a short negative side shifted")
        return other

    def _weights_chosen(self, model: keras.Model) -> keras.Model:
        """Return the model with its weights clipped or clustered, as configured."""
        config = self._config
        if not config.enable_weights_quantization:
            return model
        # The weights are still to be clustered, so this plan has to name them as quantized.
        plan = self._plan(model, quiet=True, codebook=False)
        if config.uses_codebook:
            method = "kmeans" if config.weights_quantization_method is QuantizationMethod.KMEANS else "lut"
            self._steps.append(f"weights clustered ({method}, {config.weights_n_bits} bits)")
            return codebook_weights(model, config.weights_n_bits, method, plan=plan)
        if config.weights_error_method is QuantizationErrorMethod.NOCLIPPING:
            return model
        method = CALIBRATION_METHODS[config.weights_error_method]
        self._steps.append(f"weights clipped at the thresholds of least error ({method})")
        return clip_weights(model, method, plan=plan, p=config.l_p_value)

    def _plan(
        self,
        model: keras.Model,
        *,
        quiet: bool = False,
        codebook: bool = True,
        config: QuantizationConfig | None = None,
    ) -> PlacementPlan:
        """Return the plan for the model at its current stage; `quiet` suppresses warnings of layers in float."""
        with warnings.catch_warnings():
            if quiet:
                warnings.simplefilter("ignore", UserWarning)
            plan = plan_placement(model, framework_info=self._info, target=self._target)
        config = self._config if config is None else config
        baked = codebook and config.weights_quantization_method is QuantizationMethod.KMEANS
        return adapted_plan(plan, config, baked=baked, inserted=self._inserted)

    def _calibrated(self, q_model: QuantizedModel) -> CalibrationResult | None:
        if not q_model.activation_quantizers:
            return None
        config = self._config
        method = CALIBRATION_METHODS[config.activation_error_method]
        settings: dict[str, Any] = {"p": config.l_p_value} if method == "lp" else {}
        rounding = "scale" if config.activation_quantization_method is QuantizationMethod.POWER_OF_TWO else False
        self._steps.append(f"activations calibrated ({method}{', scales of powers of two' if rounding else ''})")
        found = calibrate(q_model, self._data, method, power_of_two=rounding, verbose=False, **settings)
        return self._widened(q_model, found)

    def _widened(self, q_model: QuantizedModel, found: CalibrationResult) -> CalibrationResult:
        """Widen ranges whose largest magnitude is below `min_threshold` to that threshold."""
        least = self._config.min_threshold
        narrow = {name: ends for name, ends in found.ranges.items() if max(-ends[0], ends[1]) < least}
        if not narrow:
            return found
        wider = {name: (-least if low < 0.0 else 0.0, least) for name, (low, _) in narrow.items()}
        widened = dataclasses.replace(found, ranges={**found.ranges, **wider})
        apply_calibration(q_model, widened)
        self._steps.append(f"{len(wider)} ranges widened to the lowest threshold")
        return widened


def _biases(model: keras.Model) -> list[npt.NDArray[np.float32]]:
    """Return the biases of a model that are not zero."""
    found = [np.asarray(variable) for variable in model.variables if variable.name == "bias"]
    return [bias for bias in found if bias.any()]


_INSTEAD = {
    "network_editor": "To change single layers, call quantize_model with a QuantizationSpec: spec.add('conv1', "
    "quantize_config=LayerQuantizeConfig(weight={'num_bits': 4})).",
    "analyze_similarity": "The signal to noise of every layer, in dB, is sensitivity(quantized_model, data).plot().",
}


def _check_arguments(config: Any, info: Any, network_editor: Any, gptq_config: Any, analyze_similarity: bool) -> None:
    if not isinstance(config, QuantizationConfig):
        raise SpecError(f"quant_config must be a QuantizationConfig. Received: {type(config).__name__}")
    if not isinstance(info, FrameworkInfo):
        raise SpecError(f"fw_info must be a FrameworkInfo. Received: {type(info).__name__}")
    if gptq_config is not None and not isinstance(gptq_config, GradientPTQConfig):
        raise SpecError(
            "gptq_config must be a qdq_workbench.mct.GradientPTQConfig, or None. "
            f"Received: {type(gptq_config).__name__}"
        )
    if gptq_config is not None and (config.uses_codebook or not config.enable_weights_quantization):
        raise SpecError(
            "gptq_config learns to which integer of its grid each weight is rounded, so weights must be quantized, and "
            "not clustered (KMEANS, LUT_QUANTIZER). Leave gptq_config out, or choose another method. "
            f"Received: enable_weights_quantization={config.enable_weights_quantization}, "
            f"weights_quantization_method={config.weights_quantization_method}"
        )
    given = {"network_editor": network_editor, "analyze_similarity": analyze_similarity}
    unavailable = [name for name, value in given.items() if value]
    if unavailable:
        raise SpecError(
            f"{unavailable[0]} is not available. {_INSTEAD[unavailable[0]]} "
            f"Received: {unavailable[0]}={given[unavailable[0]]!r}"
        )
