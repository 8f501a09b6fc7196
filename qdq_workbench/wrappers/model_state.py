"""The state of a quantized model as a whole, stored in one of its layers.

`keras.models.clone_model` makes a new model from the layers' configurations and drops the model's own; so the plan and
the recorded ranges are stored in the configuration of the first quantizing layer.
"""

from __future__ import annotations

from typing import Any


class ModelState:
    """A JSON-compatible dictionary that Keras does not track as part of a layer.

    Args:
        data: The dictionary; None for layers without a state. Its "plan" may be a `PlacementPlan`, which is converted
            to a dictionary when the state is saved.
    """

    def __init__(self, data: dict[str, Any] | None = None) -> None:
        self.data = data

    def config(self) -> dict[str, Any]:
        """Return the state's part of a layer's configuration: nothing, or the dictionary under "model_state"."""
        if self.data is None:
            return {}
        plan = self.data["plan"]
        return {"model_state": {**self.data, "plan": plan if isinstance(plan, dict) else plan.to_dict()}}
