"""The report of a diagnosis: the likely causes of a loss, each with its evidence and fixes that can be applied."""

from __future__ import annotations

import dataclasses
import html
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from qdq_workbench._documents import SavedReport, json_number
from qdq_workbench._numbers import whole
from qdq_workbench._progress import ProgressFunction, check_functions, shown_progress
from qdq_workbench.analysis.metrics import Metric
from qdq_workbench.analysis.samples import Samples, read_samples
from qdq_workbench.analysis.sweep import model_outputs
from qdq_workbench.conversion.engine.quantized_model import QuantizedModel
from qdq_workbench.diagnosis.evidence import noise_of
from qdq_workbench.diagnosis.finding import TITLES
from qdq_workbench.diagnosis.fixes import Fix
from qdq_workbench.errors import DataError, SpecError, nearest_names

_FORMAT = "qdq-workbench/diagnosis"
_MOST = 0.75


@dataclasses.dataclass(eq=False)
class Cause:
    """One likely cause of a loss.

    Args:
        kind: Its kind, such as "outlier_channel".
        layer: The layer concerned.
        tensor: The tensor concerned: an activation, or `<layer>/<weight>`.
        share: Its share of the quantization error of the model's outputs, 0 to 1; for "stale_statistics", which is no
            quantization error, e / (e + q) with its error e and the quantization error q.
        evidence: The observation, with figures.
        fix: The mildest fix; after `Diagnosis.apply` the fix that it chose.
        gain: The improvement of the metric by the fix, positive if better whatever the metric; None before
            `Diagnosis.apply`, and if labels are needed to measure it.
        applied: Whether the last `Diagnosis.apply` kept the fix.
        fixes: All fixes, the mildest first; `fix` is the text of one of them.
        changes_function: Whether a fix changes the function of the float model, so that labels are needed to measure
            its gain.
    """

    kind: str
    layer: str
    tensor: str
    share: float
    evidence: str
    fix: str
    gain: float | None = None
    applied: bool = False
    fixes: tuple[Fix, ...] = dataclasses.field(default=(), repr=False)
    changes_function: bool = dataclasses.field(default=False, repr=False)

    @property
    def title(self) -> str:
        """The title of the kind."""
        return TITLES[self.kind]

    def to_dict(self) -> dict[str, Any]:
        """Return the cause as a JSON-compatible dictionary."""
        plain = ("kind", "title", "layer", "tensor", "share", "evidence", "fix", "gain", "applied")
        return {name: json_number(getattr(self, name)) for name in plain}


@dataclasses.dataclass(frozen=True)
class Patient:
    """The model and the data that fixes are applied to.

    Args:
        q_model: The quantized model that was examined.
        samples: The data that it was examined on.
        calibration_data: The data that fixes are calibrated on, unless others are needed.
        metric: The metric of the gains.
        reference: The float model's outputs on the data.
    """

    q_model: QuantizedModel
    samples: Samples
    calibration_data: Any
    metric: Metric
    reference: Sequence[Any]


