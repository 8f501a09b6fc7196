"""`quantize_model`: build the model that a plan describes."""

from __future__ import annotations

import types
from collections.abc import Iterable, Mapping
from typing import Any

import keras

from qdq_workbench._collector import collector_paused
from qdq_workbench._interrupts import interrupts_held
from qdq_workbench._warned_line import warn_caller
from qdq_workbench.cases.base import CustomQDQInsertionCase
from qdq_workbench.conversion.engine.own_training import own_training, warn_about_training
from qdq_workbench.conversion.engine.quantized_model import QuantizedModel, colliding_names, quantized_class
from qdq_workbench.conversion.engine.rebuild import Rebuilder, keras_name, model_name
from qdq_workbench.errors import LowCoverageWarning, SpecError, UnsupportedModelError
from qdq_workbench.graph_builder import FUNCTIONAL, BoundGraph, Call, bind_graph, integers_of, output_names
from qdq_workbench.placement.coverage import low_coverage
from qdq_workbench.placement.plan import Placement, PlacementPlan, PlannedTensor
from qdq_workbench.placement.planner import check_is_plan, check_target
from qdq_workbench.placement.targets import Target
from qdq_workbench.planning import plan_placement
from qdq_workbench.quantizers.make import make_quantizer
from qdq_workbench.spec.framework_info import FrameworkInfo
from qdq_workbench.spec.quantization_spec import QuantizationSpec
from qdq_workbench.wrappers import BaseQuantizeWrapper, QuantizeDequantize, wrapper_class_for


@collector_paused()
def quantize_model(
    model: keras.Model,
    quantization_mode: str = "full",
    quantization_spec: QuantizationSpec | None = None,
    custom_qdq_cases: Iterable[CustomQDQInsertionCase] | None = None,
    *,
    target: str | Target = "tensorrt",
    framework_info: FrameworkInfo | None = None,
    plan: PlacementPlan | None = None,
) -> QuantizedModel:
    """Return a copy of a Keras model with Q/DQ pairs inserted.

    The copy is a plain Keras model with the same weights. Nested models are flattened: the layers in them are
    quantized and named after their paths, with dots. Activation quantizers have no range until `calibrate` or training
    sets one; until then they pass values unchanged.

    Args:
        model: A built functional or sequential Keras 3 model; it is only read.
        quantization_mode: "full" (defaults for every layer, changed by spec and cases) or "partial" (only what
            spec and cases name).
        quantization_spec: Which layers, inputs, weights and outputs to quantize; it is only read.
        custom_qdq_cases: Insertion cases.
        target: The inference runtime on whose grid the model computes, one of `qdq.targets.target_names()`.
        framework_info: Replaces the defaults for the layers that neither the spec nor the cases decide.
        plan: A plan of this very model, in place of mode, spec, cases and framework_info. Its target applies;
            `target` may be left out.

    Returns:
        The quantized model, not compiled.

    Raises:
        SpecError: If the specification does not fit the model, a plan is of another model, or a plan is combined with
            mode, spec, cases, framework_info or another target.
        PlacementConflictError: If two cases disagree.
        ModeError: If the mode is unknown.
        TargetError: If the target is unknown.
        UnsupportedModelError: If the model's graph cannot be read, a layer cannot be copied, or the model is
            quantized already.
        UnbuiltModelError: If the model does not know its input shape.

    Warns:
        LowCoverageWarning: If most of the model stays in float in full mode, because planning does not know its
            layers; of the module `qdq_workbench.errors`.
        UserWarning: If the copy cannot keep the training methods that the model's class overrides (such as
            `train_step`), or an attribute that was set on the model. Otherwise it trains as that class does.

    Example:
        >>> image = keras.Input((8, 8, 3), name="image")
        >>> model = keras.Model(image, keras.layers.Conv2D(4, 3, name="conv")(image))
        >>> [layer.name for layer in quantize_model(model).layers]
        ['image', 'qdq_image', 'quant_conv']
    """
    if plan is not None:
        check_is_plan(plan)
    bound = _bound_as_planned(model, plan)
    check_is_float(bound)
    if plan is None:
        # Cases look at Keras layers, so they need the model; otherwise its graph need not be read twice.
        source: Any = model if custom_qdq_cases else bound
        plan = plan_placement(
            source,
            quantization_mode,
            quantization_spec,
            custom_qdq_cases,
            target=target,
            framework_info=framework_info,
        )
    elif quantization_spec is not None or custom_qdq_cases or quantization_mode != "full" or framework_info is not None:
        raise SpecError(
            "A plan already holds every decision; pass either plan=... or the mode, the spec, the cases and the "
            "framework_info. "
            "Received: both"
        )
    if plan.graph.nodes != bound.graph.nodes:
        raise SpecError(
            "The plan is of another model: its layers differ from this model's. Make a plan of this model with "
            f"plan_placement(model). Received: plan of {plan.graph.name!r}, "
            f"model {model.name!r}"
        )
    check_target(plan, target)
    return _as_planned(bound, plan, quantization_spec, model)


