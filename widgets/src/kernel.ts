// Detects whether a widget is connected to a kernel. anywidget has no API for this; hosts signal it in two ways: by a
// CSS class on an element around the widget, and by the model's event `comm_live_update`.
import type { Model } from "./traits";

const GONE = "jupyter-widgets-disconnected";

/** Call `tell` once the element is in the page, and at every change; return a function that ends this. */
export function watchKernel(model: Model, element: HTMLElement, tell: (gone: boolean) => void): () => void {
  let frame = 0;
  const look = () => tell(element.closest(`.${GONE}`) !== null);
  const observer = new MutationObserver(look);
  const begin = () => {
    if (!element.isConnected) {
      frame = requestAnimationFrame(begin); // not attached yet: try again in the next frame
      return;
    }
    observer.observe(element.closest(".jupyter-widgets") ?? element, { attributes: true, attributeFilter: ["class"] });
    look();
  };
  // The host calls the listener with the view as `this`; without it, an update means that the kernel is gone.
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
