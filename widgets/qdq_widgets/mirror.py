"""Jupyter's widgets as plain HTML in one anywidget, for hosts such as marimo that show anywidgets alone."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import anywidget
import ipywidgets as widgets
import traitlets

_MIRROR = """
const html = (tag, look, ...children) => {
  const made = Object.assign(document.createElement(tag), look);
  made.append(...children);
  return made;
};
const ICONS = { undo: "↶", repeat: "↷", trash: "✕", times: "✕" };

export default {
  render({ model, el }) {
    const [nodes, views] = [new Map(), new Map()];
    const set = (node, value) => model.send({ set: node.id, value });
    const labelled = (field, inner) => {
      const text = html("span", {});
      const outer = html("label", {}, text, inner);
      return [outer, (node) => {
        text.textContent = node.text;
        [field.disabled, field.title, field.placeholder] = [node.disabled, node.tip, node.placeholder ?? ""];
        if (!node.text) field.ariaLabel = node.tip || field.placeholder;
      }];
    };
    const input = (type, key) => (first) => {
      const field = html(type === "area" ? "textarea" : "input", type === "area" ? { rows: 8 } : { type });
      for (const name of ["min", "max", "step"]) if (first[name] !== undefined) field[name] = first[name];
      const read = () => (type === "number" ? Number(field.value) : field[key]);
      field.addEventListener("change", () => set(nodes.get(first.id), read()));
      const [outer, update] = labelled(field, field);
      return [outer, (node) => {
        update(node);
        if (field[key] !== node.value && String(node.value) !== field.value) field[key] = node.value;
        if (key === "checked") field.checked = node.value;
      }];
    };
    const choice = (first) => {
      const field = html("select", first.many ? { multiple: true, size: 8 } : first.rows ? { size: first.rows } : {});
      field.addEventListener("change", () => {
        const chosen = [...field.selectedOptions].map((option) => option.index);
        set(nodes.get(first.id), first.many ? chosen : (chosen[0] ?? null));
      });
      const [outer, update] = labelled(field, field);
      let labels = "";
      return [outer, (node) => {
        update(node);
        if (labels !== node.labels.join("\\n")) {
          labels = node.labels.join("\\n");
          field.replaceChildren(...node.labels.map((textContent) => html("option", { textContent })));
        }
        const chosen = [node.index].flat();
        [...field.options].forEach((option, place) => { option.selected = chosen.includes(place); });
      }];
    };
    const button = (first) => {
      const made = html("button", { className: "jupyter-button" });
      made.addEventListener("click", () => model.send({ click: first.id }));
      return [made, (node) => {
        made.textContent = node.text || (ICONS[node.icon] ?? "•");
        [made.disabled, made.title] = [node.disabled, node.tip];
        if (!node.text) made.ariaLabel = node.tip;
        made.classList.toggle("strong", node.style === "primary");
        if (node.pressed !== undefined) made.setAttribute("aria-pressed", String(node.pressed));
      }];
    };
    const box = () => {
      const made = html("div", {});
      let shown = "";
      return [made, (node) => {
        made.dataset.flow = node.flow;
        if (shown !== node.children.join()) made.replaceChildren(...node.children.map(view));
        shown = node.children.join();
      }];
    };
    const tabs = (first) => {
      const [bar, body] = [html("div", { role: "tablist", className: "bar" }), html("div", { role: "tabpanel" })];
      const go = (index) => set(nodes.get(first.id), (index + bar.children.length) % bar.children.length);
      bar.addEventListener("keydown", ({ key }) => {
        const step = { ArrowRight: 1, ArrowLeft: -1 }[key];
        if (step) go(nodes.get(first.id).index + step);
      });
      return [html("div", {}, bar, body), (node) => {
        const isFocused = bar.contains(bar.getRootNode().activeElement);
        bar.replaceChildren(...node.titles.map((textContent, place) => {
          const tab = html("button", { textContent, role: "tab", tabIndex: place === node.index ? 0 : -1 });
          tab.setAttribute("aria-selected", String(place === node.index));
          tab.addEventListener("click", () => go(place));
          return tab;
        }));
        if (isFocused) bar.children[node.index]?.focus();
        const child = view(node.children[node.index]);
        if (body.firstChild !== child) body.replaceChildren(child);
      }];
    };
    const text = () => {
      const made = html("div", { className: "widget-html-content" });
      return [made, (node) => { if (made.innerHTML !== node.value) made.innerHTML = node.value; }];
    };
    const bar = () => {
      const made = html("progress", { max: 1 });
      return [made, (node) => { made.value = node.value; }];
    };
    const MAKERS = { box, tabs, text, bar, button, choice, input: input("text", "value"), area: input("area", "value"),
      number: input("number", "value"), check: input("checkbox", "checked") };
    const update = (node) => {
      const [made, change] = views.get(node.id);
      change(node);
      const own = { text: "widget-html-content", button: "jupyter-button" }[node.kind] ?? "";
      made.className = [own, node.kind, ...node.classes, node.style === "primary" ? "strong" : ""].join(" ");
      made.removeAttribute("style");
      Object.assign(made.style, node.css);
    };
    const view = (id) => {
      const node = nodes.get(id);
      if (!node) return html("div", {});
      if (!views.has(id)) {
        views.set(id, MAKERS[node.kind](node));
        update(node);
      }
      return views.get(id)[0];
    };
    const onMessage = (message) => {
      for (const node of message.nodes ?? []) nodes.set(node.id, node);
      for (const node of message.nodes ?? []) if (views.has(node.id)) update(node);
      if (message.roots) el.replaceChildren(...message.roots.map(view));
    };
    el.classList.add("qdq-bench", "qdq-mirror");
    model.on("msg:custom", onMessage);
    model.send({ ready: true });
    return () => model.off("msg:custom", onMessage);
  },
};
"""
_CSS = """
.qdq-mirror, .qdq-mirror * { box-sizing: border-box; }
.qdq-mirror { font: 13px system-ui, sans-serif; padding: 4px; }
.qdq-mirror .box[data-flow=row] { display: flex; flex-flow: row wrap; align-items: center; gap: 8px; }
.qdq-mirror .box[data-flow=column] { display: flex; flex-direction: column; gap: 6px; }
.qdq-mirror label { display: inline-flex; align-items: center; gap: 6px; }
.qdq-mirror :is(input, select, textarea, button) { font: inherit; padding: 3px 8px; border: 1px solid #bdbdbd;
  border-radius: 4px; background: transparent; color: inherit; max-width: 100%; }