@collector_paused()
def quantize_named(model: keras.Model, spec: QuantizationSpec, *, target: str | Target, prefix: str) -> QuantizedModel:
    """Quantize only the layers that a specification names, in wrappers of that prefix; composite layers stay whole."""
    bound = bind_graph(model, enter_layers=False)
    check_is_float(bound)
    plan = plan_placement(bound, "partial", spec, target=target)
    return _as_planned(bound, plan, spec, model, prefix)


def _bound_as_planned(model: keras.Model, plan: PlacementPlan | None) -> BoundGraph:
    """Return a model's graph; composite layers stay one node each if the plan was made so, as by older versions."""
    bound = bind_graph(model)
    if plan is not None and plan.graph.nodes != bound.graph.nodes and bound.graph.blocks:
        whole = bind_graph(model, enter_layers=False)
        return whole if plan.graph.nodes == whole.graph.nodes else bound
    return bound


def _as_planned(
    bound: BoundGraph, plan: PlacementPlan, spec: QuantizationSpec | None, model: keras.Model, prefix: str = "quant_"
) -> QuantizedModel:
    """Build the model that a plan of a float model describes, and warn if almost all of it stays in float."""
    little = low_coverage(plan)
    if little:
        warn_caller(LowCoverageWarning(little))
    configs = _layer_configs(plan, spec)
    return build_quantized(bound, plan, model.name, output_names(model), configs=configs, prefix=prefix)


def _layer_configs(plan: PlacementPlan, spec: QuantizationSpec | None) -> dict[str, Any]:
    """Return the `quantize_config` of the spec entry that decided each layer, by layer path."""
    entries = {f"spec[{position}]": entry for position, entry in enumerate(spec.layers if spec else ())}
    found: dict[str, Any] = {}
    for node in plan.graph.nodes:
        decision = plan.decisions.get(node.name)
        entry = None if decision is None or decision.settings is None else entries.get(decision.author)
        if entry is not None:
            found.setdefault(node.layer, entry.quantize_config)
    return found


def build_quantized(
    bound: BoundGraph,
    plan: PlacementPlan,
    name: str,
    source_outputs: list[str],
    *,
    float32: bool = False,
    configs: Mapping[str, Any] | None = None,
    wrappers: Mapping[str, BaseQuantizeWrapper] | None = None,
    prefix: str = "quant_",
) -> QuantizedModel:
    """Build the model that a plan describes from a float model's graph, whose layers are cloned.

    `float32` lets the new model compute in float32, whatever the dtype policies say. By layer path, `configs` has the
    `quantize_config` that its wrapper stores, and `wrappers` the existing wrapper whose name and weight quantizers'
    states are copied; `prefix` begins the names of other wrappers.
    """
    builder = _Quantizer(bound, plan, configs or {})
    builder.prefix = prefix
    builder.wrapper_names = {path: wrapper.name for path, wrapper in (wrappers or {}).items()}
    builder.float32 = float32
    with interrupts_held():
        q_model = builder.rebuilt(model_name(name), _quantized_class(bound.model))
        builder.start_weight_ranges(wrappers or {})
        q_model.attach(plan, builder.layer_paths(), source_outputs)
        return q_model


def check_is_float(bound: BoundGraph) -> None:
    """Raise an error if a model holds Q/DQ layers already.

    Raises:
        UnsupportedModelError: If a layer was made by `quantize_model`.
    """
    for call in bound.calls:
        state = getattr(call.operation, "model_state", None)
        if state is not None and state.data is not None:
            raise UnsupportedModelError(
                "The model is quantized already, or holds a part that is: it has Q/DQ layers made by quantize_model. "
                "Take its float model with qdq_workbench.strip(q_model) and quantize that; to change the target use "
                f"qdq_workbench.retarget(q_model, target). Received: layer {call.node.layer!r}"
            )


def _quantized_class(source: Any) -> type[QuantizedModel]:
    """Return the class of the quantized model: one that keeps the training of the source's class, if possible."""
    if not own_training(source):
        return QuantizedModel
    if isinstance(source, QuantizedModel) and source.own_class is not None:
        return type(source)
    if not isinstance(source, FUNCTIONAL):
        warn_about_training(source, "derive the class from keras.Model, not from keras.Sequential")
        return QuantizedModel
    taken = colliding_names(source)
    if taken:
        warn_about_training(source, f"rename what a quantized model has already ({', '.join(taken)})")
        return QuantizedModel
    own: Any = type(source)
    return quantized_class(own)


