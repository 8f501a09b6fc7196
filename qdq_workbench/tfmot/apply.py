"""`quantize_apply`: quantization of an annotated model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras

from qdq_workbench import LayerQuantizeConfig, Node, QuantizationSpec, QuantizeConfig, QuantizedModel, Target
from qdq_workbench.conversion.engine.quantize_model import quantize_named
from qdq_workbench.conversion.engine.rebuild import Rebuilder, clone_operation, keras_name, unique_names
from qdq_workbench.errors import SpecError
from qdq_workbench.graph.op_kinds import BEFORE_ACTIVATION
from qdq_workbench.graph_builder import BoundGraph, Call, bind_graph
from qdq_workbench.tfmot.annotate import QuantizeAnnotate, inner_of, quantize_annotate_model
from qdq_workbench.tfmot.default_scheme import default_config, output_config
from qdq_workbench.tfmot.schemes import Default8BitQuantizeScheme, DefaultQuantizeScheme

_PREFIX = "quant_"


def quantize_scope(*args: Mapping[str, Any]) -> Any:
    """Return a scope in which Keras can deserialize the given classes, the library's own and those of an outer scope.

    Inside it Keras also loads the `.h5` files written by a quantized model's `save`: they hold unregistered class
    names, which Keras resolves only in scopes.

    Args:
        *args: Dictionaries of classes by name.

    Example:
        >>> with quantize_scope({"MyLayer": keras.layers.Dense}):
        ...     keras.saving.get_registered_object("MyLayer").__name__
        'Dense'
    """
    # Keras's scopes replace each other; those of Keras 2 add to each other.
    outer = keras.saving.custom_object_scope({})
    with outer:
        known: dict[str, Any] = {**(outer.backup or {}), "QuantizedModel": QuantizedModel}
    for names in args:
        known.update(names)
    return keras.saving.custom_object_scope(known)


def quantize_model(
    to_quantize: keras.Model,
    quantized_layer_name_prefix: str | None = _PREFIX,
    *,
    target: str | Target = "onnxruntime",
) -> QuantizedModel:
    """Quantize every layer of a model by TFMOT's default 8-bit scheme; Lambda layers stay in float, with a warning.

    Args:
        to_quantize: A built sequential or functional model; it is only read.
        quantized_layer_name_prefix: The prefix of the names of quantized layers; None for none.
        target: The inference runtime to place pairs for.

    Returns:
        The quantized model, not compiled.

    Raises:
        SpecError: If the scheme has no rule for a layer, the model is quantized already, or the prefix is not a string
            without a slash.

    Warns:
        UserWarning: If the model has Lambda layers.

    Example:
        >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2, name="head")])
        >>> [layer.name for layer in quantize_model(model).wrappers]
        ['quant_head']
    """
    _refuse_quantized(to_quantize, "quantize_model")
    prefix = _checked_prefix(quantized_layer_name_prefix)
    return quantize_apply(quantize_annotate_model(to_quantize), None, prefix, target=target)


def quantize_apply(
    model: keras.Model,
    scheme: DefaultQuantizeScheme | None = None,
    quantized_layer_name_prefix: str | None = _PREFIX,
    *,
    target: str | Target = "onnxruntime",
) -> QuantizedModel:
    """Quantize the annotated layers of a model.

    The scheme applies to layers annotated without a config. Model inputs that annotated layers read are quantized too,
    and so are the outputs of other layers before annotated ones, if the scheme quantizes such outputs.
    A layer whose pair is before its activation (softmax, sigmoid, tanh, gelu) is split in two, so that a file can hold
    the pair.

    Args:
        model: A model with annotated layers; it is only read.
        scheme: `Default8BitQuantizeScheme` or `DefaultNBitQuantizeScheme`; None for the former.
        quantized_layer_name_prefix: The prefix of the names of quantized layers; None for none.
        target: The inference runtime to place pairs for.

    Returns:
        The quantized model with the weights of the annotated one, not compiled.

    Raises:
        SpecError: If no layer is annotated, the scheme has no rule for a layer, the model is quantized already, or
            scheme or prefix is of another type.
        UnsupportedModelError: If the model's graph cannot be read.

    Example:
        >>> from qdq_workbench.tfmot import quantize_annotate_layer
        >>> dense = keras.layers.Dense(2, activation="sigmoid", name="head")
        >>> annotated = keras.Sequential([keras.Input((4,)), quantize_annotate_layer(dense)])
        >>> [layer.name for layer in quantize_apply(annotated).layers][-2:]
        ['qdq_head', 'head_sigmoid']
    """
    scheme = Default8BitQuantizeScheme() if scheme is None else scheme
    if not isinstance(scheme, DefaultQuantizeScheme):
        raise SpecError(
            "quantize_apply knows Default8BitQuantizeScheme and DefaultNBitQuantizeScheme; describe anything else with "
            f"QuantizeConfig per layer. Received: scheme={scheme!r}"
        )
    prefix = _checked_prefix(quantized_layer_name_prefix)
    _refuse_quantized(model, "quantize_apply")
    bound = bind_graph(model, enter_layers=False)
    if not any(isinstance(call.operation, QuantizeAnnotate) for call in bound.calls):
        raise SpecError(
            "No layer of the model is annotated. Mark the layers with quantize_annotate_layer(layer), or all of them "
            f"with quantize_annotate_model(model). Received: model {model.name!r}"
        )
    return apply_marks(model, None, target, scheme, prefix)


def apply_marks(
    model: keras.Model,
    inputs: Mapping[str, Any] | None,
    target: str | Target,
    scheme: DefaultQuantizeScheme | None = None,
    prefix: str = _PREFIX,
) -> QuantizedModel:
    """Quantize the annotated layers of a model, and its inputs.

    Args:
        model: A model with annotated layers; it is only read.
        inputs: The quantize configs of inputs by name; None to quantize the inputs by the scheme.
        target: The inference runtime to place pairs for.
        scheme: The scheme for layers without a config; None for the 8-bit scheme.
        prefix: The prefix of the names of quantized layers.
    """
    builder = _Unwrapper(bind_graph(model, enter_layers=False))
    plain = builder.rebuilt(model.name)
    spec = _SpecOf(plain, builder.marks, scheme or Default8BitQuantizeScheme())
    return quantize_named(plain, spec.with_inputs(inputs), target=target, prefix=prefix)


def _checked_prefix(prefix: Any) -> str:
    if prefix is not None and (not isinstance(prefix, str) or "/" in prefix):
        raise SpecError(
            "quantized_layer_name_prefix must be a text without a slash, such as 'quant_', or None for nothing. "
            f"Received: quantized_layer_name_prefix={prefix!r}"
        )
    return prefix or ""


def _refuse_quantized(model: Any, function: str) -> None:
    if isinstance(model, QuantizedModel):
        raise SpecError(
            f"{function} takes a float model; this one is quantized already. Train or export it as it is, change its "
            "plan with qdq_workbench.retarget, or begin again from qdq_workbench.strip(model). "
            f"Received: quantized model {model.name!r}"
        )


class _Unwrapper(Rebuilder):
    """Rebuilds an annotated model without annotations; splits off activations whose input is quantized."""

    def __init__(self, bound: BoundGraph) -> None:
        super().__init__(bound)
        # The names of the layers inside, not those that Keras gave the annotations.
        names = {call.node.layer: keras_name(inner_of(call.operation).name) for call in bound.calls}
        inputs = {path: keras_name(path) for path in bound.input_tensors}
        self.names = unique_names({**inputs, **names})
        self._taken = set(self.names.values())
        self.marks: dict[str, Any] = {}  # by the new layer's name: its config, or None for the default

    def make(self, call: Call) -> Any:
        layer, name = inner_of(call.operation), self.names[call.node.layer]
        clone = self.begun_as(layer, clone_operation(layer, name))
        if not isinstance(call.operation, QuantizeAnnotate):
            return clone
        config = call.operation.quantize_config
        self.marks[name] = config
        found = _activation_before(layer, config)
        if found is None:
            return clone
        function = layer.activation
        # The pair stands between this layer and its activation, which therefore becomes a layer of its own.
        linear = type(layer).from_config({**layer.get_config(), "activation": "linear"})
        clone = self.begun_as(layer, clone_operation(linear, name))
        split = keras.layers.Activation(function, name=self.free_name(f"{name}_{found}"), dtype=layer.dtype_policy)
        self.behind[call.node.layer] = split
        self.marks[split.name] = None if config is None else _after_activation(layer, config, found)
        return clone

    def copy_weights(self) -> None:
        sources = {call.node.layer: call.operation for call in self.bound.calls}
        for layer, clone in self.clones.items():
            if isinstance(clone, keras.layers.Layer):
                self.copy_state(inner_of(sources[layer]), clone)


class _OutputOnly(QuantizeConfig):
    """Quantizes the output of a layer, or nothing."""

    def __init__(self, quantizers: list[Any]) -> None:
        self.quantizers = quantizers

    def get_weights_and_quantizers(self, layer: Any) -> list[tuple[Any, Any]]:  # noqa: ARG002 (the interface)
        return []

    def get_activations_and_quantizers(self, layer: Any) -> list[tuple[Any, Any]]:  # noqa: ARG002 (the interface)
        return []

    def set_quantize_weights(self, layer: Any, quantize_weights: list[Any]) -> None:
        pass

    def set_quantize_activations(self, layer: Any, quantize_activations: list[Any]) -> None:
        pass

    def get_output_quantizers(self, layer: Any) -> list[Any]:  # noqa: ARG002 (the interface)
        return self.quantizers

    def get_config(self) -> dict[str, Any]:
        return {"quantizers": [keras.saving.serialize_keras_object(quantizer) for quantizer in self.quantizers]}


def _activation_before(layer: Any, config: Any) -> str | None:
    """Return the name of the layer's activation if the pair is before it, so that it must be split off; else None."""
    function = getattr(layer, "activation", None)
    if function is None or isinstance(layer, keras.layers.Activation) or not layer.weights:
        return None
    name = getattr(function, "__name__", "")
    if name not in BEFORE_ACTIVATION:
        return None
    if config is None or (isinstance(config, QuantizeConfig) and config.get_activations_and_quantizers(layer)):
        return str(name)
    return None


