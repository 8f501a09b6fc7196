"""`plan_placement` and `explain`: from a model, a specification and cases to a plan, and what a runtime makes of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from qdq_workbench.cases.base import CustomQDQInsertionCase, GraphCase
from qdq_workbench.errors import SpecError
from qdq_workbench.graph.model_graph import ModelGraph, Node
from qdq_workbench.graph_builder import BoundGraph, bind_graph, layer_weights
from qdq_workbench.placement.ask_config import ask_config
from qdq_workbench.placement.decide import decide
from qdq_workbench.placement.decision import Decision
from qdq_workbench.placement.framework import AUTHOR
from qdq_workbench.placement.global_grid import with_global_grid
from qdq_workbench.placement.plan import PlacementPlan
from qdq_workbench.placement.planner import make_plan
from qdq_workbench.placement.preprocessing import check_preprocessing
from qdq_workbench.placement.settings import Resolver, Settings, settings_of
from qdq_workbench.placement.targets import Target, get_target
from qdq_workbench.runtimes.explain import explain_plan
from qdq_workbench.runtimes.explanation import Explanation
from qdq_workbench.runtimes.measured import Latency
from qdq_workbench.spec.framework_info import FrameworkInfo
from qdq_workbench.spec.quantization_spec import QuantizationSpec
from qdq_workbench.spec.quantize_config import LayerQuantizeConfig


def plan_placement(
    model: Any,
    quantization_mode: str = "full",
    quantization_spec: QuantizationSpec | None = None,
    custom_qdq_cases: Iterable[CustomQDQInsertionCase] | None = None,
    *,
    target: str | Target = "tensorrt",
    framework_info: FrameworkInfo | None = None,
) -> PlacementPlan:
    """Decide where Q/DQ pairs go, without building anything.

    `qdq_workbench.G_NUM_BITS`, `G_NARROW_RANGE` and `G_SYMMETRIC` hold for every quantizer whose settings are silent.

    Args:
        model: A built Keras model, or its `ModelGraph` (cases that look at Keras layers need the model, and so does
            a `QuantizeConfig`).
        quantization_mode: "full" (defaults for every layer, changed by spec and cases) or "partial" (only what
            spec and cases name).
        quantization_spec: The user's wishes; it is only read.
        custom_qdq_cases: Insertion cases; it is an error when two of them decide differently about a layer.
        target: The inference runtime whose needs are respected, one of `target_names()`.
        framework_info: Decides, in place of the defaults, about the layers that the spec and the cases leave open.

    Returns:
        The plan: every placement with its author and reason.

    Raises:
        SpecError: If an entry matches nothing, names an input that a layer does not have, or nothing is left.
        PlacementConflictError: If two cases disagree.
        ModeError: If the mode is unknown.
        TargetError: If the target is unknown.
        UnsupportedModelError: If the model's graph cannot be read, or holds layers that compute with text or look
            values up in a table; the message has the lines that split those off.
        UnbuiltModelError: If the model does not know its input shape.

    Warns:
        UserWarning: If the `framework_info` does not know a layer or an activation, which then stays in float.

    Example:
        >>> import keras
        >>> image = keras.Input((8, 8, 3), name="image")
        >>> model = keras.Model(image, keras.layers.Conv2D(4, 3, name="conv")(image))
        >>> [tensor.name for tensor in plan_placement(model).tensors]
        ['image', 'conv/kernel']
    """
    target = get_target(target)
    bound = model if isinstance(model, BoundGraph) else None if isinstance(model, ModelGraph) else bind_graph(model)
    graph = model if bound is None else bound.graph
    check_preprocessing(graph, structured=bound is None or hasattr(bound.model, "input"))
    spec = _checked_spec(quantization_spec)
    cases = () if custom_qdq_cases is None else custom_qdq_cases
    if not isinstance(cases, Iterable):
        raise SpecError(
            "custom_qdq_cases must be a list of cases, such as [ResNetV1QDQCase()]. "
            f"Received: custom_qdq_cases={custom_qdq_cases!r}"
        )
    case_specs = [(_case_name(case), _run_case(case, model, graph, spec, target)) for case in cases]
    resolve = settings_of if bound is None else _resolver(bound)
    decisions = decide(graph, quantization_mode, spec, case_specs, resolve, framework_info)
    return make_plan(graph, with_global_grid(decisions), quantization_mode, target)


def explain(plan_or_model: Any, target: str | Target | None = None, *, latency: Latency | None = None) -> Explanation:
    """Say for every layer whether an inference runtime will compute it in INT8, and why not.

    Args:
        plan_or_model: A plan, a model made by `quantize_model`, or a float model (which is planned by default).
        target: The runtime, one of `target_names()`; None for that which the measured file was exported for, without
            a measurement that of the plan, and "onnxruntime" for a float model.
        latency: The `LatencyReport` of the exported file beside the float file, from `profiling.profile_onnx`; None
            for no measurement. With it, the explanation names what costs more than it saves.

    Returns:
        Status, rule, reason and fix per layer.

    Raises:
        TargetError: If there is no such target.
        SpecError: If `latency` was measured without a baseline, on the file of another model, or for another runtime.
        UnsupportedModelError: If the model's graph cannot be read.
        UnbuiltModelError: If the model does not know its input shape.

    Example:
        >>> import keras
        >>> image = keras.Input((8, 8, 3), name="image")
        >>> model = keras.Model(image, keras.layers.Conv2D(4, 3, name="conv")(image))
        >>> explain(model, target="onnxruntime").for_layer("conv").status
        'int8'
    """
    plan = plan_or_model if isinstance(plan_or_model, PlacementPlan) else getattr(plan_or_model, "plan", None)
    measured = None if latency is None else latency.target
    if target is None and measured != getattr(plan, "target", None):  # the same name: a plan's own may be altered
        target = measured
    if not isinstance(plan, PlacementPlan):
        plan = plan_placement(plan_or_model, target=target or "onnxruntime")
    return explain_plan(plan, plan.target_object if target is None else target, latency)


def replace_cases(
    plan: PlacementPlan, model: Any, cases: Iterable[CustomQDQInsertionCase], spec: QuantizationSpec | None = None
) -> PlacementPlan:
    """Return the plan with these cases in place of those that it was made with; what a spec decided stays.

    Args:
        plan: A plan.
        model: The float model that it is of, for cases that look at Keras layers.
        cases: The cases; none for the defaults.
        spec: What the plan was made with, for cases to read; None for nothing.

    Raises:
        SpecError: If something is no case, or a case returns what planning cannot use.
        PlacementConflictError: If two cases disagree.
    """
    given, target = _checked_spec(spec), plan.target_object
    case_specs = [(_case_name(case), _run_case(case, model, plan.graph, given, target)) for case in cases]
    if plan.mode == "partial" and not any(found.layers for _, found in case_specs):
        return plan  # without a spec and cases there is nothing to decide

    def resolve(node: Node, config: Any, source: str) -> Settings:
        is_plain = isinstance(config, LayerQuantizeConfig)
        return (settings_of if is_plain else _resolver(bind_graph(model)))(node, config, source)

    decisions = with_global_grid(decide(plan.graph, plan.mode, None, case_specs, resolve, None))
    kept = {name: decision for name, decision in plan.decisions.items() if _is_kept(decision)}
    return make_plan(plan.graph, {**decisions, **kept}, plan.mode, target)


def _is_kept(decision: Decision) -> bool:
    """Return whether neither a default nor a case decided, or a tensor's pairs were overridden."""
    by_user = decision.author.startswith("spec[") or decision.author in (AUTHOR, "search")
    return by_user or bool(decision.overrides)


