import { describe, expect, it } from "vitest";
import { Viewport } from "./viewport";

function tall(): Viewport {
  const viewport = new Viewport();
  viewport.size = { width: 600, height: 400 };
  viewport.content = { width: 300, height: 50_000 };
  viewport.start();
  return viewport;
}

describe("viewport", () => {
  it("starts with the top of a tall graph at full size, centred", () => {
    const viewport = tall();
    expect([viewport.scale, viewport.x, viewport.y]).toEqual([1, -150, -12]);
  });

  it("starts with a small graph whole, a wide one not too small", () => {
    const viewport = tall();
    viewport.content = { width: 500, height: 300 };
    viewport.start();
    expect(viewport.scale).toBe(1);
    viewport.content = { width: 3000, height: 2000 };
    viewport.start();
    expect(viewport.scale).toBe(0.85);
  });

  it.each([
    [300, 50_000],
    [300, 5850],
    [3000, 200],
    [900, 700],
    [100, 100],
  ])("fits all of a graph of %i x %i", (width, height) => {
    const viewport = tall();
    viewport.content = { width, height };
    viewport.moveBy(0, 300);
    viewport.fit();
    const { left, right, top, bottom } = viewport.box;
    expect(left).toBeLessThanOrEqual(0);
    expect(right).toBeGreaterThanOrEqual(width);
    expect(top).toBeLessThanOrEqual(0);
    expect(bottom).toBeGreaterThanOrEqual(height);
    expect(viewport.isWhole).toBe(viewport.scale < 0.85);
    viewport.zoomBy(1.25);
    expect(viewport.isWhole).toBe(false);
    viewport.zoomBy(0.1); // zooming by hand reaches the whole graph, too
    expect(viewport.box.bottom).toBeGreaterThanOrEqual(height);
  });

  it("zooms about a point", () => {
    const viewport = tall();
    viewport.moveBy(0, 5000);
    const before = viewport.y + 100 / viewport.scale;
    viewport.zoomBy(1.5, 300, 100);
    expect(viewport.y + 100 / viewport.scale).toBeCloseTo(before);
  });

  it("stays with the content", () => {
    const viewport = tall();
    viewport.moveBy(0, 1e9);
    expect(viewport.y).toBe(50_000 - 400 + 12);
    viewport.moveBy(0, -1e9);
    expect(viewport.y).toBe(-12);
  });

  it("reveals with as little movement as needed, far things in the middle", () => {
    const viewport = tall();
    viewport.reveal(0, 100, 280, 50);
    expect(viewport.y).toBe(-12);
    viewport.reveal(0, 10_000, 280, 50);
    expect(viewport.y).toBe(10_000 + 25 - 200);
  });
});
