// @vitest-environment happy-dom
import { describe, expect, it } from "vitest";
import { RESIDUAL } from "./fixtures";
import { show, withSizes } from "./page";

withSizes();

describe("kernel", () => {
  it("without a kernel nothing is painted that nobody answers, and what was painted goes", async () => {
    const { model, host, click, unit, key, find } = show(RESIDUAL);
    const badge = (name: string) => unit(name).querySelector(".qdqw-badge.weight") as Element;
    click(badge("left_1"));
    expect(badge("left_1").classList.contains("all")).toBe(true);
    host.classList.add("jupyter-widgets-disconnected"); // as the host does when the kernel dies
    await new Promise((resolve) => setTimeout(resolve));
    expect(badge("left_1").classList.contains("all")).toBe(false);
    click(badge("left_2"));
    for (const name of ["i", "w", "o", "l"]) key(name);
    key("z", { ctrlKey: true });
    expect(badge("left_2").classList.contains("all")).toBe(false);
    expect(model.sent).toHaveLength(1);
    expect(find(".qdqw-foot").textContent).toContain("The kernel is gone");
    expect((find("button[aria-label^=Undo]") as HTMLButtonElement).disabled).toBe(true);
    host.classList.remove("jupyter-widgets-disconnected");
    await new Promise((resolve) => setTimeout(resolve));
    click(badge("left_2"));
    expect(model.sent).toHaveLength(2);
    expect((find("button[aria-label^=Undo]") as HTMLButtonElement).disabled).toBe(false);
    model.live(false); // the other signal of hosts
    expect(find(".qdqw-foot").textContent).toContain("The kernel is gone");
    model.live(true);
    expect(find(".qdqw-foot").textContent).not.toContain("The kernel is gone");
  });
});
