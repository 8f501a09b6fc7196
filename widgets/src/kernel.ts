// Whether a kernel stands behind a widget. The host says so in two ways, and anywidget passes on neither as such: the
// boxes around a widget are marked, and the model tells of a change.
import type { Model } from "./traits";

const GONE = "jupyter-widgets-disconnected";

/** Tell now and on every change; returns what ends it. */
export function watchKernel(model: Model, element: HTMLElement, tell: (gone: boolean) => void): () => void {
  let frame = 0;
  const look = () => tell(element.closest(`.${GONE}`) !== null);
  const observer = new MutationObserver(look);
  const begin = () => {
    if (!element.isConnected) {
      frame = requestAnimationFrame(begin); // the page puts widgets into their places one after the other
      return;
    }
    observer.observe(element.closest(".jupyter-widgets") ?? element, { attributes: true, attributeFilter: ["class"] });
    look();
  };
  // The host calls with the view as `this`; without one, a change after the first drawing is the end.
  const changed = function (this: { model?: { comm_live?: boolean } } | undefined) {
    tell(this?.model?.comm_live !== true);
  };
  model.on("comm_live_update", changed);
  begin();
  return () => {
    model.off("comm_live_update", changed);
    observer.disconnect();
    cancelAnimationFrame(frame);
  };
}
