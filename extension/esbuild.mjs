// Bundles the extension into one file, or with --tests each unit test into one; and writes down whose code is in it.
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = path.dirname(fileURLToPath(import.meta.url));
const root = path.dirname(here);
const common = {
  absWorkingDir: root,
  bundle: true,
  platform: "node",
  target: "node20",
  external: ["vscode"],
  loader: { ".css": "text" },
  logLevel: "warning",
};

if (process.argv.includes("--tests")) await buildTests();
else await buildExtension();

async function buildExtension() {
  const outfile = path.join(here, "dist", "extension.js");
  const entryPoints = [path.join(here, "src", "extension.ts")];
  const { metafile } = await build({ ...common, entryPoints, outfile, format: "cjs", minify: true, metafile: true });
  writeFileSync(path.join(here, "dist", "NOTICES.txt"), notices(Object.keys(metafile.inputs)));
}

async function buildTests() {
  const outdir = path.join(here, "dist", "test");
  rmSync(outdir, { recursive: true, force: true });
  mkdirSync(outdir, { recursive: true });
  const folder = path.join(here, "test", "unit");
  const entryPoints = readdirSync(folder)
    .filter((name) => name.endsWith(".test.ts"))
    .map((name) => path.join(folder, name));
  await build({ ...common, entryPoints, outdir, format: "esm", outExtension: { ".js": ".mjs" }, sourcemap: "inline" });
}

/** The licence of every package that a part was taken from. */
function notices(inputs) {
  const folders = new Set(
    inputs.map((input) => /^(?:.*\/)?node_modules\/(?:@[^/]+\/)?[^/]+/.exec(input)?.[0]).filter(Boolean),
  );
  const entries = [...folders].sort().map((folder) => {
    const { name, version, license } = JSON.parse(readFileSync(path.join(root, folder, "package.json"), "utf8"));
    return `${name} ${version} (${license})\n\n${licenceText(path.join(root, folder))}\n`;
  });
  return `extension.js holds parts of these packages.\n\n${entries.join(`\n${"-".repeat(80)}\n\n`)}`;
}

function licenceText(folder) {
  const file = readdirSync(folder).find((name) => /^licen[cs]e/i.test(name));
  if (!file || !existsSync(path.join(folder, file))) throw new Error(`No licence text in ${folder}.`);
  return readFileSync(path.join(folder, file), "utf8").trim();
}
