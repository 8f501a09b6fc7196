"""The quantized model: a functional Keras model that remembers its plan and the ranges of all its tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras

from qdq_workbench.errors import NotQuantizedError
from qdq_workbench.placement.plan import PlacementPlan
from qdq_workbench.wrappers.base import BaseQuantizeWrapper
from qdq_workbench.wrappers.qdq import QuantizeDequantize

Range = tuple[float, float]


@keras.saving.register_keras_serializable(package="qdq_workbench")
class QuantizedModel(keras.Model):
    """A Keras model with Q/DQ pairs, made by `quantize_model`.

    It is trained, evaluated, saved, loaded and cloned like any functional model. Beyond that it knows its plan,
    and, once calibrated, the range of every activation tensor, so that it can be planned and exported for another
    target without data.
    """

    _plan: PlacementPlan | None = None

    def attach(self, plan: PlacementPlan, layer_paths: Mapping[str, str], output_names: list[str]) -> None:
        """Give the model its plan; called once, by the conversion.

        Args:
            plan: The plan that the model was built from.
            layer_paths: Path in the source model of every layer and operation, by its name in this model.
            output_names: The source model's output names.
        """
        self._plan = plan
        self._layer_paths = dict(layer_paths)
        self._source_output_names = list(output_names)
        self._recorded_ranges: dict[str, Range] = {}
        self._calibration: dict[str, Any] = {}

    @property
    def plan(self) -> PlacementPlan:
        """Where the Q/DQ pairs are, and why."""
        if self._plan is None:
            raise NotQuantizedError(_NOT_QUANTIZED.format(name=self.name))
        return self._plan

    @property
    def target(self) -> str:
        """Name of the target on whose grid the model computes."""
        return self.plan.target

    @property
    def layer_paths(self) -> Mapping[str, str]:
        """Path in the source model of every layer and operation, by its name in this model."""
        return self._layer_paths

    @property
    def source_output_names(self) -> list[str]:
        """The output names of the float model that was quantized."""
        return self._source_output_names

    @property
    def recorded_ranges(self) -> dict[str, Range]:
        """The range of every activation tensor that `calibrate` saw, quantized or not."""
        return dict(self._recorded_ranges)

    @property
    def calibration(self) -> dict[str, Any]:
        """How `calibrate` was last run: method, number of batches; empty before."""
        return dict(self._calibration)

    def record(self, ranges: Mapping[str, Range], calibration: Mapping[str, Any]) -> None:
        """Remember the ranges of activation tensors.

        Args:
            ranges: Lowest and highest value per tensor.
            calibration: How they were found.
        """
        self._recorded_ranges = {name: (float(low), float(high)) for name, (low, high) in ranges.items()}
        self._calibration = dict(calibration)

    @property
    def activation_quantizers(self) -> list[QuantizeDequantize]:
        """The Q/DQ layers of activation tensors."""
        return [layer for layer in self.layers if isinstance(layer, QuantizeDequantize)]

    @property
    def wrappers(self) -> list[BaseQuantizeWrapper]:
        """The wrappers of layers."""
        return [layer for layer in self.layers if isinstance(layer, BaseQuantizeWrapper)]

    @property
    def quantization_enabled(self) -> bool:
        """Whether all quantizers are on. Assign False and the model computes exactly what the float model does."""
        return all(bool(layer.enabled.numpy()) for layer in (*self.activation_quantizers, *self.wrappers))

    @quantization_enabled.setter
    def quantization_enabled(self, on: bool) -> None:
        for layer in (*self.activation_quantizers, *self.wrappers):
            layer.enabled.assign(on)

    def activation_ranges(self) -> dict[str, Range]:
        """Return the present range of every quantized activation tensor; calibrated ones only."""
        ranges = {}
        for layer in self.activation_quantizers:
            if layer.range is not None:
                for tensor in self.tensors_of(layer):
                    ranges[tensor] = layer.range
        return ranges

    def uncalibrated_tensors(self) -> list[str]:
        """Return the quantized activation tensors that have no range yet."""
        missing = (layer for layer in self.activation_quantizers if layer.range is None)
        return [tensor for layer in missing for tensor in self.tensors_of(layer)]

    def tensors_of(self, layer: QuantizeDequantize) -> list[str]:
        """Return the tensors that a Q/DQ layer serves: one, or all of its scale group."""
        members = [tensor.name for tensor in self.plan.tensors if tensor.scale_group == layer.tensor]
        return members or [layer.tensor]

    def get_config(self) -> dict[str, Any]:
        """Return the functional configuration, with the plan and the recorded ranges."""
        config = super().get_config()
        if self._plan is not None:
            config["qdq"] = {
                "plan": self._plan.to_dict(),
                "layer_paths": self._layer_paths,
                "output_names": self._source_output_names,
                "recorded_ranges": {name: list(ends) for name, ends in self._recorded_ranges.items()},
                "calibration": self._calibration,
            }
        return config

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Any:
        """Rebuild the model from `get_config`.

        Args:
            config: What `get_config` returned.
            custom_objects: The user's own classes, by name.
        """
        config = dict(config)
        state = config.pop("qdq", None)
        model = super().from_config(config, custom_objects=custom_objects)
        if state is not None:
            model.attach(PlacementPlan.from_dict(state["plan"]), state["layer_paths"], state["output_names"])
            model.record({name: tuple(ends) for name, ends in state["recorded_ranges"].items()}, state["calibration"])
        return model


_NOT_QUANTIZED = (
    "A model made by quantize_model is needed here; this one has no plan. Call qdq_workbench.quantize_model(model) "
    "first and pass what it returns. Received: model {name!r}"
)


def check_quantized(model: Any) -> QuantizedModel:
    """Return `model` if it was made by `quantize_model`.

    Raises:
        NotQuantizedError: If it was not.
    """
    if not isinstance(model, QuantizedModel) or model._plan is None:
        raise NotQuantizedError(_NOT_QUANTIZED.format(name=getattr(model, "name", type(model).__name__)))
    return model
