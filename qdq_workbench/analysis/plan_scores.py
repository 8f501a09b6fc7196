"""`PlanScores`: the metric of other placements of a calibrated model, measured by switches in one copy of it."""

from __future__ import annotations

from typing import Any

from qdq_workbench.analysis.metrics import get_metric
from qdq_workbench.analysis.samples import read_samples
from qdq_workbench.analysis.search_switches import switches_of
from qdq_workbench.analysis.workers import Measurer, Task
from qdq_workbench.conversion.engine.quantized_model import QuantizedModel, check_quantized
from qdq_workbench.errors import SpecError
from qdq_workbench.placement.plan import PlacementPlan


class PlanScores:
    """Scores placements that keep some of a model's pairs and leave others in float, without building their models.

    A copy of the model with a switch in front of every reader of a quantized tensor is built and traced once. A
    placement is then a setting of the switches, measured in one run over the data.

    Args:
        q_model: A calibrated model; it is only read.
        data: As for `calibrate`; pairs (inputs, labels) where the metric needs labels.
        metric: As for `sensitivity`: "sqnr", "mse", "kl", "cosine", "accuracy", a `Metric`, or a function.
        batch_size: Samples per batch of an array.
        steps: How many batches to read at most; None for all.

    Attributes:
        plan: The plan of the model.
        metric: The `Metric`.
        samples: Number of samples that are measured on.

    Raises:
        NotQuantizedError: If the model was not made by `quantize_model`.
        DataError: If the data do not fit the model or the metric, or the metric is unknown.

    Example:
        >>> import keras, numpy as np, qdq_workbench as qdq
        >>> keras.utils.set_random_seed(0)
        >>> image = keras.Input((2,), name="image")
        >>> model = keras.Model(image, keras.layers.Dense(2, name="head")(image))
        >>> q_model = qdq.quantize_model(model, target="onnxruntime")
        >>> data = np.random.default_rng(0).random((8, 2), "float32")
        >>> _ = qdq.calibrate(q_model, data, verbose=False)
        >>> spec = qdq.QuantizationSpec()
        >>> spec.add("head", quantize_weight=False)
        >>> scores = PlanScores(q_model, data)
        >>> scores.measure(q_model.plan) < scores.measure(qdq.plan_placement(model, "full", spec, target="onnxruntime"))
        True
    """

    def __init__(
        self,
        q_model: QuantizedModel,
        data: Any,
        metric: Any = "sqnr",
        *,
        batch_size: int = 32,
        steps: int | None = None,
    ) -> None:
        self.plan = check_quantized(q_model).plan
        self.metric = get_metric(metric)
        samples = read_samples(q_model, data, batch_size, steps)
        self.samples = samples.count
        everything = frozenset((placement.layer, placement.site) for placement in self.plan.placements)
        self._measurer = Measurer(q_model, samples, Task(self.metric, everything))

    def measure(self, plan: PlacementPlan) -> float | None:
        """Return the metric of a placement.

        Args:
            plan: Its plan, of the same model.

        Returns:
            The value; None for a plan with pairs that the model does not have, which needs a model of its own.

        Raises:
            SpecError: If the plan is of a model with other layers.
        """
        if plan.graph is not self.plan.graph and plan.graph.layers != self.plan.graph.layers:
            raise SpecError(
                "Only plans of the same model can be scored. "
                f"Received: a plan of {plan.graph.name!r}, the model is {self.plan.graph.name!r}"
            )
        choice = switches_of(self.plan, plan)
        if choice is None:
            return None
        on, grids = choice
        return self._measurer.measure(on, grids) if on <= set(self._measurer.sweep.switches) else None
