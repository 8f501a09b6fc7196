"""The answer to "which layers will run in INT8, and why not the others?"."""

from __future__ import annotations

import dataclasses
from typing import Any

from qdq_workbench.errors import SpecError, nearest_names
from qdq_workbench.placement.plan import PlacementPlan
from qdq_workbench.runtimes.explanation_tables import explanation_as_html, explanation_as_text
from qdq_workbench.runtimes.fixes import apply_fixes, leave_in_float
from qdq_workbench.runtimes.measured import Island
from qdq_workbench.runtimes.measured_edges import IslandEdge
from qdq_workbench.runtimes.tensorrt_builds import Build, tensorrt_builds
from qdq_workbench.runtimes.verdict import LayerExplanation
from qdq_workbench.spec.quantization_spec import QuantizationSpec


@dataclasses.dataclass(frozen=True)
class Explanation:
    """What a runtime does with every layer of a plan.

    Args:
        target: Name of the target.
        layers: One entry per layer, in graph order.
        plan: The plan that was explained, planned for the target.
        islands: Where a measurement was given: what the layers gain that are on integers together, the largest loss
            first.
        alone: Where a measurement was given: the layers of islands, each judged alone by an estimate, the largest loss
            first. Those inside would need new conversions on both sides in float: their order is told, not a loss.
    """

    target: str
    layers: tuple[LayerExplanation, ...]
    plan: PlacementPlan | None = dataclasses.field(default=None, repr=False, compare=False)
    islands: tuple[Island, ...] = ()
    alone: tuple[IslandEdge, ...] = ()

    def for_layer(self, name: str) -> LayerExplanation:
        """Return the entry of one layer.

        Args:
            name: Path of the layer.

        Raises:
            SpecError: If there is no such layer; the message shows the nearest names.
        """
        for entry in self.layers:
            if entry.layer == name:
                return entry
        hint = nearest_names(name, [entry.layer for entry in self.layers])
        raise SpecError(f"The plan has no layer of that name. {hint} Received: name={name!r}")

    @property
    def losses(self) -> tuple[Island, ...]:
        """The islands without which the file would be faster, measured; the largest loss first.

        None of those whose loss is within the noise of the measurement; `summary` names them.
        """
        return tuple(island for island in self.islands if island.is_loss)

    @property
    def edges(self) -> tuple[IslandEdge, ...]:
        """The layers at the edges of islands, each judged alone by an estimate; the largest loss first."""
        return tuple(edge for edge in self.alone if edge.side != "inside")

    @property
    def edge_losses(self) -> tuple[IslandEdge, ...]:
        """The layers at the edges of islands without which the file may be faster, by an estimate; none of `losses`.

        Their kernels take longer in INT8 than in float, by more than the conversion is estimated to take that moves to
        their other side. Changes of layout move too and are not counted, so measure the file without them.
        """
        whole = {layer for island in self.losses for layer in island.layers}
        return tuple(edge for edge in self.edges if edge.is_loss and not whole.intersection(edge.layers))

    def island_of(self, name: str) -> Island | None:
        """Return the layers that are on integers together with one, and what was measured of them.

        Args:
            name: Path of the layer.

        Returns:
            The island; None where the layer is not quantized, or nothing was measured.

        Raises:
            SpecError: If the plan has no layer of that name; the message shows the nearest names.
        """
        self.for_layer(name)
        return next((island for island in self.islands if name in island.layers), None)

    def without_losses(self, *, edges: bool = False) -> QuantizationSpec:
        """Return a specification that leaves in float what was measured to cost more than it saves.

        It holds what the plan's own specification and cases decided, one entry per layer by name, and those layers in
        float. Plan with it, export, and measure again: a placement is as fast as it was measured to be.

        Args:
            edges: Whether to leave the `edge_losses` in float too, of which the gain is an estimate.

        Returns:
            A new specification, for the same quantization mode; where nothing costs more than it saves, it says what
            the plan says already, and `summary` says so.

        Raises:
            SpecError: If the explanation was made without a plan or without a measurement.
        """
        if self.plan is None or not self.islands:
            raise SpecError(
                "The explanation knows of no measurement; make it with qdq_workbench.explain(plan, latency="
                "qdq_workbench.profiling.profile_onnx(path, baseline=float_path)). "
                f"Received: an Explanation {'with' if self.plan else 'without'} a plan and without islands"
            )
        lost = [*(island.layers for island in self.losses), *(edge.layers for edge in self.edge_losses if edges)]
        return leave_in_float(self.plan, [layer for layers in lost for layer in layers])

    @property
    def counts(self) -> dict[str, int]:
        """How many layers have each status."""
        counts = {"int8": 0, "partial": 0, "float": 0}
        for entry in self.layers:
            counts[entry.status] += 1
        return counts

    @property
    def coverage(self) -> dict[str, float]:
        """The share that runs in INT8, from 0 to 1, counted in three ways.

        "layers" and "macs" (multiply-accumulate operations) count what is computed: a layer whose calls differ by
        half, and its operations by call; "bytes" counts the weights that are stored as integers.
        """
        weights = {"int8": 1.0, "partial": 0.5, "float": 0.0}
        totals = {"layers": len(self.layers), "macs": sum(entry.macs for entry in self.layers)}
        totals["bytes"] = sum(entry.bytes for entry in self.layers)
        good = {"layers": sum(weights[entry.status] for entry in self.layers)}
        good["macs"] = sum(entry.int8_macs for entry in self.layers)
        good["bytes"] = sum(entry.int8_bytes for entry in self.layers)
        return {name: good[name] / total if total else 1.0 for name, total in totals.items()}

    def apply_fixes(self) -> QuantizationSpec:
        """Return a specification under which every layer runs in INT8 that a placement can bring there.

        It holds what the plan's own specification and cases decided, one entry per layer by name, and the fixes; a
        fix may need another one, so they are applied until nothing more is gained. The plan does not change.

        Returns:
            A new specification, for the same quantization mode; where there is nothing to fix, it says what the plan
            says already, and `summary` says so.

        Raises:
            SpecError: If the explanation was made without a plan.

        Example:
            >>> import keras
            >>> from qdq_workbench import explain, plan_placement
            >>> image = keras.Input((8, 8, 3), name="image")
            >>> model = keras.Model(image, keras.layers.Conv2D(4, 3, name="conv")(image))
            >>> spec = QuantizationSpec()
            >>> spec.add("conv", quantize_weight=False, quantize_input=False)
            >>> plan = plan_placement(model, quantization_spec=spec, target="onnxruntime")
            >>> fixed = explain(plan).apply_fixes()
            >>> explain(plan_placement(model, quantization_spec=fixed, target="onnxruntime")).counts["int8"]
            1
        """
        if self.plan is None:
            raise SpecError(
                "The explanation does not know its plan, so there is nothing to change; make it with "
                "qdq_workbench.explain(plan). Received: an Explanation without a plan"
            )
        return apply_fixes(self.plan, self.layers)

    @property
    def builds(self) -> tuple[Build, ...]:
        """For TensorRT, how an engine is built with each version and the precisions that layers then have; else empty.

        Example:
            >>> import keras
            >>> from qdq_workbench import explain
            >>> image = keras.Input((8, 8, 3), name="image")
            >>> x = keras.layers.Conv2D(4, 3, name="conv")(image)
            >>> found = explain(keras.Model(image, keras.layers.Softmax(name="scores")(x)), target="tensorrt")
            >>> print(found.builds[-1].command, found.builds[-1].int8, found.builds[-1].float32)
            trtexec --onnx=model.onnx ('conv',) ('scores',)
        """
        return () if self.plan is None or self.target != "tensorrt" else tensorrt_builds(self.layers, self.plan)

    def to_dict(self) -> dict[str, Any]:
        """Return the explanation as a JSON-compatible dictionary."""
        layers = [{**dataclasses.asdict(entry), "fix": [dict(item) for item in entry.fix]} for entry in self.layers]
        found = {"target": self.target, "counts": self.counts, "coverage": self.coverage, "layers": layers}
        if self.islands:
            found["islands"] = [{**vars(island), "gain_ms": island.gain_ms} for island in self.islands]
            for name, edges in (("edges", self.edges), ("alone", self.alone)):
                found[name] = [{**vars(edge), "gain_ms": edge.gain_ms} for edge in edges]
        builds = [{**vars(build), "reasons": dict(build.reasons)} for build in self.builds]
        return {**found, "builds": builds} if builds else found

    def summary(self) -> str:
        """Return the explanation as a text table with the fixes; where less than half is INT8, with what the rest is.

        For TensorRT it says how to build, with each version, and in which precision layers then run. With a measurement
        it names what is slower in INT8 than in float.
        """
        return explanation_as_text(self)

    def _repr_html_(self) -> str:
        return explanation_as_html(self)
