import { describe, expect, it } from "vitest";
import { clip, plain } from "./dom";

const measure = (text: string) => Array.from(text).length * 10;

describe("text", () => {
  it("clips with an ellipsis, never through a character", () => {
    expect(clip("short", 100, 12, 400, measure)).toBe("short");
    expect(clip("much too long", 60, 12, 400, measure)).toBe("much…");
    expect(clip("🚀🚀🚀🚀", 30, 12, 400, measure)).toBe("🚀🚀…");
    expect(clip("n".repeat(300), 50, 12, 400, measure)).toBe("nnnn…");
    expect(clip("x", 0, 12, 400, measure)).toBe("…");
  });

  it("shows what would hide or reorder text", () => {
    expect(plain("a\u202eb\tc\u200bd")).toBe("a·b·c·d");
    expect(plain("<img src=x onerror=alert(1)>")).toBe("<img src=x onerror=alert(1)>");
  });
});