@dataclasses.dataclass(frozen=True)
class Diagnosis(SavedReport):
    """The likely causes of a loss by quantization; made by `diagnose`.

    Args:
        model: Name of the model.
        target: Name of its target.
        metric: Name of the metric.
        unit: Its unit.
        higher_is_better: Whether a higher value is better.
        float_value: The metric of the float model.
        quantized_value: The metric of the quantized model.
        weights_value: The metric with only the weights quantized.
        activations_value: The metric with only the activations quantized.
        noise: The power of the error of the quantized outputs divided by that of the float outputs; 0 for no error.
        weights_share: The share of the weights in the sum of the errors of all sites, 0 to 1.
        samples: How many samples were run.
        causes: The likely causes, the largest share first.
        complete: Whether every site was measured; False after a stop.
        patient: The model and the data that fixes are applied to; not part of `to_dict`.
    """

    model: str
    target: str
    metric: str
    unit: str
    higher_is_better: bool
    float_value: float
    quantized_value: float
    weights_value: float
    activations_value: float
    noise: float
    weights_share: float
    samples: int
    causes: tuple[Cause, ...]
    complete: bool
    patient: Patient = dataclasses.field(repr=False, compare=False)

    @property
    def loss(self) -> float:
        """The loss of the quantized model against the float model, in the metric's unit; positive if worse."""
        return self._better(self.float_value, self.quantized_value)

    def apply(
        self,
        *causes: Cause | int | str,
        data: Any = None,
        progress: ProgressFunction | None = None,
        stop: Callable[[], bool] | None = None,
        verbose: bool = True,
    ) -> QuantizedModel:
        """Return the quantized model with causes removed, and set the gain of each cause.

        Of several fixes of a cause, the first one is taken that removes half of the cause's share of the error, else
        the one with the least error. Where the calibration data may be the cause, the fix is tried on the samples of
        the diagnosis, too; what is calibrated after it is calibrated on the same data. Given causes are always removed,
        in the given order, unless every fix makes the outputs NaN or infinite. Without causes, all are tried in the
        order of the report, each on the model so far, and kept if the metric improves; a fix that changes the function
        of the float model is kept only if the metric uses labels.

        Args:
            *causes: Causes of this report, their indices in it, or their kinds; none for all.
            data: Samples, with labels if the metric needs them, to measure the gains on, such as held-out ones; None
                for those of the diagnosis.
            progress: Called with the number of causes done, their total, and the title of the next one.
            stop: Called before every cause; when it returns True, the fixes so far are kept.
            verbose: Whether to show a progress bar where there is no `progress`.

        Returns:
            A new quantized model; the one that was examined is unchanged.

        Raises:
            SpecError: If there is no such cause.
            DataError: If the data do not fit the model.
        """
        check_functions(progress=progress, stop=stop)
        chosen = [self._cause(cause) for cause in causes] if causes else list(self.causes)
        samples = self.patient.samples if data is None else read_samples(self.patient.q_model, data)
        bench = _Bench(self.patient, samples)
        now = bench.measured("", self.patient.q_model, self.patient.calibration_data)
        with shown_progress(progress, f"Fixes for {self.model}", verbose=verbose) as show:
            for done, cause in enumerate(chosen):
                if stop is not None and stop():
                    break
                show(done, len(chosen), cause.title)
                after = bench.treated(now, cause)
                gain = self._gain(after.value, now.value)
                cause.fix = after.text
                cause.gain = gain if self._can_tell(cause) else None
                kept = bool(causes) or (self._can_tell(cause) and gain > 0.0)
                cause.applied = kept and (math.isfinite(after.noise) or not math.isfinite(now.noise))
                if cause.applied:
                    now = after
            else:
                show(len(chosen), len(chosen), "")
        return now.model

    def _can_tell(self, cause: Cause) -> bool:
        """Return whether the metric can measure the gain of a fix: one that changes the function needs labels."""
        return self.patient.metric.needs_labels or not cause.changes_function

    def _gain(self, value: float, before: float) -> float:
        """Return how much better a value is; NaN is worse than every number."""
        worse, better = math.isnan(value), math.isnan(before)
        if worse or better:
            return 0.0 if worse and better else math.inf if better else -math.inf
        return self._better(value, before)

    def _better(self, value: float, than: float) -> float:
        difference = value - than if value != than else 0.0  # inf - inf
        return difference if self.higher_is_better else -difference

    def _cause(self, cause: Any) -> Cause:
        # By identity, as Cause has eq=False: a cause of another report is refused, however similar.
        if isinstance(cause, Cause) and cause in self.causes:
            return cause
        cause = whole(cause)
        if isinstance(cause, int) and not isinstance(cause, bool) and 0 <= cause < len(self.causes):
            return self.causes[cause]
        kinds = [each.kind for each in self.causes]
        if isinstance(cause, str) and cause in kinds:
            return self.causes[kinds.index(cause)]
        hint = nearest_names(cause, kinds) if isinstance(cause, str) else f"There are {len(kinds)}: {kinds}."
        raise SpecError(f"The diagnosis has no such cause. {hint} Received: {cause!r}")

    def summary(self) -> str:
        """Return the loss and its likely causes as text."""
        unit = f" {self.unit}" if self.unit else ""
        values = (
            f"float {_shown(self.float_value)}, quantized {_shown(self.quantized_value)}, weights alone "
            f"{_shown(self.weights_value)}, activations alone {_shown(self.activations_value)}"
        )
        lines = [
            f"Diagnosis of {self.model} for {self.target} on {self.samples} samples",
            f"{self.metric}{unit}: {values}",
            self.verdict,
        ]
        for rank, cause in enumerate(self.causes, start=1):
            part = "beside the error of quantization" if cause.changes_function else f"{cause.share:.0%} of the error"
            lines.append(f"{rank:>3}. {cause.title}, {cause.layer}: {part}")
            lines.append(f"     seen: {cause.evidence}")
            lines.append(f"     {'done' if cause.applied else 'fix'}: {cause.fix}{self._gain_text(cause)}")
        return "\n".join(lines)

    @property
    def verdict(self) -> str:
        """A sentence on whether there is a loss, and whether it comes from weights or activations."""
        if not self.causes:
            return "No cause was found: the error of the outputs is that of a healthy grid, or there is none."
        if self.loss <= 0.0:
            return "The metric shows no loss on these samples; the causes below are those of the error of the outputs."
        part = self.weights_share
        if part >= _MOST:
            return f"The weights carry {part:.0%} of the error of the outputs."
        if part <= 1.0 - _MOST:
            return f"The activations carry {1.0 - part:.0%} of the error of the outputs."
        return f"Weights ({part:.0%}) and activations ({1.0 - part:.0%}) both carry the error of the outputs."

    def _gain_text(self, cause: Cause) -> str:
        if cause.gain is None:
            return " (only labels would tell the gain)" if cause.applied else ""
        return f" (measured: {cause.gain:+.4g}{f' {self.unit}' if self.unit else ''})"

    def _repr_html_(self) -> str:
        head = "<br>".join(html.escape(line) for line in self.summary().splitlines()[:3])
        rows = "".join(
            f"<tr><td>{cause.share:.0%}</td><td>{html.escape(cause.layer)}</td><td>{html.escape(cause.title)}</td>"
            f"<td>{html.escape(cause.evidence)}</td><td>{html.escape(cause.fix + self._gain_text(cause))}</td></tr>"
            for cause in self.causes
        )
        columns = "".join(f"<th>{name}</th>" for name in ("share", "layer", "cause", "seen", "fix"))
        return f"<table><caption>{head}</caption><thead><tr>{columns}</tr></thead><tbody>{rows}</tbody></table>"

    def to_dict(self) -> dict[str, Any]:
        """Return the diagnosis, without the model, as a JSON-compatible dictionary; infinite values are strings."""
        skipped = ("causes", "patient")
        plain = {f.name: json_number(getattr(self, f.name)) for f in dataclasses.fields(self) if f.name not in skipped}
        causes = [cause.to_dict() for cause in self.causes]
        return {"format": _FORMAT, "version": 1, **plain, "verdict": self.verdict, "causes": causes}