.qdq-mirror :is(input:not([type=checkbox]), select, textarea) { flex: 1 1 auto; min-width: 60px; }
.qdq-mirror button:not(:disabled) { cursor: pointer; }
.qdq-mirror button:disabled { opacity: .45; }
.qdq-mirror button:is(.strong, [aria-pressed=true]) { background: #1565c0; color: #fff; border-color: #1565c0; }
.qdq-mirror .bar[role=tablist] { display: flex; flex-wrap: wrap; border-bottom: 1px solid #bdbdbd; }
.qdq-mirror .qdq-side [role=tabpanel] { max-height: 530px; overflow: auto; }
.qdq-mirror [role=tab] { border-color: transparent; border-radius: 4px 4px 0 0; }
.qdq-mirror [role=tab][aria-selected=true] { border-color: #bdbdbd; font-weight: 600; }
"""
_CSS_OF_LAYOUT = ("display", "width", "height", "max_width", "max_height", "min_width", "overflow")


class Mirror(anywidget.AnyWidget):
    """Shows Jupyter widgets as plain HTML that follows them, and hands what a user does in it to them.

    Args:
        roots: The widgets, one below the other.
    """

    _esm = _MIRROR
    _css = _CSS

    def __init__(self, roots: Sequence[Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._roots = list(roots)
        self._known: dict[str, Any] = {}
        self.on_msg(self._on_message)
        for root in roots:
            for widget in self._new(root):
                self._follow(widget)

    def _new(self, widget: Any) -> Iterator[Any]:
        """Yield a widget and those in it that are not known yet, and know them from then on."""
        if widget.model_id not in self._known:
            self._known[widget.model_id] = widget
            yield widget
        for child in getattr(widget, "children", ()):
            yield from self._new(child)

    def _follow(self, widget: Any) -> None:
        widget.observe(self._on_change)
        widget.layout.observe(lambda _: self._tell([widget]))

    def _on_change(self, change: Any) -> None:
        widget = change["owner"]
        if widget.comm is None:  # closed: the box that held it has told what it holds now
            if change["name"] == "comm":
                self._known.pop(change["old"].comm_id, None)
            return
        fresh = list(self._new(widget))
        for each in fresh:
            self._follow(each)
        self._tell([*fresh, widget])

    def _tell(self, changed: Sequence[Any], **more: Any) -> None:
        """Send widgets to the page; one that was closed meanwhile is no longer shown."""
        self.send({"nodes": [node_of(widget) for widget in changed if widget.comm is not None], **more})

    def _on_message(self, _: Any, content: Any, __: Any) -> None:
        if content.get("ready"):
            self._tell(list(self._known.values()), roots=[root.model_id for root in self._roots])
        elif content.get("click") in self._known:  # else it was closed meanwhile
            widget = self._known[content["click"]]
            if isinstance(widget, widgets.ToggleButton):
                widget.value = not widget.value
            elif not widget.disabled:
                widget.click()
        elif content.get("set") in self._known:
            self._set(self._known[content["set"]], content["value"])

    def _set(self, widget: Any, value: Any) -> None:
        name = "selected_index" if isinstance(widget, widgets.Tab) else "index" if hasattr(widget, "index") else "value"
        with contextlib.suppress(
            ValueError, TypeError, traitlets.TraitError
        ):  # a number out of bounds: the field shows the former one
            setattr(widget, name, tuple(value) if isinstance(value, list) else value)
        self._tell([widget])


def node_of(widget: Any) -> dict[str, Any]:
    """Return what the page draws for a widget."""
    layout = {name: getattr(widget.layout, name) for name in _CSS_OF_LAYOUT}
    css = {_camel(name): value for name, value in layout.items() if value is not None}
    look = {"classes": list(widget.get_state("_dom_classes")["_dom_classes"]), "css": css, "style": ""}
    texts = {"text": getattr(widget, "description", ""), "tip": getattr(widget, "tooltip", None) or ""}
    is_off = bool(getattr(widget, "disabled", False))
    content = next((content(widget) for kinds, content in _CONTENTS if isinstance(widget, kinds)), None)
    # Other anywidgets, such as the button that copies the code, are not drawn.
    content = {"kind": "text", "value": ""} if content is None else content
    return {"id": widget.model_id, **look, **texts, "disabled": is_off, **content}


def _tabs(widget: Any) -> dict[str, Any]:
    ids = [child.model_id for child in widget.children]
    return {"kind": "tabs", "children": ids, "titles": list(widget.titles), "index": widget.selected_index or 0}


def _box(widget: Any) -> dict[str, Any]:
    flow = "row" if isinstance(widget, widgets.HBox) else "column"
    return {"kind": "box", "children": [child.model_id for child in widget.children], "flow": flow}


def _choice(widget: Any) -> dict[str, Any]:
    labels = list(widget.get_state("_options_labels")["_options_labels"])
    is_many, rows = isinstance(widget, widgets.SelectMultiple), getattr(widget, "rows", 0)
    return {"kind": "choice", "labels": labels, "index": widget.index, "many": is_many, "rows": rows}


def _number(widget: Any) -> dict[str, Any]:
    bounds = {name: getattr(widget, name) for name in ("min", "max")}
    return {"kind": "number", "value": widget.value, **bounds, "step": widget.step or "any"}


# The first that fits: a text area is a text, and tabs are a box.
_CONTENTS: tuple[tuple[Any, Callable[[Any], dict[str, Any]]], ...] = (
    (widgets.Tab, _tabs),
    (widgets.Box, _box),
    (widgets.HTML, lambda it: {"kind": "text", "value": it.value}),
    (widgets.ToggleButton, lambda it: {"kind": "button", "icon": it.icon, "pressed": it.value}),
    (widgets.Button, lambda it: {"kind": "button", "icon": it.icon, "style": it.button_style}),
    ((widgets.Dropdown, widgets.Select, widgets.SelectMultiple, widgets.ToggleButtons), _choice),
    (widgets.Checkbox, lambda it: {"kind": "check", "value": it.value}),
    (widgets.FloatProgress, lambda it: {"kind": "bar", "value": it.value}),
    (widgets.Textarea, lambda it: {"kind": "area", "value": it.value, "placeholder": it.placeholder}),
    (widgets.Text, lambda it: {"kind": "input", "value": it.value, "placeholder": it.placeholder}),
    ((widgets.BoundedIntText, widgets.BoundedFloatText), _number),
)


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))
