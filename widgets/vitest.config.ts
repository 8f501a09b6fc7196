import { defineConfig } from "vitest/config";

// Pure functions run in plain Node; a test that needs a document says so in its first line (@vitest-environment).
export default defineConfig({ test: { include: ["src/**/*.test.ts"], environment: "node" } });
