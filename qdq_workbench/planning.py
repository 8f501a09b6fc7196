"""`plan_placement` and `explain`: planning of the Q/DQ pairs of a model, and a prediction of a runtime's execution."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from qdq_workbench._numbers import whole
from qdq_workbench.cases.auto import AutoQDQCase
from qdq_workbench.cases.base import CustomQDQInsertionCase, GraphCase
from qdq_workbench.errors import SpecError
from qdq_workbench.graph.model_graph import ModelGraph, Node
from qdq_workbench.graph_builder import BoundGraph, bind_graph, layer_weights
from qdq_workbench.placement.ask_config import ask_config
from qdq_workbench.placement.decide import decide, decisions_of
from qdq_workbench.placement.decision import Decision
from qdq_workbench.placement.framework import AUTHOR
from qdq_workbench.placement.global_grid import with_global_grid
from qdq_workbench.placement.plan import PlacementPlan
from qdq_workbench.placement.planner import make_plan, meant_target
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
    """Plan the Q/DQ pairs of a model, without building a quantized model.

    `qdq_workbench.G_NUM_BITS`, `G_NARROW_RANGE` and `G_SYMMETRIC` are the defaults of quantizers without own settings.

    Args:
        model: A built Keras model, or its `ModelGraph` (cases that inspect Keras layers need the model, and so does a
            `QuantizeConfig`).
        quantization_mode: "full" (defaults for every layer, changed by spec and cases) or "partial" (only the layers
            that spec and cases name).
        quantization_spec: The user's settings; it is only read.
        custom_qdq_cases: Insertion cases; two of them must not decide differently about a layer.
        target: The inference runtime to place pairs for, one of `target_names()`.
        framework_info: Replaces the defaults for the layers about which neither the spec nor a case decides.

    Returns:
        The plan: every placement with its author and reason.

    Raises:
        SpecError: If an entry matches nothing, names an input that a layer does not have, or nothing is quantized.
        PlacementConflictError: If two cases disagree.
        ModeError: If the mode is unknown.
        TargetError: If the target is unknown.
        UnsupportedModelError: If the model's graph cannot be read, or has layers that compute with text or look up
            values in a table; the message contains the code that splits them off.
        UnbuiltModelError: If the model's input shape is unknown.

    Warns:
        UserWarning: If a layer or an activation is not in `framework_info`, and so stays in float.

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
    return make_plan(graph, with_global_grid(graph, decisions), quantization_mode, target)


def explain(
    plan_or_model: Any,
    target: str | Target | None = None,
    *,
    latency: Latency | None = None,
    opset: int | None = None,
) -> Explanation:
    """Return for every layer whether an inference runtime will compute it in INT8, and the reason if it will not.

    Args:
        plan_or_model: A plan, a model made by `quantize_model`, a float model (planned with the defaults), or what
            `files.read_layers` read from an exported file.
        target: The runtime, one of `target_names()`. None for the target of the measured file; without `latency` for
            that of the plan, or "onnxruntime" for a float model. The name of the plan's own target means the plan's
            own, also if it is an altered one; `get_target(name)` is always the registered one.
        latency: The `LatencyReport` of the exported file against the float file, from `profiling.profile_onnx`; None
            without a measurement. With it, the explanation also has the measured gain or loss of every island.
        opset: The opset of the ONNX file, on which ONNX Runtime's kernels for 4-bit weights depend; None for that of
            the exported file, otherwise for the one that `export_onnx` chooses.

    Returns:
        Status, rule, reason and fix per layer.

    Raises:
        TargetError: If there is no such target.
        SpecError: If `latency` was measured without a baseline, on the file of another model, or for another runtime;
            or if `opset` is not an integer.
        UnsupportedModelError: If the model's graph cannot be read.
        UnbuiltModelError: If the model's input shape is unknown.

    Example:
        >>> import keras
        >>> image = keras.Input((8, 8, 3), name="image")
        >>> model = keras.Model(image, keras.layers.Conv2D(4, 3, name="conv")(image))
        >>> explain(model, target="onnxruntime").for_layer("conv").status
        'int8'
    """
    plan = plan_or_model if isinstance(plan_or_model, PlacementPlan) else getattr(plan_or_model, "plan", None)
    opset = whole(getattr(plan_or_model, "opset", None) if opset is None else opset)
    if opset is not None and (isinstance(opset, bool) or not isinstance(opset, int)):
        raise SpecError(f"opset must be an integer such as 17 or 21, or None. Received: opset={opset!r}")
    if target is None and latency is not None:
        target = latency.target
    if not isinstance(plan, PlacementPlan):
        plan = plan_placement(plan_or_model, target=target or "onnxruntime")
    elif target is not None:
        plan = retarget_plan(plan, target)
    return explain_plan(plan, latency, opset=opset)


