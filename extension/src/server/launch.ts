/** How the server's process is started, so that nothing of the user's own setup can break it or be run by it. */

export interface Launch {
  command: string;
  args: string[];
  options: { cwd: string; env: Record<string, string> };
}

export function launchOf(python: string, libs: string, cache: string, environment: NodeJS.ProcessEnv): Launch {
  return {
    command: python,
    // -S: no site-packages, so no .pth file, no sitecustomize and no other version of a library of ours.
    args: ["-S", "-m", "firstfault", "serve"],
    // -m puts the working folder first on sys.path: in the workspace, a file named json.py there would be run.
    options: { cwd: libs, env: environmentOf(libs, cache, environment) },
  };
}

function environmentOf(libs: string, cache: string, environment: NodeJS.ProcessEnv): Record<string, string> {
  const kept = Object.entries(environment).filter(([name, value]) => value !== undefined && !/^PYTHON/i.test(name));
  return {
    ...(Object.fromEntries(kept) as Record<string, string>),
    PYTHONPATH: libs,
    PYTHONSAFEPATH: "1",
    PYTHONUTF8: "1",
    // Compiled files go to the extension's storage: the next start is faster, the installed extension stays as it is.
    PYTHONPYCACHEPREFIX: cache,
    PYTHONDONTWRITEBYTECODE: "",
  };
}