class _Quantizer(Rebuilder):
    """Rebuilds a float graph with Q/DQ layers on tensors and wrappers around layers."""

    takes_integers = True
    prefix = "quant_"
    plan: PlacementPlan
    wrapper_names: Mapping[str, str] = types.MappingProxyType({})

    def __init__(self, bound: BoundGraph, plan: PlacementPlan, configs: Mapping[str, Any]) -> None:
        super().__init__(bound)
        self.plan = plan
        self._configs = configs
        self._pairs: dict[str, Any] = {}
        self._pair_layers: dict[str, QuantizeDequantize] = {}
        self._inner: dict[str, Any] = {}
        self._weights: dict[str, list[Placement]] = {}
        self._wrapped: set[str] = set()
        for placement in plan.placements:
            if placement.site == "weight":
                self._weights.setdefault(placement.layer, []).append(placement)
            if placement.site != "output":
                self._wrapped.add(placement.layer)

    def make(self, call: Call) -> Any:
        clone = self.copy(call)
        self._inner[call.node.layer] = clone
        # Operations have no weights; pairs quantize their inputs.
        if call.node.layer not in self._wrapped or call.node.is_operation:
            return clone
        placed = {p.weight: p for p in self._weights.get(call.node.layer, ()) if p.weight is not None}
        weights = {name: placement.quantizer for name, placement in placed.items()}
        methods = {name: placement.method for name, placement in placed.items() if placement.method is not None}
        own: dict[str, Any] = {"weight_methods": methods} if methods else {}
        if self._configs.get(call.node.layer) is not None:
            own["quantize_config"] = self._configs[call.node.layer]
        wrapper_class = wrapper_class_for(call.node.classes, has_weights=bool(weights))
        own_name = self._wrapper_name(call.node.layer)
        return wrapper_class(clone, quantize_inputs=False, weight_quantizers=weights, name=own_name, **own)

    def _wrapper_name(self, layer: str) -> str:
        """Return the name of a layer's wrapper; it may equal the layer's own name, which is unique in the model."""
        wanted = self.wrapper_names.get(layer, f"{self.prefix}{self.names[layer]}")
        return wanted if wanted == self.names[layer] else self.free_name(wanted)

    def copy_weights(self) -> None:
        # `clones` holds wrappers; the variables of the source belong to the layers inside them.
        sources = {call.node.layer: call.operation for call in self.bound.calls}
        for layer, clone in self._inner.items():
            if isinstance(clone, keras.layers.Layer):
                self.copy_state(sources[layer], clone)

    def start_weight_ranges(self, sources: Mapping[str, BaseQuantizeWrapper]) -> None:
        """Set the stored ranges of weight quantizers, from the wrappers in `sources` or else from the weights."""
        for layer, clone in self.clones.items():
            if isinstance(clone, BaseQuantizeWrapper):
                clone.start_weight_ranges(sources.get(layer))
        # The states of existing wrappers hold these grids already.
        if not sources:
            self._keep_grids_of_keras()

    def _keep_grids_of_keras(self) -> None:
        """Set the scales and zero points of weights that Keras itself quantized."""
        for call in self.bound.calls:
            clone = self.clones.get(call.node.layer)
            if isinstance(clone, BaseQuantizeWrapper):
                for name, integers in integers_of(call.operation).items():
                    clone.keep_grid(name, integers.scale, integers.zero_point)

    def layer_paths(self) -> dict[str, str]:
        """Return the path of every layer by its name in the quantized model."""
        return {name: path for path, name in self.names.items()}

    def pair(self, placement: Placement) -> Any:
        """Return the dequantized value of a tensor; all readers with equal quantizers share the pair."""
        pair = self.plan.pair_of(placement)
        if pair.name not in self._pairs:
            self._pairs[pair.name] = self._pair_layer(pair)(self.values[pair.tensor])
        return self._pairs[pair.name]

    def _pair_layer(self, pair: PlannedTensor) -> QuantizeDequantize:
        """Return the layer of a pair; the pairs of a scale group share one layer, and thus one range."""
        owner = self.plan.range_owners[pair.name]
        if owner not in self._pair_layers:
            name = self.free_name(f"qdq_{keras_name(owner)}")
            quantizer = make_quantizer(pair.quantizer, pair.method, "moving_average")
            self._pair_layers[owner] = QuantizeDequantize(owner, quantizer, name=name)
        return self._pair_layers[owner]
