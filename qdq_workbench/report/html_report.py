"""A self-contained HTML page of a run: verdict, figures, curves, every Q/DQ pair, every value left in float.

The page needs no network. Names of layers are escaped, because a model may come from an untrusted source.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from qdq_workbench._files import write_text
from qdq_workbench._versions import versions_of
from qdq_workbench.placement.plan import PlacementPlan, PlannedTensor
from qdq_workbench.report.chart_html import chart_html
from qdq_workbench.report.curves import Curve, Level, curves_figure
from qdq_workbench.spec.quantizer_spec import QuantizerSpec

_TEMPLATE = "report.html.j2"
_VERSIONS_OF = ("qdq-workbench", "keras", "tensorflow", "tensorflow-cpu", "onnx", "onnxruntime", "tf2onnx", "numpy")


@dataclasses.dataclass(frozen=True)
class Figure:
    """One number of the report's first row.

    Args:
        label: Its label.
        value: The number with its unit, ready to print.
        note: How it was measured, or the value that it is compared with.
    """

    label: str
    value: str
    note: str = ""


@dataclasses.dataclass(frozen=True)
class Check:
    """One condition of the verdict.

    Args:
        name: The condition.
        passed: Whether it holds.
        detail: The figures that decide it.
    """

    name: str
    passed: bool
    detail: str = ""


@dataclasses.dataclass(frozen=True)
class FileResult:
    """The result of one exported file.

    Args:
        target: The target that it was written for.
        path: Its path.
        export: The export report, as text.
        verification: The verification report, as text.
        passed: Whether the verification passed.
    """

    target: str
    path: str
    export: str
    verification: str
    passed: bool


@dataclasses.dataclass(frozen=True)
class RunReport:
    """The content of the page.

    Args:
        title: Heading: the model and the data.
        verdict: The result of the run in one line.
        passed: Whether all checks hold.
        plan: The placement plan of the quantized model.
        figures: The numbers of the first row.
        checks: The conditions behind the verdict.
        curves: Accuracy over the epochs of fine-tuning.
        levels: Accuracies that the curves are compared with.
        ranges: Activation tensor or pair -> (minimum, maximum) that its grid was computed from.
        files: The exported files.
        versions: Package -> version.
    """

    title: str
    verdict: str
    passed: bool
    plan: PlacementPlan
    figures: Sequence[Figure] = ()
    checks: Sequence[Check] = ()
    curves: Sequence[Curve] = ()
    levels: Sequence[Level] = ()
    ranges: Mapping[str, tuple[float, float]] = dataclasses.field(default_factory=dict)
    files: Sequence[FileResult] = ()
    versions: Mapping[str, str] = dataclasses.field(default_factory=dict)


def render_html_report(run: RunReport) -> str:
    """Return the page as a string."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("qdq_workbench.report"),
        autoescape=True,
        # A name that the template misspells is an error, not an empty place in the page.
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(_TEMPLATE).render(
        run=run, chart=_chart(run), tensors=[_tensor_row(run, tensor) for tensor in run.plan.tensors]
    )


def write_html_report(run: RunReport, path: str | pathlib.Path) -> pathlib.Path:
    """Write the page to a file, and return its path."""
    return write_text(path, render_html_report(run))


def installed_versions() -> dict[str, str]:
    """Return the versions of the installed packages that affect the content of a file and how it runs.

    Example:
        >>> "numpy" in installed_versions()
        True
    """
    return versions_of(_VERSIONS_OF)


def grid_text(spec: QuantizerSpec) -> str:
    """Return a grid as text.

    Example:
        >>> grid_text(QuantizerSpec(num_bits=8, signed=True, symmetric=True, narrow_range=True, axis=-1))
        'int8 symmetric, narrow, per channel (axis -1)'
        >>> grid_text(QuantizerSpec(num_bits=8, signed=False, symmetric=False))
        'uint8 asymmetric, per tensor'
        >>> grid_text(QuantizerSpec(num_bits=4, symmetric=True, axis=0, block_size=32))
        'int4 symmetric, in blocks of 32 (axis 0)'
    """
    kind = "int" if spec.signed else "uint"
    symmetry = "symmetric" if spec.symmetric else "asymmetric"
    narrow = ", narrow" if spec.narrow_range else ""
    granularity = "per tensor" if spec.axis is None else f"per channel (axis {spec.axis})"
    if spec.block_size is not None:
        granularity = f"in blocks of {spec.block_size} (axis {spec.axis})"
    return f"{kind}{spec.num_bits} {symmetry}{narrow}, {granularity}"


def _chart(run: RunReport) -> Any:
    if not run.curves:
        return ""
    from markupsafe import Markup

    figure = curves_figure(run.curves, run.levels)
    html = chart_html(figure, full_html=False, default_height="420px")
    # plotly escapes the names inside its JSON, so its HTML needs no further escaping.
    return Markup(html)  # noqa: S704


def _tensor_row(run: RunReport, tensor: PlannedTensor) -> dict[str, Any]:
    placements = [placement for placement in run.plan.placements if run.plan.pair_of(placement).name == tensor.name]
    observed = run.ranges.get(tensor.name) or run.ranges.get(tensor.tensor)
    return {
        "name": tensor.name,
        "kind": tensor.kind,
        "grid": grid_text(tensor.quantizer),
        "range": f"{observed[0]:.4g} … {observed[1]:.4g}" if observed else "",
        "group": tensor.scale_group or "",
        "layers": [_place(placement) for placement in placements],
        "authors": sorted({placement.author for placement in placements}),
        "reasons": sorted({placement.reason for placement in placements}),
    }


def _place(placement: Any) -> str:
    if placement.site == "input":
        return f"{placement.layer} (input {placement.input_index})"
    return f"{placement.layer} ({placement.weight or 'output'})"
