// Builds the one file that the notebook loads. `--check` builds in memory and compares with the committed file;
// `--watch` rebuilds on every change (with ANYWIDGET_HMR=1 the notebook follows).
import { readFile } from "node:fs/promises";
import * as esbuild from "esbuild";

const OUTPUT = new URL("qdq_widgets/static/graph_view.js", import.meta.url).pathname;
const LIMIT_KB = 96;

/** Style sheets are template strings, which no minifier of scripts looks into. */
const shortStyles = {
  name: "short-styles",
  setup(build) {
    build.onLoad({ filter: /theme\.ts$/ }, async ({ path }) => {
      const source = await readFile(path, "utf8");
      const short = (css) =>
        css
          .replace(/\n\s*/g, "")
          .replace(/ ?([{};>]) ?/g, "$1")
          .replaceAll(";}", "}")
          .replace(/([:,]) /g, "$1");
      return { contents: source.replace(/`\n[^`]*`/g, short), loader: "ts" };
    });
  },
};

/** @type {esbuild.BuildOptions} */
const options = {
  absWorkingDir: new URL(".", import.meta.url).pathname,
  entryPoints: ["src/index.ts"],
  outfile: OUTPUT,
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2021",
  charset: "utf8",
  legalComments: "none",
  logLevel: "warning",
  plugins: [shortStyles],
};

async function check() {
  const result = await esbuild.build({ ...options, write: false });
  const built = Buffer.from(result.outputFiles[0].contents);
  const committed = await readFile(OUTPUT).catch(() => Buffer.alloc(0));
  if (!built.equals(committed)) {
    console.error(
      "static/graph_view.js is not what widgets/src builds to: run `npm ci && npm run build` and commit it.",
    );
    process.exit(1);
  }
  if (built.length > LIMIT_KB * 1024) {
    console.error(`static/graph_view.js is ${built.length} bytes; the limit is ${LIMIT_KB} KB.`);
    process.exit(1);
  }
  console.log(`static/graph_view.js is up to date (${(built.length / 1024).toFixed(1)} KB).`);
}

if (process.argv.includes("--check")) {
  await check();
} else if (process.argv.includes("--watch")) {
  const context = await esbuild.context(options);
  await context.watch();
} else {
  await esbuild.build(options);
}
