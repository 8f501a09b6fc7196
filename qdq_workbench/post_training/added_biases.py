"""Rebuilding a float model with biases for layers that have none."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from qdq_workbench.conversion.engine.rebuild import Rebuilder, clone_operation
from qdq_workbench.graph_builder import BoundGraph, Call


class BiasRebuilder(Rebuilder):
    """Copies a model and gives some of its layers a bias of zeros, unless they have one.

    Args:
        bound: The graph of the model.
        layers: The paths of the layers that need a bias.
    """

    def __init__(self, bound: BoundGraph, layers: Iterable[str]) -> None:
        super().__init__(bound)
        self._with_bias = frozenset(layers)
        self._remade: set[str] = set()

    def make(self, call: Call) -> Any:
        """Clone a layer; one that needs a bias is made from the settings of `settings`."""
        clone = super().make(call)
        if call.node.layer not in self._with_bias:
            return clone
        config = clone.get_config()
        wanted = self.settings(config)
        if wanted == config:
            return clone
        self._remade.add(clone.name)
        # `late` does not know this copy, which may have one variable more than its source.
        return clone_operation(type(clone).from_config(wanted), clone.name)

    def settings(self, config: dict[str, Any]) -> dict[str, Any]:
        """Return the configuration of a layer with a bias."""
        # The layer's own initializer may give others than zeros, since nothing has used it.
        return config if config["use_bias"] else {**config, "use_bias": True, "bias_initializer": "zeros"}

    def copy_state(self, source: Any, clone: Any) -> None:
        """Copy a layer's values; a new bias stays zero."""
        if clone.name not in self._remade:
            super().copy_state(source, clone)
            return
        theirs = {variable.name: variable for variable in source.variables}
        for variable in clone.variables:
            if variable.name in theirs:
                variable.assign(theirs[variable.name])
        clone.trainable = source.trainable