def _resolver(bound: BoundGraph) -> Resolver:
    """Return the function that turns a `quantize_config` into settings, with the Keras layers at hand."""
    layers: dict[str, Any] = {}

    def resolve(node: Node, config: Any, source: str) -> Settings:
        if isinstance(config, LayerQuantizeConfig):
            return settings_of(node, config, source)
        if not layers:
            layers.update((call.node.layer, call.operation) for call in bound.calls)
        layer = layers.get(node.layer)
        if layer is None or node.is_operation:
            raise SpecError(
                f"{source}: a QuantizeConfig is for a layer; {node.layer!r} is "
                f"{'an operation' if node.is_operation else 'an input of the model'}. Use a LayerQuantizeConfig. "
                f"Received: {type(config).__name__}"
            )
        return ask_config(config, node, layer, layer_weights(layer), source)

    return resolve


def _checked_spec(spec: QuantizationSpec | None) -> QuantizationSpec:
    if spec is None:
        return QuantizationSpec()
    if not isinstance(spec, QuantizationSpec):
        raise SpecError(
            "quantization_spec must be a QuantizationSpec: spec = QuantizationSpec(); spec.add(name). "
            f"Received: {type(spec).__name__}"
        )
    return spec.copy()


def _case_name(case: Any) -> str:
    return str(getattr(case, "name", None) or type(case).__name__)


def _run_case(case: Any, model: Any, graph: ModelGraph, spec: QuantizationSpec, target: Target) -> QuantizationSpec:
    """Call a case, and check that it returned what planning can use."""
    if isinstance(case, type) or not hasattr(case, "case"):
        raise SpecError(
            "custom_qdq_cases must hold instances of CustomQDQInsertionCase, such as [ResNetV1QDQCase()]. "
            f"Received: {case!r}"
        )
    case = case.for_target(target) if hasattr(case, "for_target") else case
    if isinstance(case, GraphCase) and type(case).case is GraphCase.case:
        found: Any = case.case_for_graph(graph, spec)
    elif isinstance(model, ModelGraph):
        raise SpecError(
            f"The case {_case_name(case)} looks at Keras layers, so plan_placement needs the Keras model. "
            "Pass the model instead of its graph. Received: a ModelGraph"
        )
    else:
        found = case.case(model, spec.copy())
    if found is None:
        return QuantizationSpec()
    if not isinstance(found, QuantizationSpec):
        raise SpecError(
            f"The method case() of {_case_name(case)} must return a QuantizationSpec (an empty one where it does not "
            f"apply). Received: {type(found).__name__}"
        )
    return found
