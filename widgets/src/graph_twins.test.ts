// The page finds what Python finds; `tests/graph_twins.py` writes the plans and the answers.
import { describe, expect, it } from "vitest";
import cases from "../../tests/graph_twins.json";
import { FakeModel } from "./fixtures";
import { quantizedAfter } from "./quantized_after";
import { search } from "./search";
import { Store } from "./store";
import type { GraphPayload, PlanState } from "./traits";

interface Case {
  name: string;
  graph: GraphPayload;
  plan_state: PlanState;
  queries: [string, string[]][];
  after: Record<string, string>;
}

describe.each(cases as unknown as Case[])("$name", ({ graph, plan_state, queries, after }) => {
  const store = new Store(new FakeModel([], { graph, plan_state }));
  const nameOf = (node: number) => store.graph.name(node);

  it("has the same matches", () => {
    expect(queries.map(([query]) => [query, search(store, query).map(nameOf)])).toEqual(queries);
  });

  it("has outputs that are quantized behind the same layers", () => {
    const found = graph.names.flatMap((name, node) => {
      const behind = quantizedAfter(store, node);
      return behind === null ? [] : [[name, nameOf(behind)]];
    });
    expect(Object.fromEntries(found)).toEqual(after);
  });
});
