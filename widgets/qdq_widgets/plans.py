"""The plans of a bench: the present state, its plan, and the methods that change them."""

from __future__ import annotations

import collections
import dataclasses
import threading
from collections.abc import Iterable, Sequence
from typing import Any

import qdq_workbench as qdq
from qdq_widgets import toggles
from qdq_widgets.errors import BenchError
from qdq_widgets.events import Events
from qdq_widgets.fixes import fixed
from qdq_widgets.history import History, Step
from qdq_widgets.plain_numbers import whole
from qdq_widgets.settings import configured, value_text
from qdq_widgets.state import RECENT_PLANS, BenchState, Planner, case_names, spec_of
from qdq_widgets.targets import reason_text


class Plans:
    """States and plans of one model; a part of `Workbench`.

    Args:
        model: A built Keras model; only read.
        spec: A `QuantizationSpec` to start from, or None.
        cases: Insertion cases to start from.
        target: Name of the target.
        events: Get "plan" when the plan changes.

    Attributes:
        planner: The planner, which turns states of this model into plans.
        history: The states that the bench went through.
        lock: Held while the present state changes.
    """

    def __init__(self, model: Any, spec: Any, cases: Iterable[Any], target: str, events: Events) -> None:
        self.planner = Planner(model)
        self.lock = threading.RLock()
        self._events = events
        self._explained: collections.deque[tuple[Any, qdq.Explanation]] = collections.deque(maxlen=RECENT_PLANS)
        state = BenchState(qdq.QuantizationSpec() if spec is None else spec.copy(), tuple(cases), "full", target)
        self.history = History("start", state, self.planner)

    @property
    def state(self) -> BenchState:
        """The present state: spec, cases, mode and target."""
        return self.history.present.state

    @property
    def plan(self) -> qdq.PlacementPlan:
        """The placement plan of the present state."""
        return self.history.plan

    @property
    def explanation(self) -> qdq.Explanation:
        """How the target runs every layer under the present plan, with the reasons."""
        plan = self.plan
        # The last few, as of plans: undo, redo and a second click on a badge go back to them.
        # A copy, because another thread may add one while this one looks.
        for known, explanation in list(self._explained):
            if known is plan:
                return explanation
        found = qdq.explain(plan, target=plan.target)
        self._explained.appendleft((plan, found))
        return found

    def preview(self, state: BenchState) -> tuple[Any, Any]:
        """Return the plan of another state, and its changes as a `PlanDiff`; nothing is applied.

        Args:
            state: The state.
        """
        plan = self.planner.plan(state)
        return plan, self.plan.diff(plan)

    def toggle(
        self, layer: str | Sequence[str], site: str, index: int | None = None, *, on: bool | None = None
    ) -> Step:
        """Switch quantization of one site of a layer, as a click on its badge does.

        Args:
            layer: Path of a layer, name of a call such as `conv#1`, or several of them.
            site: "input", "weight" or "output".
            index: Number of the input; None for all.
            on: True to quantize, False for float; None to invert: float if the site is quantized in all layers.

        Returns:
            The new step of the history.

        Raises:
            BenchError: If the site cannot be switched, or nothing changes.
            SpecError: If there is no such layer, or nothing would be left to quantize.
        """
        layers = [layer] if isinstance(layer, str) else list(layer)
        shown = layers[0] if len(layers) == 1 else f"{len(layers)} layers"
        place = site if index is None else f"{site} {index}"
        with self.lock:
            state, plan = toggles.toggled(self.planner, self.state, self.plan, layers, site, index, on)
            return self.push(f"toggle {shown}: {place}", state, plan)

    def configure(self, /, layer: str | Sequence[str], site: str, **settings: Any) -> Step:
        """Change the quantizer of one site of a layer: bits, symmetry, scales, and the method of its range.

        Args:
            layer: Path of a layer, name of a call such as `conv#1`, or several of them.
            site: "weight", "input" or "output"; a site in float becomes quantized.
            **settings: `num_bits`, `symmetric`, `signed`, `narrow_range`, `per_axis`, `block_size`, `quantizer`
                ("last_value", "moving_average", "all_values", "lsq", "fixed" with `init_min` and `init_max`), as
                `qdq_workbench.LayerQuantizeConfig` takes them. None resets a setting to the target's default; without
                settings all settings of the site are reset.

        Returns:
            The new step of the history.

        Raises:
            BenchError: If the site cannot be quantized, nothing changes, or a `QuantizeConfig` of your own decides.
            SpecError: If there is no such layer, or a setting is unknown or does not suit the site.

        Example:
            `wb.configure("conv1", "weight", num_bits=4, quantizer="lsq")`
        """
        layers = [layer] if isinstance(layer, str) else list(layer)
        shown = layers[0] if len(layers) == 1 else f"{len(layers)} layers"
        words = ", ".join(f"{key}={value_text(value)}" for key, value in settings.items())
        with self.lock:
            state, plan = configured(self.planner, self.state, self.plan, layers, site, settings)
            return self.push(f"configure {shown}: {site} {words or 'as the target wants'}", state, plan)

    def apply_like(self, source: str, layers: Sequence[str] | None = None) -> Step:
        """Quantize the same sites of other layers as of one layer.

        Args:
            source: The layer to copy from.
            layers: The layers to change, which keep their quantizers; None for all of its class, with one entry for
                the class that also has the quantizers of the source's entry.
        """
        with self.lock:
            state, plan = toggles.like(self.planner, self.state, self.plan, source, layers)
            what = "its class" if layers is None else f"{len(layers)} layers"
            return self.push(f"like {source}: {what}", state, plan)

    def apply_case(self, case: Any) -> Step:
        """Apply an insertion case; a second one of the same name replaces the first.

        Args:
            case: A `CustomQDQInsertionCase`.
        """
        return self.change(f"apply {getattr(case, 'name', type(case).__name__)}", self.state_with_case(case))

    def remove_case(self, name: str) -> Step:
        """Remove an insertion case.

        Args:
            name: Its class name.

        Raises:
            BenchError: If no such case is applied.
        """
        if name not in case_names(self.state.cases):
            raise BenchError(f"No such case is applied. Applied: {case_names(self.state.cases)}. Received: {name!r}")
        kept = tuple(case for case in self.state.cases if case.name != name)
        return self.change(f"remove {name}", self.state.replace(cases=kept))

    def add_entry(self, /, name: str | Sequence[str], **settings: Any) -> Step:
        """Add an entry to the specification.

        Args:
            name: Layer name, path, class or pattern, or several of them.
            **settings: Arguments of `QuantizationSpec.add`, such as `match="glob"`.
        """
        spec = spec_of(self.state.spec.layers)
        spec.add(name, **settings)
        return self.change(f"add {spec.layers[-1].label}", self.state.replace(spec=spec))

    def remove_entry(self, position: int) -> Step:
        """Remove an entry of the specification.

        Args:
            position: Its index in `spec.layers`, from 0.

        Raises:
            BenchError: If there is no such entry.
        """
        entries, position = self.state.spec.layers, whole(position)
        if isinstance(position, bool) or not isinstance(position, int) or not 0 <= position < len(entries):
            raise BenchError(f"The spec has {len(entries)} entries, counted from 0. Received: position={position!r}")
        return self.change(f"remove {entries[position].label}", self.state.without_entry(position))

    def set_spec(self, spec: Any) -> Step:
        """Replace the whole specification.

        Args:
            spec: A `QuantizationSpec`; it is copied.
        """
        return self.change("replace the spec", self.state.replace(spec=spec.copy()))

    def set_target(self, target: str) -> Step:
        """Plan for another inference runtime.

        Args:
            target: One of `qdq_workbench.target_names()`.
        """
        return self.change(f"target {target}", self.state.replace(target=target))

    def set_mode(self, mode: str) -> Step:
        """Set whether layers without an entry or case are quantized by the defaults of their classes.

        Args:
            mode: "full" (by the defaults) or "partial" (only what entries and cases quantize).
        """
        return self.change(f"mode {mode}", self.state.replace(mode=mode))

    def apply_fix(self, *layers: str) -> Step:
        """Quantize the sites that layers need to run in INT8 on the target; their other settings stay.

        Args:
            *layers: Paths of the layers.

        Raises:
            BenchError: If none of the layers has a fix.
        """
        with self.lock:
            shown = layers[0] if len(layers) == 1 else f"{len(layers)} layers"
            return self.push(f"fix {shown}", *self._fixed(layers))

    def state_with_fix(self, *layers: str) -> BenchState:
        """Return the state that `apply_fix` would lead to; nothing is applied.

        Args:
            *layers: Paths of the layers.
        """
        with self.lock:
            return self._fixed(layers)[0]

    def _fixed(self, layers: Sequence[str]) -> tuple[BenchState, Any]:
        entries = [self.explanation.for_layer(layer) for layer in layers]
        if not any(entry.fix for entry in entries):
            why = "; ".join(reason_text(entry) for entry in entries) or "no layer was named"
            raise BenchError(f"There is no fix for this: {why}. Received: layers={tuple(layers)}")
        return fixed(self.planner, self.state, dataclasses.replace(self.explanation, layers=tuple(entries)))

    def apply_fixes(self) -> Step:
        """Apply the fixes of all layers in one step, so that every layer that can runs in INT8 on the target.

        Raises:
            BenchError: If no layer has a fix.
        """
        with self.lock:
            count = sum(bool(entry.fix) for entry in self.explanation.layers)
            if not count:
                raise BenchError(
                    "No layer has a fix: each runs in INT8 already, or no placement can bring it there. "
                    f"Received: target={self.plan.target!r}"
                )
            return self.push(f"fix {count} layers", *fixed(self.planner, self.state, self.explanation))

    def state_with_case(self, case: Any) -> BenchState:
        """Return the state that `apply_case` would lead to, for a preview.

        Args:
            case: An insertion case.
        """
        kept = tuple(other for other in self.state.cases if other.name != getattr(case, "name", None))
        return self.state.replace(cases=(*kept, case))

    def weights_alone(
        self,
        num_bits: int = 4,
        block_size: int | None = 32,
        *,
        symmetric: bool = True,
        narrow_range: bool | None = None,
    ) -> Step:
        """Quantize only the weights of matrix products and embedding tables; everything else stays in float.

        It replaces spec and cases, and sets the mode "partial"; undo restores them.

        Args:
            num_bits: Width of the integers, 2 to 8.
            block_size: Number of values that share a scale; None for one scale per output channel.
            symmetric: True for zero points of 0; False gives every block a zero point.
            narrow_range: Leave out the lowest integer; None for True on symmetric grids, else False.

        Returns:
            The new step of the history.

        Raises:
            SpecError: If the model has no such layers, or a setting is out of range; see
                `qdq_workbench.correction.weights_alone`.
        """
        spec = qdq.correction.weights_alone(
            self.planner.graph, num_bits, block_size, symmetric=symmetric, narrow_range=narrow_range
        )
        size = "" if block_size is None else f", blocks of {block_size}"
        state = self.state.replace(spec=spec, cases=(), mode="partial")
        return self.change(f"weights alone: {num_bits} bits{size}", state)

    def change(self, label: str, state: BenchState) -> Step:
        """Plan a state, and make it the present one, in a step with a label."""
        with self.lock:
            return self.push(label, state, self.planner.plan(state))

    def push(self, label: str, state: BenchState, plan: Any) -> Step:
        """Make a state with its plan the present one, in a step with a label."""
        step = self.history.push(label, state, plan)
        self._events.tell("plan")
        return step
