// anywidget (0.9 to 0.11 at least) gives the script of a widget two seconds, which a busy browser may not have. A later
// one is drawn all the same, but its model takes in no more messages. So each model of the bench is asked whether that
// has happened; if so, the host's own handler takes its messages again, and Python tells the state that it has by now.
import type { Model } from "./traits";

type Message = { content: { data: object } };

/** What the host keeps behind the model that anywidget hands out. */
export interface HostModel {
  readonly model_id: string;
  readonly comm?: { on_msg(listener: (message: Message) => unknown): void };
  readonly views?: Record<string, Promise<{ el: Element }>>;
  get(name: string): unknown;
  on(events: string, listener: () => void): void;
  once(event: string, listener: () => void): void;
  set_state(state: object): void;
  _handle_comm_msg(message: Message): Promise<unknown>;
}

const known = new WeakSet<HostModel>();

/**
 * Keep the widget listening that `whole` names, and all that are in it by now or later. Other hosts than Jupyter's have no
 * such manager, or models of another kind, which are left alone; fails where the host does not know the widget.
 */
export async function keepListening(model: Model): Promise<void> {
  const whole = await model.widget_manager?.get_model(model.get("whole"));
  const visit = (host: HostModel) => {
    if (known.has(host)) return;
    known.add(host);
    if (host.get("_model_module") === "anywidget")
      void revive(host, () => model.send({ type: "late", model: `IPY_MODEL_${host.model_id}` }));
    const below = () => ((host.get("children") ?? []) as HostModel[]).forEach(visit);
    host.on("change:children", below);
    below();
  };
  if (whole?.comm) visit(whole);
}

async function revive(host: HostModel, ask: () => void): Promise<void> {
  // The class is anywidget's; the one that it derives from is the host's, if it is one of Jupyter's.
  const handler = Object.getPrototypeOf(host.constructor.prototype)?._handle_comm_msg;
  if (!handler || !host.comm) return;
  try {
    await host._handle_comm_msg({ content: { data: {} } }); // means nothing; anywidget refuses it where it gave up
    return;
  } catch {
    host.comm?.on_msg(handler.bind(host)); // none where it was closed meanwhile
  }
  ask();
  if (host.get("_widget_data") === undefined) return;
  // A plotly figure misses messages until its script is there, and says this when it is drawn. What it has drawn once it
  // draws anew for a new script alone; rendered again, it would obey each message twice.
  host.once("change:_js2py_traceDeltas", ask);
  host.on("change:_widget_data change:_widget_layout", async () => {
    const script = `${host.get("_esm")}\n`; // the same for both events, so that the second changes nothing
    const views = await Promise.all(Object.values(host.views ?? {}));
    if (views.some(({ el }) => el.hasChildNodes())) host.set_state({ _esm: script });
  });
}
