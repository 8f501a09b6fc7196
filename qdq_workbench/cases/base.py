"""The base classes of custom QDQ insertion cases."""

from __future__ import annotations

import abc
import fnmatch
from typing import Any

from qdq_workbench.graph.model_graph import ModelGraph
from qdq_workbench.graph_builder import build_graph
from qdq_workbench.placement.targets import Target
from qdq_workbench.spec.name_patterns import name_matcher
from qdq_workbench.spec.quantization_spec import QuantizationSpec


class CustomQDQInsertionCase(abc.ABC):
    """A rule that places Q/DQ pairs where the defaults would not, or removes them.

    Subclass it, examine the model in `case`, and return a new `QuantizationSpec` with an entry for every layer
    that needs special treatment. The model and the user's spec must only be read.

    Example:
        >>> import keras
        >>> class MaxPoolCase(CustomQDQInsertionCase):
        ...     def info(self):
        ...         return "Quantizes the inputs of MaxPooling2D layers."
        ...     def case(self, keras_model, qspec):
        ...         found = QuantizationSpec()
        ...         for layer in keras_model.layers:
        ...             if isinstance(layer, keras.layers.MaxPooling2D):
        ...                 if check_is_quantizable_by_layer_name(qspec, layer.name):
        ...                     found.add(layer.name, quantize_weight=False)
        ...         return found
    """

    _made_with: tuple[tuple[Any, ...], dict[str, Any]] = ((), {})

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Create the case and store its arguments, with which a saved workbench creates it again."""
        self = super().__new__(cls)
        if args or kwargs:
            # A case may be a frozen dataclass.
            object.__setattr__(self, "_made_with", (args, kwargs))
        return self

    @property
    def arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The positional and keyword arguments with which the case was created."""
        return self._made_with

    def info(self) -> str:
        """Return a description of the case and its purpose, in a few sentences."""
        return type(self).__doc__ or type(self).__name__

    @abc.abstractmethod
    def case(self, keras_model: Any, qspec: QuantizationSpec) -> QuantizationSpec:
        """Return the entries for the layers of this model that need special treatment.

        Args:
            keras_model: The Keras model.
            qspec: The user's specification, which takes precedence: leave out the layers that it names.

        Returns:
            A new specification; empty if the case does not apply.
        """

    def for_target(self, target: Target) -> CustomQDQInsertionCase:  # noqa: ARG002 - for subclasses
        """Return the case to use when a plan is made for a target: itself, unless it depends on the target.

        Args:
            target: The target that the model is planned for.
        """
        return self

    @property
    def name(self) -> str:
        """The name of the case in plans and messages."""
        return type(self).__name__


class GraphCase(CustomQDQInsertionCase):
    """A case that needs only the graph, so that it also works on a `ModelGraph` and inside nested models."""

    def case(self, keras_model: Any, qspec: QuantizationSpec) -> QuantizationSpec:
        """Return the entries for a Keras model; see `CustomQDQInsertionCase.case`."""
        return self.case_for_graph(build_graph(keras_model), qspec)

    @abc.abstractmethod
    def case_for_graph(self, graph: ModelGraph, qspec: QuantizationSpec) -> QuantizationSpec:
        """Return the entries for a graph.

        Args:
            graph: The model's graph.
            qspec: The user's specification.
        """


def check_is_quantizable_by_layer_name(qspec: QuantizationSpec | None, current_layer_name: str) -> bool:
    """Return whether a case may decide about a layer, because the user's spec does not name it.

    Args:
        qspec: The user's specification, or None.
        current_layer_name: Name or path of the layer.

    Returns:
        False if an entry by name (exact, glob or regex) selects the layer, else True.

    Example:
        >>> spec = QuantizationSpec()
        >>> spec.add("conv_1")
        >>> check_is_quantizable_by_layer_name(spec, "conv_1"), check_is_quantizable_by_layer_name(spec, "conv_2")
        (False, True)
    """
    for entry in qspec.layers if qspec is not None else ():
        if entry.is_keras_class:
            continue
        if entry.match == "glob":
            named = fnmatch.fnmatchcase(current_layer_name, entry.name)
        elif entry.match == "regex":
            named = name_matcher(entry.name)(current_layer_name)
        else:
            named = entry.name == current_layer_name
        if named:
            return False
    return True
