"""Which weights of a float model will be quantized, and on which grids: the plan that the correctors share."""

from __future__ import annotations

from typing import Any

import keras
import numpy as np
import numpy.typing as npt

from qdq_workbench.conversion.engine.quantize_model import check_is_float
from qdq_workbench.conversion.engine.rebuild import Rebuilder
from qdq_workbench.errors import SpecError
from qdq_workbench.graph_builder import BoundGraph, bind_graph, layer_weights
from qdq_workbench.placement.plan import Placement, PlacementPlan
from qdq_workbench.placement.planner import check_is_plan, check_target
from qdq_workbench.placement.targets import Target
from qdq_workbench.planning import plan_placement
from qdq_workbench.quantizers import numerics
from qdq_workbench.spec.quantizer_spec import QuantizerSpec


def weight_placements(
    model: keras.Model, bound: BoundGraph, plan: PlacementPlan | None, target: str | Target
) -> list[Placement]:
    """Return the placements of the weights that a plan quantizes; None stands for the default plan of the target."""
    plan = plan_placement(bound, target=target) if plan is None else plan
    check_is_plan(plan)
    if plan.graph.nodes != bound.graph.nodes:
        raise SpecError(
            "The plan is of another model; corrections before this one may have changed the layers. Make a plan of "
            f"this model with plan_placement(model). Received: plan={plan!r}, model {model.name!r}"
        )
    check_target(plan, target)
    return [placement for placement in plan.placements if placement.site == "weight"]


def bind_float(model: keras.Model) -> BoundGraph:
    """Return the graph of a float model.

    Raises:
        UnsupportedModelError: If the model's graph cannot be read, or the model is quantized already.
        UnbuiltModelError: If the model does not know its input shape.
    """
    bound = bind_graph(model)
    check_is_float(bound)
    return bound


def copy_of(model: keras.Model) -> tuple[keras.Model, dict[str, Any]]:
    """Return a flat copy of a model with its weights, and its layers by their path in the source."""
    builder = Rebuilder(bind_graph(model))
    copy = builder.rebuilt(model.name)
    return copy, builder.clones


def variable_of(layer: Any, name: str) -> Any:
    """Return a variable of a built layer by its path below the layer, such as "kernel"."""
    return dict(layer_weights(layer))[name]


def along(factor: npt.NDArray[np.float64], axis: int, rank: int) -> npt.NDArray[np.float64]:
    """Return one factor per slice in the shape that multiplies an array of the given rank along an axis."""
    shape = [1] * rank
    shape[axis] = -1
    return factor.reshape(shape)


def multiply(variable: Any, factor: npt.NDArray[np.float64], axis: int) -> None:
    """Multiply a variable in place, by one factor per slice along an axis."""
    values = np.asarray(variable, np.float64)
    variable.assign((values * along(factor, axis, values.ndim)).astype(np.float32))


def rounded(weights: npt.NDArray[np.float32], spec: QuantizerSpec) -> npt.NDArray[np.float64]:
    """Return weights rounded to the grid that `spec` and their own range define."""
    qparams = numerics.qparams_from_range(*numerics.weight_range(weights, spec), spec)
    return np.asarray(numerics.fake_quantize(weights, qparams), np.float64)
