"""Layers inside a composite layer that Keras cannot record as one call: the calls that they make are recorded instead.

Keras records a call only if all its results are tensors, and if the layer can tell their shapes. An attention layer
that returns `(result, None)` without a cache is none of these, nor is one whose `compute_output_spec` lacks an argument
of its `call`.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator
from typing import Any

import keras
from keras import tree

from qdq_workbench.graph_builder.layer_parts import carries_mask, inner_layers
from qdq_workbench.graph_builder.steps import CannotEnterError
from qdq_workbench.placement.defaults import has_own_wrapper

_CALL = "symbolic_call"
_LOCAL = threading.local()


@contextlib.contextmanager
def inlined_where_needed(layer: Any) -> Iterator[None]:
    """Let the layers inside a layer that Keras cannot record as one call be recorded by the calls that they make.

    Those that compute in another precision are left as they are.
    """
    parts = [part for part in inner_layers(layer) if _is_known_by_its_code(part, layer)]
    for part in parts:
        vars(part)[_CALL] = functools.partial(_recorded, part)
    try:
        yield
    finally:
        for part in parts:
            del vars(part)[_CALL]


def _is_known_by_its_code(part: Any, layer: Any) -> bool:
    if isinstance(part, keras.Model) or type(part).__module__.startswith(("keras.", "qdq_workbench.")):
        return False
    # What `call` reads of the weights is cast by the policy of the layer around; a penalty would be lost.
    alike = part.dtype_policy.name == layer.dtype_policy.name and part.autocast == layer.autocast
    return alike and part.activity_regularizer is None and not has_own_wrapper(type(part).__name__)


def _recorded(part: Any, *args: Any, **kwargs: Any) -> Any:
    """Return what a symbolic call of a layer returns, as one call if Keras can record it."""
    try:
        results = getattr(type(part), _CALL)(part, *args, **kwargs)
    except Exception:  # noqa: BLE001 - whatever the reason, the code of the layer may do without
        results = None
    if all(isinstance(result, keras.KerasTensor) for result in tree.flatten(results)):
        return results
    results = part.call(*args, **kwargs)
    _LOCAL.inlined = part
    return results


def recorded_node(original: Any, *args: Any, **kwargs: Any) -> Any:
    """Record a call with Keras's own class, unless the calls that the layer made have been recorded instead."""
    inlined: Any = getattr(_LOCAL, "inlined", None)
    _LOCAL.inlined = None
    if inlined is None or kwargs.get("operation") is not inlined:
        return original(*args, **kwargs)
    if any(carries_mask(result) for result in tree.flatten(kwargs["outputs"])):
        name = kwargs["operation"].name
        raise CannotEnterError(f"a mask is propagated with the results of {name!r}; give it as an argument")
    return None