@dataclasses.dataclass(frozen=True)
class _Treated:
    """A fixed model with the text of its fix, its metric, the error of its outputs and the data for its ranges."""

    text: str
    model: QuantizedModel
    value: float
    noise: float
    data: Any


class _Bench:
    """Measures fixed models."""

    def __init__(self, patient: Patient, samples: Samples) -> None:
        from qdq_workbench.conversion.engine.strip import strip

        self._patient = patient
        self._samples = samples
        same = samples is patient.samples
        self._reference = list(patient.reference) if same else model_outputs(strip(patient.q_model), samples)
        if patient.metric.needs_labels and samples.labels is None:
            raise DataError(
                f"The metric {patient.metric.name!r} compares with labels: pass data as (inputs, labels). "
                "Received: data without labels"
            )

    def measured(self, text: str, model: QuantizedModel, data: Any) -> _Treated:
        """Return a model with its metric and error, measured in one run; `text` is empty for the examined model."""
        outputs = model_outputs(model, self._samples)
        value = self._patient.metric.measure(self._reference, outputs, self._samples.labels)
        return _Treated(text, model, value, noise_of(self._reference, outputs), data)

    def treated(self, before: _Treated, cause: Cause) -> _Treated:
        """Return the model with the first fix that removes half of a cause's error, else with the best one."""
        tried: list[_Treated] = []
        for fix, data in self._ways(before, cause):
            tried.append(self.measured(fix.text, fix.run(before.model, data), data))
            # Half of an infinite error is infinite.
            if math.isfinite(tried[-1].noise) and tried[-1].noise <= before.noise * (1.0 - cause.share / 2.0):
                return tried[-1]
        return min(tried, key=lambda each: each.noise)

    def _ways(self, before: _Treated, cause: Cause) -> Iterator[tuple[Fix, Any]]:
        """Yield the fixes of a cause with the data to run each on."""
        seen = self._patient.samples.batches
        for fix in cause.fixes:
            yield fix, before.data
            if fix.is_about_data and before.data is not seen:
                yield fix, seen


def _shown(value: float) -> str:
    return f"{value:.4g}"