def retarget_plan(plan: PlacementPlan, target: str | Target) -> PlacementPlan:
    """Return the plan for another target, as `meant_target` decides: the user's decisions stay, the pairs follow.

    `AutoQDQCase` decides for the target of the plan, so it is asked again if the plan's decisions are its own.
    """
    meant = meant_target(plan, target)
    if meant == plan.target_object:
        return plan
    other = make_plan(plan.graph, plan.decisions, plan.mode, meant)
    cases = {each.author for each in plan.decisions.values() if each.is_explicit and not _is_kept(each)}
    if cases != {AutoQDQCase.__name__}:
        return other
    # One made for a given target, or a plan that was changed by hand, decides otherwise than the case for this target.
    if replace_cases(plan, plan.graph, [AutoQDQCase()]).decisions != plan.decisions:
        return other
    return replace_cases(other, plan.graph, [AutoQDQCase()])


def replace_cases(
    plan: PlacementPlan, model: Any, cases: Iterable[CustomQDQInsertionCase], spec: QuantizationSpec | None = None
) -> PlacementPlan:
    """Return a plan with its cases replaced; the decisions of the spec are kept.

    In partial mode the plan stays as it is if nothing would be left to quantize.
    """
    spec, target = _checked_spec(spec), plan.target_object
    case_specs = [(_case_name(case), _run_case(case, model, plan.graph, spec, target)) for case in cases]
    kept = {name: decision for name, decision in plan.decisions.items() if _is_kept(decision)}
    given = any(decision.is_explicit and name not in kept for name, decision in plan.decisions.items())
    if plan.mode == "partial" and not given and not any(found.layers for _, found in case_specs):
        return plan  # there are no decisions of cases, neither before nor now
    found = decisions_of(plan.graph, plan.mode, None, case_specs, _late_resolver(lambda: model))
    decisions = {**with_global_grid(plan.graph, found), **kept}
    if plan.mode == "partial" and all(decision.is_float for decision in decisions.values()):
        return plan  # the new cases would leave nothing to quantize
    return make_plan(plan.graph, decisions, plan.mode, target)


def decisions_by_spec(
    plan: PlacementPlan, model: Callable[[], Any], spec: QuantizationSpec | None
) -> dict[str, Decision]:
    """Return the decisions to which a specification leads in the mode of a plan, without cases."""
    found = decisions_of(plan.graph, plan.mode, _checked_spec(spec), (), _late_resolver(model))
    return with_global_grid(plan.graph, found)


def _is_kept(decision: Decision) -> bool:
    """Return whether a spec, a framework info or a search decided, or a tensor's pairs were overridden."""
    by_user = decision.author.startswith("spec[") or decision.author in (AUTHOR, "search")
    return by_user or bool(decision.overrides)


def _late_resolver(model: Callable[[], Any]) -> Resolver:
    """Return the function that converts a `quantize_config` to settings; only a QuantizeConfig needs the model."""

    def resolve(node: Node, config: Any, source: str) -> Settings:
        is_plain = isinstance(config, LayerQuantizeConfig)
        return (settings_of if is_plain else _resolver(bind_graph(model())))(node, config, source)

    return resolve


def _resolver(bound: BoundGraph) -> Resolver:
    """Return the function that converts a `quantize_config` to settings, with access to the Keras layers."""
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
    """Return the specification of a case; raise SpecError if it is no case or returns something else."""
    if isinstance(case, type) or not hasattr(case, "case"):
        raise SpecError(
            "custom_qdq_cases must hold instances of CustomQDQInsertionCase, such as [ResNetV1QDQCase()]. "
            f"Received: {case!r}"
        )
    case = case.for_target(target) if hasattr(case, "for_target") else case
    # A subclass that overrides `case` wants the Keras model. Either gets a copy of the spec, because a user's case may
    # add its entries to it.
    if isinstance(case, GraphCase) and type(case).case is GraphCase.case:
        found: Any = case.case_for_graph(graph, spec.copy())
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
