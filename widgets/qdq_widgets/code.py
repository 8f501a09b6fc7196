"""A bench as Python: the lines that rebuild its state exactly."""

from __future__ import annotations

import dataclasses
from typing import Any

import qdq_workbench as qdq
from qdq_widgets.case_files import arguments_of, call_of
from qdq_widgets.state import BenchState


def to_code(state: BenchState, model_name: str = "model") -> str:
    """Return Python that makes the same plan and the same quantized model.

    Args:
        state: The state.
        model_name: Name of the variable that holds the float model.

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
    lines = [
        *dict.fromkeys(imports),
        "",
        *_spec_code(state.spec),
        *notes,
        f"cases = [{', '.join(names)}]",
        f"plan = qdq.plan_placement({model_name}, {state.mode!r}, spec, cases, target={state.target!r})",
        f"q_model = qdq.quantize_model({model_name}, plan=plan)",
        "",
    ]
    return "\n".join(lines)


def _spec_code(spec: Any) -> list[str]:
    configs = [entry.quantize_config for entry in spec.layers if entry.quantize_config is not None]
    if not all(isinstance(config, qdq.LayerQuantizeConfig) for config in configs):
        return [f"spec = qdq.QuantizationSpec.from_dict({spec.to_dict()!r})"]
    return ["spec = qdq.QuantizationSpec()", *map(_entry_code, spec.layers)]


def _entry_code(entry: Any) -> str:
    """Write only what differs from the defaults of `spec.add`."""
    arguments = [repr(entry.name)]
    for field in dataclasses.fields(qdq.LayerConfig)[1:]:
        value = getattr(entry, field.name)
        if isinstance(value, qdq.LayerQuantizeConfig):
            arguments.append(f"{field.name}={config_code(value)}")
        elif value != field.default:
            arguments.append(f"{field.name}={value!r}")
    return f"spec.add({', '.join(arguments)})"


def config_code(config: qdq.LayerQuantizeConfig) -> str:
    """Return the Python that makes the settings of a layer.

    Args:
        config: The settings.

    Example:
        >>> config_code(qdq.LayerQuantizeConfig(weight={"num_bits": 4}))
        "qdq.LayerQuantizeConfig(weight={'num_bits': 4})"
    """
    return f"qdq.LayerQuantizeConfig({', '.join(f'{part}={value!r}' for part, value in config.get_config().items())})"


def case_code(case: Any) -> tuple[str, str, str]:
    """Return the import, the expression and a comment for one case; each may be empty but for the expression.

    Args:
        case: The insertion case.
    """
    kind = type(case)
    note, found = "", arguments_of(case)
    if found is None:
        note = f"# {kind.__name__} was made with settings of its own: write them into the brackets below."
    given = found or ((), {})
    if kind.__module__.partition(".")[0] == "qdq_workbench" and hasattr(qdq, kind.__name__):
        return "", call_of(f"qdq.{kind.__name__}", *given), note
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
