import { defineConfig } from "vitest/config";

// Pure functions run in plain Node; a test that needs a document says so in its first line (@vitest-environment).
// The time limit is for tests that hang: on a loaded machine the longest takes several seconds.
export default defineConfig({ test: { include: ["src/**/*.test.ts"], environment: "node", testTimeout: 120_000 } });
