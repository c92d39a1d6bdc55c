// Puts the Python package and what it needs into extension/bundled/libs, so that a user installs nothing.
import { spawnSync } from "node:child_process";
import { existsSync, readdirSync, rmSync } from "node:fs";
import path from "node:path";
import { fileURLToPath } from "node:url";

// Pure Python, and together good for Python 3.10 to 3.14. Without their dependencies: what pip would choose depends on
// the Python that runs it, so exceptiongroup and tomli, which only 3.10 needs, would be missing.
const PINNED = [
  "pygls==2.1.1",
  "lsprotocol==2025.0.0",
  "attrs==26.1.0",
  "cattrs==25.3.0",
  "exceptiongroup==1.3.2",
  "tomli==2.4.1",
  "typing_extensions==4.16.0",
];
const here = path.dirname(fileURLToPath(import.meta.url));
const root = path.dirname(here);
const libs = path.join(here, "bundled", "libs");

rmSync(libs, { recursive: true, force: true });
// For any platform: of tomli there are compiled wheels, too.
pip(["--only-binary=:all:", "--platform=any", "--implementation=py", ...PINNED]);
pip([...(isBuilderHere() ? ["--no-build-isolation"] : []), root]);
for (const file of filesBelow(libs)) if (isNoise(file)) rmSync(file);
rmSync(path.join(libs, "bin"), { recursive: true, force: true });
refuseCompiled();

function pip(what) {
  const options = ["install", "--quiet", "--no-deps", "--no-compile", "--disable-pip-version-check", "--target", libs];
  const { status, error } = spawnSync(python(), ["-m", "pip", ...options, ...what], { stdio: "inherit", cwd: root });
  if (status !== 0) throw new Error(`pip could not install ${what.join(" ")}: ${error ?? `exit status ${status}`}`);
}

/** Where the build backend is installed already, pip need not fetch it: then this works without a network. */
function isBuilderHere() {
  return spawnSync(python(), ["-c", "import hatchling"]).status === 0;
}

/** PYTHON where it is set, else the development environment's, else the one on PATH. */
function python() {
  if (process.env.PYTHON) return process.env.PYTHON;
  const windows = process.platform === "win32";
  const own = path.join(root, ".venv", windows ? "Scripts/python.exe" : "bin/python");
  if (existsSync(own)) return own;
  return windows ? "python" : "python3";
}

/** Of the metadata only what names a package and its licence is kept: the rest names files and this machine. */
function isNoise(file) {
  const metadata =
    /\.dist-info[\\/](?:RECORD|INSTALLER|REQUESTED|WHEEL|direct_url\.json|top_level\.txt|entry_points\.txt)$/;
  return metadata.test(file) || file.endsWith(".pyc");
}

/** A compiled file would tie the extension to one platform and one Python. */
function refuseCompiled() {
  const compiled = filesBelow(libs).filter((file) => /\.(?:so|pyd|dll|dylib)$/.test(file));
  if (compiled.length) throw new Error(`Compiled files in the bundle: ${compiled.join(", ")}`);
}

function filesBelow(folder) {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => path.join(entry.parentPath ?? entry.path, entry.name));
}
