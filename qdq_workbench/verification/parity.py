"""Comparison of the numbers of ONNX Runtime and the Keras model, tensor by tensor and from end to end.

Deep networks amplify a single rounding difference, so two correct programs may differ in the output. Exactness is
therefore judged tensor by tensor: every part of the Keras model is fed the file's own dequantized values, and its
integers must then equal the file's within one step. From end to end these single steps propagate, so the tolerance
of an output is measured on the Keras model: its difference when as many values of the *input* are moved by one step
as differ in all quantized tensors together. Where inputs are integers, the first real numbers behind them are moved.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import onnx
import tensorflow as tf

from qdq_workbench._interrupts import safe_point
from qdq_workbench.conversion.engine.cut import cut_model
from qdq_workbench.conversion.engine.deep_models import functional_model
from qdq_workbench.conversion.engine.few_calls import for_few_calls
from qdq_workbench.conversion.engine.float_view import float_view
from qdq_workbench.conversion.engine.quantized_model import QuantizedModel
from qdq_workbench.graph_builder import input_structure
from qdq_workbench.onnx_graph.batches import run_session
from qdq_workbench.onnx_graph.processor import may_saturate
from qdq_workbench.onnx_graph.qdq_graph import QUANTIZE
from qdq_workbench.onnx_graph.sessions import make_session, with_outputs
from qdq_workbench.quantizers import numerics
from qdq_workbench.verification.differences import (
    OutputParity,
    TensorParity,
    apart,
    compare_codes,
    mean_of_numbers,
    passed_with_exact_sums,
    require_fitting,
    top1_agreement,
)
from qdq_workbench.verification.keras_layout import fitting_layouts, zero_paddings
from qdq_workbench.verification.known_errors import KnownError, KnownErrors
from qdq_workbench.verification.moved_inputs import differences_behind, moved_outputs
from qdq_workbench.verification.moved_pairs import pairs_that_reach
from qdq_workbench.verification.own_quantization import moved_by_own_quantization
from qdq_workbench.verification.parts import Arrays, cut_behind, run_parts
from qdq_workbench.verification.saturation import run_exactly
from qdq_workbench.verification.sensitivity import (
    ELSEWHERE,
    FLOAT_TOLERANCE,
    HEADROOM,
    OWN_QUANTIZATION,
    ROUNDED_OUTPUT,
    TOO_FAR,
    moved_by_steps,
)
from qdq_workbench.verification.softmax_steps import moved_by_softmax


class Parity:
    """Compares one file with one model on the same samples.

    Args:
        proto: The file.
        q_model: The Keras model, planned for the file's target.
        inputs: Samples per input name.
        given: The integers that the parts of the file are fed, by pair; None for its own.
    """

    def __init__(
        self, proto: onnx.ModelProto, q_model: QuantizedModel, inputs: Arrays, given: Arrays | None = None
    ) -> None:
        self._proto = proto
        self._given = given
        self._q_model = q_model
        self._inputs = dict(inputs)
        self._known_errors = KnownErrors(proto, inputs)
        # Nothing is folded: the reference is the Keras model as it computes, normalizations included.
        self._cut = cut_model(q_model, fold=False, bake_weights=True)
        self._tensor_of = {pair.name: pair.tensor for pair in q_model.plan.tensors}
        self._pads = zero_paddings(q_model.plan.graph)

    def tensors(self) -> list[TensorParity]:
        """Return the comparison of every quantized tensor that is in the file, each part fed the file's values."""
        return list(self._tensors)

    @functools.cached_property
    def _tensors(self) -> list[TensorParity]:
        found = self._compared_tensors(known_errors=False)
        # Few models need them, and they take two dozen runs of the file.
        return found if all(tensor.worst <= 1 for tensor in found) else self._excused_tensors

    @functools.cached_property
    def _excused_tensors(self) -> list[TensorParity]:
        """The comparison of `tensors` with the errors that a correct file may have."""
        return self._compared_tensors(known_errors=True)

    def _compared_tensors(self, *, known_errors: bool) -> list[TensorParity]:
        """Compare all pairs in the file, with or without the errors that a correct file may have."""
        found = self._file_values
        forced, _ = self._forced
        compared = []
        for tensor, qparams in self._activation_grids:
            if f"{tensor.name}/QuantizeLinear" not in found:  # one that no output depends on is not in the file
                continue
            error = self._known_errors.of(self._sources[tensor.name]) if known_errors else KnownError()
            values, codes = forced[tensor.name], found[f"{tensor.name}/QuantizeLinear"]
            pads = self._pads.get(tensor.tensor)
            compared.append(
                compare_codes(tensor.name, values, codes, qparams, pads, noise=error.functions, bias=error.biases)
            )
        return compared

    def forced_outputs(self) -> dict[str, float]:
        """Return by output the largest difference with the last part fed the file's values, relative to the tolerance.

        Up to 1, rounding explains the difference.
        """
        found = self._file_values
        _, outputs = self._forced
        worst = {}
        for name, ours in outputs.items():
            theirs = found[name]
            # The lower bound leaves a tolerance to outputs that are nearly 0.
            allowed = FLOAT_TOLERANCE * max(1e-3, float(np.abs(ours).max(initial=0.0, where=np.isfinite(ours))))
            largest = float(apart(ours, theirs).max(initial=0.0))
            if not largest <= allowed:
                allowed += sum(self._known_errors.of(name))
            worst[name] = largest / allowed
        return worst

    def codes(self) -> dict[str, np.ndarray]:
        """Return the integers of every pair of the file."""
        pairs = [name for name in self._cut.pairs if f"{name}/{QUANTIZE}" in self._file_values]
        return {name: self._file_values[f"{name}/{QUANTIZE}"] for name in pairs}

    def differing(self) -> list[str]:
        """Return what differs by more than rounding explains, a sentence each; what is not finite is left out."""
        numbers = {name for name, values in self._forced[0].items() if np.isfinite(values).all()}
        off = [each for each in self.tensors() if each.worst > 1 and each.tensor in numbers]
        outputs = [name for name, difference in self.forced_outputs().items() if not difference <= 1.0]
        tensors = [f"tensor {each.tensor!r} differs by {each.worst} steps" for each in off]
        return [*tensors, *(f"output {name!r} differs although its inputs are equal" for name in outputs)]

    def end_to_end(self, *, optimized: bool) -> list[OutputParity]:
        """Return the comparison of every output with each program run on the samples from end to end."""
        theirs = run_session(make_session(self._proto, optimized=optimized), self._inputs)
        found = [self._compare_output(name, theirs[name], optimized=optimized) for name in self._keras_outputs[0]]
        if optimized and not all(parity.passed for parity in found) and may_saturate(self._proto):
            # Before the known errors, which run the model once per pair: sums that saturate are the usual cause here.
            found = passed_with_exact_sums(found, self._exactly(found))
        if not all(parity.passed for parity in found) and self._raised_for_known_errors(found):
            found = [self._compare_output(name, theirs[name], optimized=optimized) for name in self._keras_outputs[0]]
        # The unoptimized run computes what ONNX defines, so no rewrite and no kernel explains a difference.
        if not optimized or all(parity.passed for parity in found):
            return found
        found = [dataclasses.replace(p, allowed=p.allowed + self._moved_by_kernels[p.output]) for p in found]
        explained = self._explained(found, theirs)
        return explained if all(parity.passed for parity in explained) else self._with_exact_sums(explained)

    def _compare_output(self, name: str, theirs: np.ndarray, *, optimized: bool) -> OutputParity:
        ours, allowed = self._keras_outputs
        difference = apart(ours[name], theirs)
        return OutputParity(
            output=name,
            optimized=optimized,
            mean_difference=float(difference.mean()),
            max_difference=float(difference.max(initial=0.0)),
            allowed=allowed[name],
            agreement=top1_agreement(ours[name], theirs),
        )

    def _explained(
        self, found: list[OutputParity], theirs: Mapping[str, np.ndarray], *, exact_sums: bool = False
    ) -> list[OutputParity]:
        """Repeat failed comparisons without, or with, rewrites of ONNX Runtime; no tolerance is widened for them.

        What it quantizes by itself explains a difference if it is gone in a session without that, and no larger than 8
        bits explain, or if the file is for another runtime. It may return an output whose tensor also has a pair as the
        pair's dequantized value: the comparison is repeated with Keras's output rounded likewise.
        """
        if exact_sums:
            kept = run_exactly(self._proto, self._inputs, as_planned=True)
        else:
            kept = run_session(make_session(self._proto, optimized=True, as_planned=True), self._inputs)
        explained = []
        for parity in found:
            name = parity.output
            again = self._compare_output(name, kept[name], optimized=True)
            if parity.passed:
                explained.append(parity)
            elif again.passed and parity.mean_difference <= parity.allowed + self._own_quantization[name]:
                explained.append(dataclasses.replace(again, rewrite=OWN_QUANTIZATION))
            elif (rounded := self._compare_rounded(parity, theirs[name])).passed or not again.passed:
                explained.append(rounded)
            elif self._q_model.plan.target_object.quantizes_float_weights:
                explained.append(dataclasses.replace(parity, rewrite=TOO_FAR))
            else:
                explained.append(dataclasses.replace(again, rewrite=ELSEWHERE))
        return explained

    @functools.cached_property
    def _own_quantization(self) -> dict[str, float]:
        return moved_by_own_quantization(self._proto, self._inputs, self._file_values)

    def _with_exact_sums(self, found: list[OutputParity]) -> list[OutputParity]:
        """Repeat the comparison with exact sums; an output that passes only so keeps the old one in `saturated`."""
        again = self._exactly(found)
        if not all(parity.passed for parity in again):
            again = self._explained(again, self._exact_run, exact_sums=True)
        return passed_with_exact_sums(found, again)

    def _exactly(self, found: list[OutputParity]) -> list[OutputParity]:
        names = [parity.output for parity in found]
        return [self._compare_output(name, self._exact_run[name], optimized=True) for name in names]

    @functools.cached_property
    def _exact_run(self) -> Mapping[str, np.ndarray]:
        return run_exactly(self._proto, self._inputs)

    def _compare_rounded(self, parity: OutputParity, theirs: np.ndarray) -> OutputParity:
        """Compare with Keras's output fake-quantized by a pair that reaches it; return `parity` if no pair fits."""
        tensors = dict(zip(self._cut.outputs, self._q_model.plan.graph.outputs, strict=True))
        grids = {tensor.name: qparams for tensor, qparams in self._activation_grids}
        for name in dict.fromkeys((tensors[parity.output], *pairs_that_reach(self._proto, parity.output))):
            if name not in grids:
                continue
            ours = self._keras_outputs[0][parity.output]
            rounded = numerics.dequantize(numerics.quantize(ours, grids[name]), grids[name])
            remaining = float(apart(rounded, theirs).mean())
            if remaining <= parity.allowed:
                return dataclasses.replace(parity, mean_difference=remaining, rewrite=ROUNDED_OUTPUT)
        return parity

    @functools.cached_property
    def _activation_grids(self) -> list[tuple[Any, numerics.QParams]]:
        ranges, plan = self._q_model.activation_ranges(), self._q_model.plan
        stored = plan.target_object.activation_in_file
        return [
            (tensor, numerics.qparams_from_range(*ranges[tensor.name], stored(tensor.quantizer)))
            for tensor in plan.tensors
            if tensor.kind == "activation"
        ]

    @functools.cached_property
    def _sources(self) -> dict[str, str]:
        """The tensor of the file in front of every pair."""
        pairs = (node for node in self._proto.graph.node if node.op_type == "QuantizeLinear")
        return {node.name.rpartition("/")[0]: node.input[0] for node in pairs}

    @functools.cached_property
    def _file_values(self) -> dict[str, np.ndarray]:
        """The integers and dequantized values of every pair, and the outputs, of the file's unoptimized run."""
        exposed = {}
        for node in self._proto.graph.node:
            pair, _, kind = node.name.rpartition("/")
            if pair in self._cut.pairs and kind in ("QuantizeLinear", "DequantizeLinear"):
                exposed[node.name] = node.output[0]
        proto = with_outputs(self._proto, exposed.values())
        codes = {exposed[f"{name}/{QUANTIZE}"]: given for name, given in (self._given or {}).items()}
        session = make_session(cut_behind(proto, codes) if codes else proto, optimized=False)
        names = [value.name for value in proto.graph.output]
        values = run_parts(session, names, self._inputs, codes) if codes else run_session(session, self._inputs)
        return {**values, **{name: values[output] for name, output in exposed.items()}}

    @functools.cached_property
    def _forced(self) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """The pair sources and the outputs that the parts of the Keras model compute from the file's values."""
        cut = self._cut
        placeholders = self._fed_values()
        given = [tf.constant(self._inputs[name]) for name in cut.inputs]
        forced = [tf.constant(placeholders[name]) for name in cut.pairs]
        safe_point()
        run = for_few_calls(self._q_model, cut.function(), given, forced)
        pairs, outputs = run(given, forced)
        return (
            {name: value.numpy() for name, value in zip(cut.pairs, pairs, strict=True)},
            {name: np.asarray(value, np.float32) for name, value in zip(cut.outputs, outputs, strict=True)},
        )

    @functools.cached_property
    def _keras_outputs(self) -> tuple[dict[str, np.ndarray], dict[str, float]]:
        """The Keras model's outputs, and the allowed mean differences, by output name."""
        given = keras.tree.pack_sequence_as(input_structure(self._q_model), list(self._inputs.values()))
        run = for_few_calls(self._q_model, lambda x: keras.tree.flatten(self._q_model(x, training=False)), given)
        names = list(self._cut.outputs)
        predict = functools.partial(_predict, self._q_model, run)
        found = predict(list(self._inputs.values()))
        base = dict(zip(names, found, strict=True))
        moved = dict.fromkeys(names, 0.0)
        generator = np.random.default_rng(0)
        move = functools.partial(self._perturb, generator=generator)
        for changed in moved_outputs(self._q_model, self._inputs, predict, found, move):
            for name, values in zip(names, changed, strict=True):
                moved[name] = max(moved[name], mean_of_numbers(values, base[name]))
        floors = {name: FLOAT_TOLERANCE * mean_of_numbers(base[name]) + 1e-6 for name in names}
        return base, {name: HEADROOM * moved[name] + floors[name] for name in names}

    def _fed_values(self) -> dict[str, np.ndarray]:
        """Return the file's values of every pair in the Keras layout; the exporter may have put channels first.

        Where several layouts fit, or sizes are unknown, the model's own values decide.
        """
        found = {name: self._file_values.get(f"{name}/DequantizeLinear") for name in self._cut.pairs}
        fitting = {
            # A pair that no output depends on is missing from the file; any values serve its readers.
            name: [] if values is None else self._layouts(name, values, tuple(self._cut.pairs[name][1].shape))
            for name, values in found.items()
        }
        fed = {name: layouts[0] for name, layouts in fitting.items() if len(layouts) == 1}
        for name, free in self._free_running([name for name in fitting if name not in fed]).items():
            values = found[name]
            if values is None:
                fed[name] = free
                continue
            layouts = self._layouts(name, values, free.shape)
            require_fitting(layouts, self._tensor_of[name], values, free)
            fed[name] = min(layouts, key=lambda layout: float(np.abs(layout - free).mean()))
        return fed

    def _layouts(self, name: str, values: np.ndarray, shape: tuple[int | None, ...]) -> list[np.ndarray]:
        """Return every layout of a pair's values in the file that fits a Keras shape; below three axes there is one."""
        if values.ndim < 3:
            return [values]
        return fitting_layouts(values, shape, self._pads.get(self._tensor_of[name]), 0.0)

    def _free_running(self, pairs: list[str]) -> dict[str, np.ndarray]:
        """Return the sources of pairs when the Keras model runs on its own values.

        They serve only to tell layouts apart, so the model runs eagerly, and no further than to the last of them:
        tracing takes many times as long.
        """
        if not pairs:
            return {}
        tensors = float_view(self._q_model).tensors
        sources = [tensors[self._tensor_of[name]] for name in pairs]
        model = functional_model(self._q_model.inputs, sources, name="free_running")
        given = [tf.constant(array) for array in self._inputs.values()]
        values = keras.tree.flatten(model(given, training=False))
        return {name: keras.ops.convert_to_numpy(value) for name, value in zip(pairs, values, strict=True)}

    def _raised_for_known_errors(self, found: Sequence[OutputParity]) -> bool:
        """Raise the allowed differences as far as errors that a correct file may have explain those that were found.

        Moved inputs tell nothing about the rounding of a bias behind them: it moves a channel of all samples alike, and
        by many steps where those of the bias are coarse. So the very integers of a pair are moved that the error
        explains, by as many steps; behind the last pair, an error changes the output itself. Each pair takes a run of
        the model, so they are moved until the differences are explained. Returns whether anything was raised.
        """
        allowed = self._keras_outputs[1]
        before = dict(allowed)
        for raised in self._raises:
            for name, difference in raised.items():
                allowed[name] = max(allowed[name], difference)
            if all(parity.mean_difference <= allowed[parity.output] for parity in found):
                break
        return allowed != before

    @functools.cached_property
    def _raises(self) -> Iterator[Mapping[str, float]]:
        """The allowed differences by known errors: at the outputs, then behind one pair more after the other."""
        allowed = self._keras_outputs[1].items()
        at_ends = {name: value + sum(self._known_errors.of(name)) for name, value in allowed}
        yield at_ends
        for moved in self._moved_behind():
            yield {name: at_ends[name] + by for name, by in moved.items()}

    @functools.cached_property
    def _moved_by_kernels(self) -> dict[str, float]:
        """The mean differences by the integers that kernels of ONNX Runtime have one step away."""
        return moved_by_softmax(self._proto, self._inputs)

    def _moved_behind(self) -> Iterator[dict[str, float]]:
        """Yield by output the mean difference where one pair more moves as known errors explain, most values first."""
        told = [(self._tensor_of[t.tensor], t.explained) for t in self._excused_tensors if t.explained is not None]
        largest = sorted(told, key=lambda move: -int(np.count_nonzero(move[1])))
        return differences_behind(self._q_model, list(self._inputs.values()), self._keras_outputs[0], largest)

    @functools.cached_property
    def _flips_per_sample(self) -> int:
        """The number of integers that differ by one step in all tensors, per sample, rounded up; at least 1."""
        count = len(next(iter(self._inputs.values())))
        return max(1, -(-sum(parity.off_by_one for parity in self._tensors) // count))

    def _perturb(self, name: str, values: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        """Move `_flips_per_sample` values of every sample by one quantization step."""
        steps = {tensor.name: float(qparams.scale) for tensor, qparams in self._activation_grids}
        return moved_by_steps(values, steps.get(name), self._flips_per_sample, generator)


def _predict(q_model: QuantizedModel, run: Any, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    safe_point()
    packed = keras.tree.pack_sequence_as(input_structure(q_model), [tf.constant(array) for array in inputs])
    return [np.asarray(keras.ops.convert_to_numpy(value), np.float32) for value in run(packed)]