def _after_activation(layer: Any, config: Any, activation: str) -> _OutputOnly:
    """Return the config of a split-off activation: the output quantizers, or for gelu without any the activation's."""
    quantizers = list(config.get_output_quantizers(layer) or ())
    if activation == "gelu" and not quantizers:
        quantizers = [quantizer for _, quantizer in config.get_activations_and_quantizers(layer)]
    return _OutputOnly(quantizers)


class _SpecOf:
    """Builds the specification for the annotations of a model."""

    def __init__(self, plain: keras.Model, marks: Mapping[str, Any], scheme: DefaultQuantizeScheme) -> None:
        self.graph = bind_graph(plain, enter_layers=False).graph
        self.marks, self.scheme = marks, scheme
        self.spec = QuantizationSpec()

    def with_inputs(self, inputs: Mapping[str, Any] | None) -> QuantizationSpec:
        """Return the specification; with None for `inputs`, those that an annotated layer reads are quantized."""
        defaults = {
            node.name for node in self.graph.nodes if node.layer in self.marks and self.marks[node.layer] is None
        }
        done: set[str] = set()
        for node in self.graph.nodes:
            # An entry with a layer's name applies to all of its calls.
            if node.layer in done:
                continue
            done.add(node.layer)
            if node.layer not in self.marks:
                config = self._in_front(node) if inputs is None else inputs.get(node.layer)
                if config is not None and self.graph.tensors[node.outputs[0]].is_float:
                    self.spec.add(
                        node.layer,
                        quantize_input=False,
                        quantize_weight=False,
                        quantize_output=True,
                        quantize_config=config,
                    )
                continue
            config = self.marks[node.layer] or default_config(self.graph, node, defaults, self.scheme)
            if config is not None:
                self.spec.add(node.layer, quantize_input=False, quantize_config=config)
        return self.spec

    def _in_front(self, node: Node) -> Any:
        """Return the output config of a layer without annotation, determined by its readers; None for float."""
        readers = [reader for tensor in node.outputs for reader, _ in self.graph.readers(tensor)]
        marked = [reader for reader in readers if reader.layer in self.marks]
        if node.name in self.graph.inputs:
            grid = {"num_bits": self.scheme.num_bits_activation, "symmetric": False, "quantizer": "all_values"}
            return LayerQuantizeConfig(output=grid) if marked else None
        # As in TFMOT, which looks only at annotated layers with one call and one input.
        alone = [reader for reader in marked if len(reader.inputs) == 1 and len(self.graph.calls(reader.layer)) == 1]
        return output_config(node, self.scheme) if alone else None
