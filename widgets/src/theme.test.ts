import { describe, expect, it } from "vitest";
import { TOKENS } from "./theme";

/** Relative luminance and contrast, as WCAG 2.2 defines them. */
function luminance(color: string): number {
  const [r, g, b] = [1, 3, 5]
    .map((at) => Number.parseInt(color.slice(at, at + 2), 16) / 255)
    .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

function contrast(one: string, other: string): number {
  const [dark, light] = [luminance(one), luminance(other)].sort((a, b) => a - b);
  return (light + 0.05) / (dark + 0.05);
}

describe("contrast", () => {
  it("letters on what has a meaning can be read: 4.5 to 1", () => {
    for (const name of ["input", "weight", "output", "qdq", "float"])
      expect([name, contrast(TOKENS[`--q-${name}`], "#ffffff") >= 4.5]).toEqual([name, true]);
    expect(contrast(TOKENS["--q-partial"], "#1b1b1b")).toBeGreaterThan(4.5);
  });

  it("what has a meaning stands out from the ground of both themes: 3 to 1", () => {
    for (const name of ["input", "weight", "output", "qdq", "float"])
      for (const ground of ["#ffffff", "#111111"])
        expect([name, ground, contrast(TOKENS[`--q-${name}`], ground) >= 3]).toEqual([name, ground, true]);
  });
});
