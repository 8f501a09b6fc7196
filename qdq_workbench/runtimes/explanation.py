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
    """How a runtime executes every layer of a plan.

    Args:
        target: Name of the target.
        layers: One entry per layer, in graph order.
        plan: The plan that was explained, planned for the target.
        islands: The measured gains of the islands (sets of layers between which integers flow), the largest loss
            first; empty without a measurement.
        alone: The estimated gain of each layer of an island alone, the largest loss first; empty without a
            measurement. Layers inside an island would need new conversions on both sides in float: they are ranked,
            but never counted in `edge_losses`.
        opset: The ONNX opset of the file that was explained; None for the one that `export_onnx` chooses.
    """

    target: str
    layers: tuple[LayerExplanation, ...]
    plan: PlacementPlan | None = dataclasses.field(default=None, repr=False, compare=False)
    islands: tuple[Island, ...] = ()
    alone: tuple[IslandEdge, ...] = ()
    opset: int | None = dataclasses.field(default=None, repr=False, compare=False)

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
        """The islands that measurably slow the file down; the largest loss first.

        Islands whose loss is within the noise of the measurement are left out; `summary` names them.
        """
        return tuple(island for island in self.islands if island.is_loss)

    @property
    def edges(self) -> tuple[IslandEdge, ...]:
        """The layers at the edges of islands with their estimated gain alone; the largest loss first."""
        return tuple(edge for edge in self.alone if edge.side != "inside")

    @property
    def edge_losses(self) -> tuple[IslandEdge, ...]:
        """The layers at the edges of islands that slow the file down, by an estimate; layers of `losses` are left out.

        Their kernels and conversions take longer in INT8 than their float kernels and the conversions that would move
        to their other side, by an estimate. Changes of layout move too and are not counted, so measure the new file.
        """
        whole = {layer for island in self.losses for layer in island.layers}
        return tuple(edge for edge in self.edges if edge.is_loss and not whole.intersection(edge.layers))

    def island_of(self, name: str) -> Island | None:
        """Return the island of a layer, with its measured gain.

        Args:
            name: Path of the layer.

        Returns:
            The island; None if the layer is not quantized, or there is no measurement.

        Raises:
            SpecError: If the plan has no layer of that name; the message shows the nearest names.
        """
        self.for_layer(name)
        return next((island for island in self.islands if name in island.layers), None)

    def without_losses(self, *, edges: bool = False) -> QuantizationSpec:
        """Return a specification that leaves the `losses` in float.

        It holds the decisions of the plan's own specification and cases, by name, and leaves those layers in float; a
        layer whose calls differ has an entry per call. Plan with it, export, and measure the new file, since only a
        measurement shows its speed.

        Args:
            edges: Whether to leave the `edge_losses` in float too, whose gain is an estimate.

        Returns:
            A new specification, for the same quantization mode; without losses it leads to the same plan, and
            `summary` states that there are none.

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
        """The number of layers of each status."""
        counts = {"int8": 0, "partial": 0, "float": 0}
        for entry in self.layers:
            counts[entry.status] += 1
        return counts

    @property
    def coverage(self) -> dict[str, float]:
        """The share that runs in INT8, from 0 to 1, counted in three ways.

        "layers" counts layers, a "partial" one as half; "macs" counts multiply-accumulate operations by call; "bytes"
        counts the weights that are stored as integers.
        """
        weights = {"int8": 1.0, "partial": 0.5, "float": 0.0}
        totals = {"layers": len(self.layers), "macs": sum(entry.macs for entry in self.layers)}
        totals["bytes"] = sum(entry.bytes for entry in self.layers)
        good = {"layers": sum(weights[entry.status] for entry in self.layers)}
        good["macs"] = sum(entry.int8_macs for entry in self.layers)
        good["bytes"] = sum(entry.int8_bytes for entry in self.layers)
        return {name: good[name] / total if total else 1.0 for name, total in totals.items()}

    def apply_fixes(self) -> QuantizationSpec:
        """Return a specification that brings every layer to INT8 for which the placement of pairs suffices.

        It holds the decisions of the plan's own specification and cases, by name, and the fixes; a layer whose calls
        differ has an entry per call. A fix may need another one, so they are applied repeatedly until nothing changes.
        The plan does not change. For the fixes of some layers alone, leave the others out:
        `dataclasses.replace(explanation, layers=some).apply_fixes()`.

        Returns:
            A new specification, for the same quantization mode; without fixes it leads to the same plan, and `summary`
            states that there are none.

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
        return apply_fixes(self.plan, self.layers, self.opset)

    @property
    def builds(self) -> tuple[Build, ...]:
        """For TensorRT, the ways to build an engine by version, with the resulting precision of layers; else empty.

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
        """Return the explanation as a text table with the fixes; if less than half is INT8, with the main float parts.

        For TensorRT it has the build of each version and the resulting precisions; with a measurement, the layers that
        are slower in INT8 than in float.
        """
        return explanation_as_text(self)

    def _repr_html_(self) -> str:
        return explanation_as_html(self)
