// Translates pointer, wheel and key events on the picture into commands.

import type { Box } from "./draw";
import type { Badge } from "./node_draw";
import type { Site } from "./traits";
import type { Unit } from "./units";
import type { Viewport } from "./viewport";

export interface Target {
  unit: number;
  badge: Badge | null;
  open: number | null;
  close: number | null;
  tensor: number | null;
}

export interface Commands {
  hitTest(element: Element): Target;
  unit(index: number): Unit;
  clickUnit(index: number, mode: "only" | "toggle" | "range"): void;
  clickBadge(index: number, badge: Badge): void;
  setOpen(block: number, open: boolean): void;
  clear(): void;
  /** Whether the next drag selects by a rectangle instead of panning. */
  readonly isPicking: boolean;
  /** Show the rectangle of a drag; with `end`, hide it and select the units that it intersects. */
  region(box: Box | null, end?: "only" | "add"): void;
  hover(target: Target | null, x: number, y: number): void;
  moved(): void;
  arrow(key: "ArrowUp" | "ArrowDown" | "ArrowLeft" | "ArrowRight", extend: boolean): void;
  walk(key: "ArrowUp" | "ArrowDown" | "ArrowLeft" | "ArrowRight"): void;
  selectAll(): void;
  jump(where: "first" | "last"): void;
  toggleSite(site: Site, index: number | null): void;
  toggleSelected(): void;
  enter(): void;
  applyLike(): void;
  find(): void;
  step(direction: 1 | -1): void;
  undo(): void;
  redo(): void;
  toggleFit(): void;
  zoom(factor: number): void;
  help(): void;
  difference(direction: 1 | -1): void;
  escape(): void;
}

const DRAG_FROM = 4;

/** Listen to events of the picture; return a function that removes the listeners. */
export function listen(svg: SVGSVGElement, viewport: Viewport, commands: Commands): () => void {
  const ends = [pointer(svg, viewport, commands), wheel(svg, viewport, commands)];
  const onKey = (event: KeyboardEvent) => {
    if (!handleKey(event, commands)) return;
    event.preventDefault();
    event.stopPropagation();
  };
  svg.addEventListener("keydown", onKey);
  return () => {
    for (const end of ends) end();
    svg.removeEventListener("keydown", onKey);
  };
}

function pointer(svg: SVGSVGElement, viewport: Viewport, commands: Commands): () => void {
  let start: {
    x: number;
    y: number;
    lastX: number;
    lastY: number;
    target: Target;
    dragging: boolean;
    picking: boolean;
  } | null = null;
  const boxTo = (event: PointerEvent): Box => {
    const { left, top } = svg.getBoundingClientRect();
    const [xs, ys] = [
      [start!.x, event.clientX].map((x) => x - left).sort((a, b) => a - b),
      [start!.y, event.clientY].map((y) => y - top).sort((a, b) => a - b),
    ];
    return { left: xs[0], top: ys[0], right: xs[1], bottom: ys[1] };
  };
  const down = (event: PointerEvent) => {
    if (event.button !== 0) return;
    svg.focus({ preventScroll: true });
    const target = commands.hitTest(event.target as Element);
    const { clientX: x, clientY: y } = event;
    const picking = event.shiftKey || commands.isPicking;
    start = { x, y, lastX: x, lastY: y, target, dragging: false, picking };
    commands.hover(null, 0, 0);
  };
  const move = (event: PointerEvent) => {
    if (start === null) {
      const box = svg.getBoundingClientRect();
      commands.hover(commands.hitTest(event.target as Element), event.clientX - box.left, event.clientY - box.top);
      return;
    }
    if (!start.dragging && Math.hypot(event.clientX - start.x, event.clientY - start.y) < DRAG_FROM) return;
    if (!start.dragging) {
      start.dragging = true;
      svg.setPointerCapture(event.pointerId);
      svg.classList.add("dragging");
    }
    if (start.picking) {
      commands.region(boxTo(event));
      return;
    }
    viewport.moveBy(start.lastX - event.clientX, start.lastY - event.clientY);
    start.lastX = event.clientX;
    start.lastY = event.clientY;
    commands.moved();
  };
  const cancel = () => {
    start = null;
    commands.region(null);
    svg.classList.remove("dragging");
  };
  const up = (event: PointerEvent) => {
    const ended = start;
    if (ended?.dragging && ended.picking) {
      commands.region(boxTo(event), event.ctrlKey || event.metaKey ? "add" : "only");
    }
    cancel();
    if (ended !== null && !ended.dragging) click(ended.target, event, commands);
  };
  // Before a drag captures the pointer, its release outside of the picture is not told.
  const enter = (event: PointerEvent) => {
    if (event.buttons === 0) cancel();
  };
  const leave = () => commands.hover(null, 0, 0);
  const double = (event: MouseEvent) => {
    const target = commands.hitTest(event.target as Element);
    const block = target.unit >= 0 && target.badge === null ? commands.unit(target.unit).block : null;
    if (block !== null) commands.setOpen(block.id, true);
  };
  const handlers = {
    pointerdown: down,
    pointermove: move,
    pointerup: up,
    pointercancel: cancel,
    pointerenter: enter,
    pointerleave: leave,
    dblclick: double,
  };
  for (const [name, handler] of Object.entries(handlers)) svg.addEventListener(name, handler as EventListener);
  return () => {
    for (const [name, handler] of Object.entries(handlers)) svg.removeEventListener(name, handler as EventListener);
  };
}

