"""A copy of a quantized model in which every layer's quantization has switches of its own.

In a quantized model all readers of a tensor share one Q/DQ pair, so switching that pair off changes all of them. Here
each reader has its own switch, as if a specification quantized that layer alone. Switches are variables, so changing
them does not retrace the model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import keras
import tensorflow as tf

from qdq_workbench.conversion.engine.float_view import float_view
from qdq_workbench.conversion.engine.quantized_model import QuantizedModel
from qdq_workbench.conversion.engine.rebuild import Rebuilder, clone_operation
from qdq_workbench.graph_builder import Call, bind_graph, layer_weights
from qdq_workbench.placement.plan import Placement
from qdq_workbench.quantizers.fake_quantize import fake_quantize_weight
from qdq_workbench.spec.quantizer_spec import QuantizerSpec
from qdq_workbench.wrappers import BaseQuantizeWrapper, QuantizeDequantize

SITES = ("input", "weight", "output")

#: A layer's path and one of `SITES`.
Switch = tuple[str, str]

#: Other grids of some layers' weights: by layer and weight, all quantized weights of each layer.
Grids = Mapping[str, Mapping[str, QuantizerSpec]]


class ReadSwitch(keras.layers.Layer):
    """Passes on the second of two tensors while any of its variables is true, else the first.

    Args:
        switches: Scalar bool variables.
        **kwargs: Those of `keras.layers.Layer`.
    """

    def __init__(self, switches: list[Any], **kwargs: Any) -> None:
        # Keras would cast both tensors to the compute dtype of the global policy.
        super().__init__(autocast=False, **kwargs)
        self.supports_masking = True
        self.switches = switches

    def call(self, inputs: Any) -> Any:
        """Return the second tensor, the quantized one, if any switch is on, else the first."""
        plain, quantized = inputs
        on = tf.reduce_any(tf.stack([tf.convert_to_tensor(switch) for switch in self.switches]))
        return tf.cond(on, lambda: tf.identity(quantized), lambda: tf.identity(plain))

    def compute_output_spec(self, inputs: Any) -> keras.KerasTensor:
        """Return a symbolic tensor like the first."""
        return keras.KerasTensor(inputs[0].shape, dtype=inputs[0].dtype)

    def compute_mask(self, inputs: Any, previous_mask: Any = None) -> Any:  # noqa: ARG002 - Keras's signature
        """Return the mask of the first tensor, which is also the second's."""
        return previous_mask[0] if isinstance(previous_mask, (list, tuple)) else previous_mask


