"""Pickers for the quantizers of a layer: bits, symmetry, range, scales and method of each quantized site."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ipywidgets as widgets

import qdq_workbench as qdq
from qdq_widgets.errors import BenchError
from qdq_widgets.pane import button, row, text_html
from qdq_widgets.settings import PARTS, config_of, value_text

_DEFAULT = "default"  # a dropdown takes None for "nothing is chosen"
BITS = (2, 3, 4, 5, 6, 7, 8, 16)
METHODS = {
    "last_value": "last value",
    "moving_average": "moving average",
    "all_values": "all values",
    "lsq": "learned (LSQ)",
}
_SITES = {"weight": "Weights", "input": "Inputs", "output": "Output"}
_FLAGS = {
    "symmetric": ("symmetric", "asymmetric"),
    "narrow_range": ("narrow", "full"),
    "per_axis": ("per channel", "per tensor"),
}
_WIDTHS = {
    "num_bits": "126px",
    "symmetric": "158px",
    "narrow_range": "134px",
    "per_axis": "158px",
    "block_size": "158px",
}
_TITLES = {
    "num_bits": "Width of the integers",
    "symmetric": "Symmetric: the zero point lies in the middle of the grid",
    "narrow_range": "Narrow: the lowest integer is left out; full: all integers are used",
    "per_axis": "One scale per output channel, or one for the whole weight",
    "block_size": "One scale for so many values along the inputs: for matrices whose inputs stay in float",
    "quantizer": "How the range is found while training",
}

Changed = Callable[[str, str, Any], Any]
"""Called with site, setting and value; an empty setting stands for all of the site's."""


class QuantizerControls:
    """Pickers for the layer in the inspector.

    Args:
        on_change: Called when the user picks another value.
    """

    def __init__(self, on_change: Changed) -> None:
        self._on_change = on_change
        self._showing = False
        self.pickers: dict[tuple[str, str], Any] = {}
        self._resets = {site: self._reset(site) for site in _SITES}
        self._rows = {site: self._make_row(site) for site in _SITES}
        self._note = widgets.HTML()
        head = widgets.HTML('<div class="qdq-heading">Quantizers</div>')
        self.widget = widgets.VBox([head, self._note, *self._rows.values()])

    def show(self, bench: Any, node: Any, note: str = "") -> None:
        """Show the quantizers of a node under the bench's present plan, with a note above them."""
        plan = bench.plan
        on = {
            "weight": any(p.site == "weight" and p.layer == node.layer for p in plan.placements),
            "input": any(plan.input_placement(node.name, index) is not None for index in range(len(node.inputs))),
            "output": any(p.site == "output" and p.node == node.name for p in plan.placements),
        }
        refused = False
        try:
            config = config_of(bench.state, plan, node)
        except BenchError as error:
            config, refused, note = {}, True, str(error).partition(" Received:")[0]
            on = dict.fromkeys(on, False)
        self._note.value = text_html(note, "qdq-muted") if note else ""
        self._note.layout.display = "" if note else "none"
        self.widget.layout.display = "" if refused or any(on.values()) else "none"
        self._showing = True  # not the user's pick
        try:
            for site, shown in self._rows.items():
                shown.layout.display = "" if on[site] else "none"
                if on[site]:
                    self._show_site(site, config.get(PARTS[site], {}), qdq.get_target(plan.target))
        finally:
            self._showing = False

    def _show_site(self, site: str, settings: Mapping[str, Any], target: Any) -> None:
        usual = target.weight if site == "weight" else target.activation
        self._resets[site].disabled = not settings
        for (of, key), picker in self.pickers.items():
            if of == site:
                sizes = sorted(target.block_sizes) if key == "block_size" else ()
                options = _options(key, usual, site, settings.get(key), sizes)
                if list(picker.options) != options:
                    picker.options = options
                picker.value = settings.get(key, _DEFAULT)

    def _make_row(self, site: str) -> Any:
        label = widgets.HTML(f'<span class="qdq-site qdq-site-{site}">{html.escape(_SITES[site])}</span>')
        of_weights = ["per_axis", "block_size"] if site == "weight" else []
        keys = ["num_bits", "symmetric", "narrow_range", *of_weights, "quantizer"]
        for key in keys:
            self.pickers[site, key] = self._picker(site, key)
        pickers = row(*(self.pickers[site, key] for key in keys), self._resets[site], gap="0 4px")
        return widgets.HBox([label, pickers], layout={"align_items": "flex-start"})

    def _picker(self, site: str, key: str) -> Any:
        picker = widgets.Dropdown(layout={"width": _WIDTHS.get(key, "190px")})
        picker.tooltip = f"{_SITES[site]}: {_TITLES[key]}"
        picker.add_class("qdq-setting")
        picker.observe(lambda change: self._pick(site, key, change["new"]), "value")
        return picker

    def _reset(self, site: str) -> Any:
        tooltip = f"{_SITES[site]}: back to the target's default"
        made = button("", lambda: self._on_change(site, "", None), icon="undo", tooltip=tooltip)
        made.add_class("qdq-ghost")
        return made

    def _pick(self, site: str, key: str, value: Any) -> None:
        if not self._showing:
            self._on_change(site, key, None if value == _DEFAULT else value)


def _options(key: str, usual: Any, site: str, present: Any, sizes: Sequence[int] = ()) -> list[tuple[str, Any]]:
    """Return the texts and values of a picker: the target's default first, named by its value."""
    if key == "num_bits":
        # Code may have set a width that is not offered.
        found = [(f"{bits} bits", bits) for bits in sorted({*BITS, *([present] if present else [])})]
        return [(f"{usual.num_bits} bits (default)", _DEFAULT), *found]
    if key == "quantizer":
        first = METHODS["last_value" if site == "weight" else "moving_average"]
        # Code may have set another one, such as a serialized quantizer of the user's, which is a dictionary.
        own = [(value_text(present), present)] if present and present not in list(METHODS) else []
        return [(f"{first} (default)", _DEFAULT), *((text, name) for name, text in METHODS.items()), *own]
    if key == "block_size":
        known = sorted({*sizes, *([present] if present else [])})
        return [("no blocks (default)", _DEFAULT), *((f"blocks of {size}", size) for size in known)]
    yes, no = _FLAGS[key]
    default = True if key == "per_axis" else getattr(usual, key)
    return [(f"{yes if default else no} (default)", _DEFAULT), (yes, True), (no, False)]