function click(target: Target, event: PointerEvent, commands: Commands): void {
  if (target.open !== null) commands.setOpen(target.open, true);
  else if (target.close !== null) commands.setOpen(target.close, false);
  else if (target.unit >= 0 && target.badge !== null) commands.clickBadge(target.unit, target.badge);
  else if (target.unit >= 0) {
    commands.clickUnit(target.unit, event.shiftKey ? "range" : event.ctrlKey || event.metaKey ? "toggle" : "only");
  } else commands.clear();
}

/** Handle the wheel only while the picture has the focus; otherwise the page scrolls. */
function wheel(svg: SVGSVGElement, viewport: Viewport, commands: Commands): () => void {
  const onWheel = (event: WheelEvent) => {
    // In a shadow root, `document.activeElement` is the root's host and never the picture.
    const root = svg.getRootNode() as Document | ShadowRoot;
    if (root.activeElement !== svg) return;
    event.preventDefault();
    // Browsers count in pixels (0), lines (1) or pages (2).
    const unit = event.deltaMode === 1 ? 18 : event.deltaMode === 2 ? viewport.size.height : 1;
    // Some systems turn Shift and wheel into deltaX themselves; where they do not, deltaY scrolls sideways.
    if (event.ctrlKey || event.metaKey) {
      const box = svg.getBoundingClientRect();
      viewport.zoomBy(Math.exp(-event.deltaY * unit * 0.002), event.clientX - box.left, event.clientY - box.top);
    } else if (event.shiftKey && event.deltaX === 0) viewport.moveBy(event.deltaY * unit, 0);
    else viewport.moveBy(event.deltaX * unit, event.deltaY * unit);
    commands.hover(null, 0, 0);
    commands.moved();
  };
  // preventDefault has no effect in a passive listener.
  svg.addEventListener("wheel", onWheel, { passive: false });
  return () => svg.removeEventListener("wheel", onWheel);
}

/** Execute the command of a key; return whether there is one. */
export function handleKey(event: KeyboardEvent, commands: Commands): boolean {
  // Letters mean the same with Shift and Caps Lock; other keys have names, such as Enter.
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  if (event.ctrlKey || event.metaKey) {
    if (key === "z") event.shiftKey ? commands.redo() : commands.undo();
    else if (key === "y") commands.redo();
    else if (key === "a") commands.selectAll();
    else if (isArrow(key)) commands.walk(key);
    else return false;
    return true;
  }
  if (event.altKey) return false;
  if (isArrow(key)) {
    commands.arrow(key, event.shiftKey);
    return true;
  }
  if (/^\d$/.test(key)) {
    commands.toggleSite("input", Number(key));
    return true;
  }
  if (key === "d") {
    commands.difference(event.shiftKey ? -1 : 1);
    return true;
  }
  const action = KEYS.get(key);
  action?.(commands);
  return action !== undefined;
}

/** Execute a key that works wherever the focus is in the pane: undo, redo, help, Escape; return whether it was one. */
export function handlePanelKey(event: KeyboardEvent, commands: Commands): boolean {
  const isWalk = (event.ctrlKey || event.metaKey) && /^[zy]$/i.test(event.key);
  const isPlain = !event.ctrlKey && !event.metaKey && !event.altKey && (event.key === "?" || event.key === "Escape");
  return (isWalk || isPlain) && handleKey(event, commands);
}

function isArrow(key: string): key is "ArrowUp" | "ArrowDown" | "ArrowLeft" | "ArrowRight" {
  return /^Arrow(Up|Down|Left|Right)$/.test(key);
}

const KEYS = new Map<string, (commands: Commands) => void>([
  ["i", (c) => c.toggleSite("input", null)],
  ["w", (c) => c.toggleSite("weight", null)],
  ["o", (c) => c.toggleSite("output", null)],
  ["l", (c) => c.applyLike()],
  [" ", (c) => c.toggleSelected()],
  ["Enter", (c) => c.enter()],
  ["/", (c) => c.find()],
  ["n", (c) => c.step(1)],
  ["p", (c) => c.step(-1)],
  ["f", (c) => c.toggleFit()],
  ["+", (c) => c.zoom(1.25)],
  // The key of + without Shift, on US keyboards.
  ["=", (c) => c.zoom(1.25)],
  ["-", (c) => c.zoom(1 / 1.25)],
  ["?", (c) => c.help()],
  ["Escape", (c) => c.escape()],
  ["Home", (c) => c.jump("first")],
  ["End", (c) => c.jump("last")],
]);
