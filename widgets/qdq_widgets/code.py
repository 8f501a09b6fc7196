"""A bench as Python: the lines that rebuild its state and the corrections of its weights."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import qdq_workbench as qdq
from qdq_widgets.case_files import arguments_of, call_of
from qdq_widgets.corrections import SAMPLES, Applied
from qdq_widgets.literals import keywords, literal
from qdq_widgets.snapshots import Snapshot
from qdq_widgets.state import BenchState

_DATA = "calibration_data"
# The first samples of each kind of data, as `few_samples` takes them; the kinds are those of `kind_of_data`.
_FEW = {
    "array": "{data}[:{count}]",
    "list": "[part[:{count}] for part in {data}]",
    "dict": "{{name: part[:{count}] for name, part in {data}.items()}}",
    "dataset": "{data}.take({batches})",
    "stream": "{data}",
}


def to_code(
    state: BenchState, model_name: str = "model", work: Snapshot | None = None, training: Sequence[str] = ()
) -> str:
    """Return Python that makes the same plan and the same quantized model.

    The corrections of `work` become code; the lines of `training` come between those before and after training.

    Example:
        >>> state = BenchState(qdq.QuantizationSpec(), (qdq.ResNetV1QDQCase(),))
        >>> print(to_code(state))  # doctest: +ELLIPSIS
        import qdq_workbench as qdq
        <BLANKLINE>
        spec = qdq.QuantizationSpec()
        cases = [qdq.ResNetV1QDQCase()]
        plan = qdq.plan_placement(model, 'full', spec, cases, target='tensorrt')
        q_model = qdq.quantize_model(model, plan=plan)
        <BLANKLINE>
    """
    imports, names, notes = ["import qdq_workbench as qdq"], [], []
    for case in state.cases:
        statement, expression, note = case_code(case)
        imports += [statement] if statement else []
        notes += [note] if note else []
        names.append(expression)
    planned = f"{state.mode!r}, spec, cases, target={state.target!r})"
    lines = [
        *dict.fromkeys(imports),
        "",
        *_spec_code(state.spec),
        *notes,
        f"cases = [{', '.join(names)}]",
        f"plan = qdq.plan_placement({model_name}, {planned}",
        *_model_code(model_name, planned, Snapshot() if work is None else work, training),
        "",
    ]
    return "\n".join(lines)


def _model_code(model: str, planned: str, work: Snapshot, training: Sequence[str]) -> list[str]:
    """Return the lines that make the quantized model, with the corrections of its weights."""
    corrections, lines = work.corrections, []
    if not corrections:
        return [f"q_model = qdq.quantize_model({model}, plan=plan)"]
    lines.append(f"# {_DATA}: the samples that the bench calibrates on, without labels")
    learned = any(applied.name == "learn_rounding" for applied in corrections)
    reference = ""
    for applied in corrections:
        if not applied.correction.of_float:
            continue
        # Learned rounding imitates the weights before clipping, which need a name of their own.
        if learned and applied.name == "clip_weights":
            reference = "reference"
            lines.append(f"reference = {model}")
        lines += [f"corrected = {_correction_code(applied, model)}", f"plan = qdq.plan_placement(corrected, {planned}"]
        model = "corrected"
    lines.append(f"q_model = qdq.quantize_model({model}, plan=plan)")
    # A correction after training records the calibration of its own time; training may have begun with another.
    first = work.fits[0] if corrections[0].trained and work.fits else corrections[0]
    how = dict(first.calibration)
    if how:
        method = how.pop("method")
        lines.append(f"qdq.calibrate({', '.join(['q_model', _DATA, literal(method), *keywords(how)])})")
    of_model = [applied for applied in corrections if not applied.correction.of_float]
    lines += [_correction_code(applied, "q_model", reference) for applied in of_model if not applied.trained]
    lines += training
    return lines + [_correction_code(applied, "q_model") for applied in of_model if applied.trained]


def _correction_code(applied: Applied, model: str, reference: str = "") -> str:
    """Return the call of one correction."""
    settings = {name: value for name, value in applied.settings.items() if name != SAMPLES}
    arguments = [model]
    if applied.correction.reads_data:
        arguments.append(few_code(_DATA, applied.data, int(applied.settings[SAMPLES])))
    arguments += keywords(settings)
    if applied.correction.of_float and applied.name != "equalize_scales":
        arguments.append("plan=plan")
    if reference and applied.name == "learn_rounding":
        arguments.append(f"reference={reference}")
    return f"qdq.correction.{applied.name}({', '.join(arguments)})"


def few_code(name: str, kind: str, count: int) -> str:
    """Return the Python that takes the first samples of data, an expression, as `few_samples` does.

    Example:
        >>> few_code("validation_data[0]", "array", 128)
        'validation_data[0][:128]'
    """
    # 32 is the size of a dataset's batch that `few_samples` assumes.
    return _FEW[kind].format(data=name, count=count, batches=max(1, count // 32))


def _spec_code(spec: Any) -> list[str]:
    configs = [entry.quantize_config for entry in spec.layers if entry.quantize_config is not None]
    # Only plain settings have a `repr` that is Python; other configs are made again by `from_dict`.
    if not all(isinstance(config, qdq.LayerQuantizeConfig) for config in configs):
        return [f"spec = qdq.QuantizationSpec.from_dict({literal(spec.to_dict())})"]
    return ["spec = qdq.QuantizationSpec()", *map(_entry_code, spec.layers)]


def _entry_code(entry: Any) -> str:
    """Return the `spec.add` of an entry, without arguments that have their defaults."""
    arguments = [repr(entry.name)]
    for field in dataclasses.fields(qdq.LayerConfig)[1:]:
        value = getattr(entry, field.name)
        if isinstance(value, qdq.LayerQuantizeConfig):
            arguments.append(f"{field.name}={config_code(value)}")
        elif value != field.default:
            arguments += keywords({field.name: value})
    return f"spec.add({', '.join(arguments)})"


def config_code(config: qdq.LayerQuantizeConfig) -> str:
    """Return the Python that makes the quantizer settings of a layer.

    Example:
        >>> config_code(qdq.LayerQuantizeConfig(weight={"num_bits": 4}))
        "qdq.LayerQuantizeConfig(weight={'num_bits': 4})"
    """
    return f"qdq.LayerQuantizeConfig({', '.join(keywords(config.get_config()))})"


def case_code(case: Any) -> tuple[str, str, str]:
    """Return import, expression and comment for one case; import and comment may be empty."""
    kind = type(case)
    note, found = "", arguments_of(case)
    if found is None:
        note = f"# {kind.__name__} was made with settings of its own: write them into the brackets below."
    given = found or ((), {})
    if kind.__module__.partition(".")[0] == "qdq_workbench" and hasattr(qdq, kind.__name__):
        return "", call_of(f"qdq.{kind.__name__}", *given), note
    # Classes of a notebook or of a function cannot be imported.
    if kind.__module__ == "__main__" or "<locals>" in kind.__qualname__:
        return (
            "",
            call_of(kind.__name__, *given),
            note or f"# {kind.__name__} is your own class; define it before these lines.",
        )
    return (
        f"from {kind.__module__} import {kind.__qualname__.partition('.')[0]}",
        call_of(kind.__qualname__, *given),
        note,
    )