class SwitchedCopy(Rebuilder):
    """Clones a quantized model's layers and puts a switch in front of every reader of a quantized tensor.

    The quantized model is only read; its own `enabled` and `bypassed` states are ignored.

    Args:
        q_model: A calibrated model made by `quantize_model`.
    """

    def __init__(self, q_model: QuantizedModel) -> None:
        super().__init__(bind_graph(q_model))
        self.positions: dict[Switch, int] = {}  # which call a switch acts on first
        self.copied_outputs: list[Any] = []
        self._plan = q_model.plan
        self._variables: dict[Switch, Any] = {}
        self._users: dict[str, list[Switch]] = {}
        self._pairs: dict[str, Call] = {}
        self._replaced: list[tuple[Any, Any]] = []
        others = []
        for call in self.bound.calls:
            if isinstance(call.operation, QuantizeDequantize):
                self._pairs[call.node.outputs[0]] = call
            else:
                others.append(call)
        # `float_view` walks the same calls in the same order and names them as the plan does.
        planned = [call.node for call in float_view(q_model).calls]
        self._planned = {call.node.name: node for call, node in zip(others, planned, strict=True)}
        self._position = {call.node.name: position for position, call in enumerate(self.bound.calls)}
        self._names_in_plan = {name: q_model.layer_paths[name] for name in self.bound.input_tensors}
        for call, node in zip(others, planned, strict=True):
            self._names_in_plan.update(zip(call.node.outputs, node.outputs, strict=True))
        self._build()

    @property
    def switches(self) -> list[Switch]:
        """All switches, in computing order of the layers."""
        order = {layer: position for position, layer in enumerate(self._plan.graph.layers)}
        return sorted(self._variables, key=lambda switch: (order[switch[0]], SITES.index(switch[1])))

    def set(self, on: Iterable[Switch], grids: Grids = MappingProxyType({})) -> None:
        """Turn these switches on and all others off; `grids` replace those of some layers' weights."""
        # Weights on another grid are stored as float values on that grid, so their quantizers are switched off.
        chosen = set(on).difference((layer, "weight") for layer in grids)
        for switch, variable in self._variables.items():
            variable.assign(switch in chosen)
        # `enabled` is a wrapper's own switch; a pair that no reader uses need not compute.
        for path, users in self._users.items():
            self.clones[path].enabled.assign(not chosen.isdisjoint(users))
        # Before `_store` below, which reads the present values as the float ones.
        for variable, value in self._replaced:
            variable.assign(value)
        self._replaced = [pair for layer, specs in grids.items() for pair in self._store(layer, specs)]

    def _store(self, layer: str, specs: Mapping[str, QuantizerSpec]) -> list[tuple[Any, Any]]:
        """Round a layer's weights to other grids; return the variables with their old values."""
        replaced = []
        for path, users in self._users.items():
            if (layer, "weight") in users and isinstance(self.clones[path], BaseQuantizeWrapper):
                variables = dict(layer_weights(self.clones[path].layer))
                for name, spec in specs.items():
                    replaced.append((variables[name], variables[name].numpy()))
                    variables[name].assign(fake_quantize_weight(variables[name].value, spec))
        return replaced

    def make(self, call: Call) -> Any:
        """Clone a layer; the one inside a wrapper by its own class, which need not be registered with Keras."""
        wrapper, name = call.operation, self.names[call.node.layer]
        if not isinstance(wrapper, BaseQuantizeWrapper):
            return super().make(call)
        config = {key: value for key, value in wrapper.get_config().items() if key not in ("layer", "model_state")}
        inner = clone_operation(wrapper.layer, wrapper.layer.name)
        return type(wrapper)(inner, **{**config, "name": name})

    def read(self, call: Call, index: int, tensor: str) -> Any:
        """Return the tensor that input `index` of a call reads, through a switch if the plan quantizes it."""
        if tensor not in self._pairs:
            return self.values[tensor]
        placement = self._plan.input_placement(self._planned[call.node.name].name, index)
        return self._switched(tensor, placement, self._position[call.node.name])

    def output(self, tensor: str) -> Any:
        """Return the model output of a tensor, through a switch if the plan quantizes it."""
        if tensor not in self._pairs:
            return self.values[tensor]
        # Behind the last call.
        return self._switched(tensor, None, len(self._position))

    def _build(self) -> None:
        self.run()
        self.copy_weights()
        self.copied_outputs = [self.output(ref.name) for ref in keras.tree.flatten(self.bound.output_structure)]
        quantized = {placement.layer for placement in self._plan.placements if placement.site == "weight"}
        for call in self.bound.calls:
            if isinstance(call.operation, BaseQuantizeWrapper):
                layer = self._planned[call.node.name].layer
                sites = ("weight",) if layer in quantized else SITES
                for site in sites:
                    if site == "weight" or (layer, site) in self._variables:
                        self._note((layer, site), call.node.layer, self._position[call.node.name])
        for clone in self.clones.values():
            if isinstance(clone, (QuantizeDequantize, BaseQuantizeWrapper)):
                clone.bypassed = False
        self.set(())

    def _switched(self, tensor: str, own: Placement | None, position: int) -> Any:
        """Return the float tensor, or the pair's output while a switch of its reader or of its producer is on."""
        source = self._pairs[tensor].node.inputs[0]
        shared = self._plan.output_placement(self._names_in_plan[source])
        value = self.values[source]
        for pair, placements in self._serving(tensor, source, own, shared):
            switches: list[Switch] = list(dict.fromkeys((p.layer, p.site) for p in placements))
            for switch in switches:
                self._note(switch, pair.node.layer, position)
            layer = ReadSwitch([self._variables[switch] for switch in switches], name=self.free_name("read_switch"))
            value = layer([value, self._quantized(pair)])
        return value

    def compute(self, call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the clone of an operation, unless it is a pair that an earlier reader has computed already."""
        known = self.values.get(call.node.outputs[0]) if call.node.outputs[0] in self._pairs else None
        return super().compute(call, args, kwargs) if known is None else known

    def _quantized(self, pair: Call) -> Any:
        """Return the output of a pair, computed on demand: a second pair of a tensor may come later in the order."""
        output = pair.node.outputs[0]
        if output not in self.values:
            self.values[output] = self.replacement(pair)(self.values[pair.node.inputs[0]])
        return self.values[output]

    def _serving(
        self, tensor: str, source: str, own: Placement | None, shared: Placement | None
    ) -> list[tuple[Call, list[Placement]]]:
        """Return the pairs that one reader can read through, the last takes precedence, each with its placements."""
        pair = self._pairs[tensor]
        wanted = [placement for placement in (shared, own) if placement is not None]
        if len(wanted) < 2 or wanted[0].pair_key == wanted[1].pair_key:
            return [(pair, wanted)] if wanted else []
        owner = self._plan.range_owners[self._plan.pair_of(wanted[0]).name]
        of_source = (call for call in self._pairs.values() if call.node.inputs[0] == source)
        other = next(call for call in of_source if getattr(call.operation, "tensor", None) == owner)
        return [(other, wanted[:1]), (pair, wanted[1:])]

    def _note(self, switch: Switch, clone: str, position: int) -> None:
        if switch not in self._variables:
            self._variables[switch] = keras.Variable(initializer=False, dtype="bool", trainable=False, name="switch")
            self.positions[switch] = position
        self.positions[switch] = min(self.positions[switch], position)
        users = self._users.setdefault(clone, [])
        if switch not in users:
            users.append(switch)
