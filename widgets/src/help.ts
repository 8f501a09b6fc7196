// The panel of keys and colours.
import { html } from "./dom";
import { icon } from "./icons";
import { button } from "./toolbar";

const KEYS: [string, string][] = [
  ["↑ ↓ ← →", "along edges, to neighbouring branches"],
  ["I  W  O", "quantize input, weights, output of the selection"],
  ["0 … 9", "one input of a merging layer"],
  ["Ctrl+↑ ↓ ← →   Space", "move the focus alone; add to or take from the selection"],
  ["Ctrl+A", "select all matches of the search, or all layers"],
  ["Shift / Ctrl click", "select a range / one more"],
  ["Shift drag", "select all in a rectangle; with Ctrl in addition"],
  ["Enter", "open or close a block"],
  ["L", "apply to all layers like this one"],
  ["/   N   P", "search, next, previous match"],
  ["Ctrl+Z   Ctrl+Shift+Z", "undo, redo"],
  ["D   Shift+D", "next, previous difference of the list"],
  ["F   +   -", "all in view, and back to a size to read; larger, smaller"],
  ["Home   End", "first, last"],
  ["?   Esc", "open and close this; Esc also selects nothing"],
];

export function helpPanel(close: () => void): HTMLElement {
  const rows = KEYS.map(([keys, meaning]) =>
    html("tr", {}, [
      html(
        "td",
        {},
        keys.split(/ {2,}/).map((key) => html("kbd", {}, [key])),
      ),
      html("td", {}, [meaning]),
    ]),
  );
  const notes = [
    "I, W, O: filled is quantized, half filled is partly, pale cannot be (hover says why).",
    "Green edges carry the value behind a Q·DQ pair; a pair is drawn once, at its tensor.",
    "Search words: part of a name or class, or all of it with * and ? (block?_*conv); name: and class: before it; int8, float, mixed, shared, differs; w=4, i=8, o=float; “not” before a word turns it round.",
    "The wheel scrolls the graph while it has the focus, with Ctrl it zooms.",
  ];
  const head = html("div", { class: "qdqw-bar", style: "border:0;padding:0;background:none" }, [
    html("h3", {}, ["Keys and colours"]),
    html("span", { class: "qdqw-grow" }),
    button("Close", [icon("close")], close),
  ]);
  return html(
    "div",
    {
      class: "qdqw-help",
      role: "dialog",
      "aria-label": "Keys and colours",
      tabindex: -1,
      "data-lm-suppress-shortcuts": "true",
    },
    [
      head,
      html("table", {}, [html("tbody", {}, rows)]),
      ...notes.map((note) => html("p", { style: "margin:6px 0 0" }, [note])),
    ],
  );
}
