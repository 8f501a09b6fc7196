import { beforeEach, describe, expect, it } from "vitest";
import { keepListening } from "./late";
import type { HostModel, Model } from "./traits";

type Message = { content: { data: { method?: string; state?: object } } };

/** The host's model class: its handler applies update messages to the model. */
class Host {
  heard: Message[] = [];
  listener: ((message: Message) => unknown) | undefined;
  closed: (() => void) | undefined;
  comm: Required<HostModel>["comm"] | undefined = {
    on_msg: (listener: unknown) => {
      this.listener = listener as typeof this.listener;
    },
    on_close: (listener) => {
      this.closed = listener;
    },
  };
  views: Record<string, Promise<{ el: Element }>> = {};
  private readonly listeners = new Map<string, (() => void)[]>();

  constructor(
    readonly model_id: string,
    readonly values: Record<string, unknown> = {},
  ) {
    this.comm?.on_msg((message) => this._handle_comm_msg(message));
    this.comm?.on_close(() => this.close());
  }

  close(): void {
    for (const listener of this.listeners.get("destroy") ?? []) listener();
    this.comm = undefined;
  }

  get(name: string): unknown {
    return this.values[name];
  }

  on(events: string, listener: () => void): void {
    for (const event of events.split(" ")) this.listeners.set(event, [...(this.listeners.get(event) ?? []), listener]);
  }

  once(event: string, listener: () => void): void {
    this.on(event, () => {
      this.listeners.set(event, []);
      listener();
    });
  }

  set_state(state: Record<string, unknown>): void {
    for (const [name, value] of Object.entries(state)) {
      const isNew = this.values[name] !== value;
      this.values[name] = value;
      if (isNew) for (const listener of this.listeners.get(`change:${name}`) ?? []) listener();
    }
  }

  async _handle_comm_msg(message: Message): Promise<void> {
    const { method, state } = message.content.data;
    if (method === undefined) return;
    this.heard.push(message);
    this.set_state(state as Record<string, unknown>);
  }
}

/** anywidget's subclass: its handler waits for the script, and fails after a timeout. */
class AnyModel extends Host {
  constructor(
    id: string,
    private readonly ready: Promise<void>,
    values: Record<string, unknown> = {},
  ) {
    super(id, { _model_module: "anywidget", _esm: "export default {}", ...values });
  }

  override async _handle_comm_msg(message: Message): Promise<void> {
    await this.ready;
    return super._handle_comm_msg(message);
  }
}

const inTime = () => Promise.resolve();
const late = () => {
  const given = Promise.reject(new Error("[anywidget] Failed to initialize model."));
  given.catch(() => undefined);
  return given;
};
const settled = () => new Promise((resolve) => setTimeout(resolve));
const update = (state: object): Message => ({ content: { data: { method: "update", state } } });

let sent: { type: string; model: string }[];
let known: Record<string, Host>;

function look(...models: Host[]): void {
  for (const model of models) known[model.model_id] = model;
  const manager = {
    get_model: async (id: string) => {
      if (known[id] === undefined) throw new Error("widget model not found");
      return known[id] as unknown as HostModel;
    },
  };
  const model = {
    get: () => models[0].model_id,
    send: (content: never) => sent.push(content),
    widget_manager: manager,
  };
  void keepListening(model as unknown as Model);
}

const box = (...children: Host[]) => new Host("box", { _model_module: "@jupyter-widgets/controls", children });
const ask = (id: string) => ({ type: "late", model: `IPY_MODEL_${id}` });

beforeEach(() => {
  sent = [];
  known = {};
});

describe("late", () => {
  it("a model that anywidget gave up takes in messages again, each once, and asks for its state", async () => {
    const model = new AnyModel("late", late());
    await expect(Promise.resolve(model.listener?.(update({ text: "lost" })))).rejects.toThrow("Failed");
    look(box(model));
    await settled();
    expect(sent).toEqual([ask("late")]);
    await model.listener?.(update({ text: "new" }));
    expect(model.heard).toEqual([update({ text: "new" })]);
    expect(model.get("text")).toBe("new");
  });

  it("models whose script came in time, or is still awaited, are left alone", async () => {
    const model = new AnyModel("ready", inTime());
    const waiting = new AnyModel("waiting", new Promise(() => undefined));
    const before = [model.listener, waiting.listener];
    look(box(model, waiting));
    await settled();
    expect(sent).toEqual([]);
    expect([model.listener, waiting.listener]).toEqual(before);
    expect(model.heard).toEqual([]);
  });

  it("what comes into a box later is looked after too, and nothing twice", async () => {
    const [first, second] = [new AnyModel("first", late()), new AnyModel("second", late())];
    const inner = new Host("inner", { children: [] });
    const outer = box(first, inner);
    look(outer);
    await settled();
    look(outer);
    inner.set_state({ children: [second] });
    outer.set_state({ children: [inner] });
    await settled();
    expect(sent).toEqual([ask("first"), ask("second")]);
  });

  it("a figure asks again once it is drawn, and a drawn one is drawn anew where it had missed something", async () => {
    const figure = new AnyModel("figure", late(), { _widget_data: ["line"], _widget_layout: {} });
    const el = { hasChildNodes: () => false } as Element;
    figure.views = { one: Promise.resolve({ el }) };
    look(box(figure));
    await settled();
    await figure.listener?.(update({ _widget_data: ["line", "more"] }));
    await settled();
    expect(figure.get("_esm")).toBe("export default {}"); // not yet drawn: it will draw the new state
    el.hasChildNodes = () => true;
    figure.set_state({ _js2py_traceDeltas: {} });
    expect(sent).toEqual([ask("figure"), ask("figure")]);
    await figure.listener?.(update({ _widget_data: ["missed"], _widget_layout: { height: 1 } }));
    await settled();
    expect(figure.get("_esm")).toBe("export default {}\n"); // once, for data and layout
  });

  it("the connection of a closed widget, which JupyterLab keeps, holds the widget no longer", async () => {
    const parts = { layout: new Host("layout"), style: new Host("style") };
    const [closed, open] = [new Host("closed", { ...parts, children: [] }), new Host("open")];
    const gone = [closed, parts.layout, parts.style];
    const handlers = (host: Host) => [host.closed, host.listener];
    look(box(closed, open));
    await settled();
    const [before, kept] = [gone.map(handlers), handlers(open)];
    for (const host of gone) host.close();
    gone.forEach((host, k) => {
      for (const [at, handler] of handlers(host).entries()) {
        expect(handler).toBeTypeOf("function"); // the host binds it
        expect(handler).not.toBe(before[k][at]);
      }
    });
    expect(handlers(open)).toEqual(kept);
  });

  it("hosts of another kind are left alone", async () => {
    await keepListening({ get: () => "whole" } as unknown as Model);
    const saved = new AnyModel("saved", late());
    saved.comm = undefined; // a page without a kernel
    look(saved);
    const own = {
      model_id: "own",
      comm: {},
      get: (name: string) => ({ _model_module: "anywidget" })[name],
      on: () => 0,
    };
    look(own as unknown as Host);
    await settled();
    expect(sent).toEqual([]);
    const manager = { get_model: () => Promise.reject(new Error("widget model not found")) };
    const model = { get: () => "unknown", widget_manager: manager };
    await expect(keepListening(model as unknown as Model)).rejects.toThrow("not found");
  });
});
