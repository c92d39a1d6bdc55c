"""A script that runs with another text than it has on disk: how a fix is measured before it is applied.

Nothing is written beside the user's file. The text lies in the private folder of the measurement, and stands for the
file in every process of the command:

- ``python train.py``: Python itself opens a script that is named on its command line, and nothing can come between. So
  the caller names a stub in its place (``runner.py``), which calls ``run_as_main`` below. That puts the folder of the
  real script first on ``sys.path``, gives ``__file__`` and ``sys.argv[0]`` the values they would have, and executes
  the text under the real name: imports, relative files, tracebacks and places of losses are those of the script.
- ``python -m package.train``, or a module that the script imports: a finder in front of all others hands out the text.
- a process that multiprocessing spawns reads its parent's script anew, by ``io.open_code``, which is asked here too.

Standard library only, Python >= 3.9.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import io
import linecache
import os
import sys
from collections.abc import Callable
from typing import Any

from firstfault.prove.messages import Plan, replacement

Send = Callable[[dict[str, Any]], None]
_installed: list[_Replaced] = []


def install(plan: Plan, send: Send) -> None:
    """For this process: from here on the text stands for the file."""
    replaced = _Replaced(os.path.realpath(plan.replaces), replacement(plan), send)
    _installed.append(replaced)
    sys.meta_path.insert(0, _Finder(replaced))
    opened = io.open_code

    def open_code(path: str) -> Any:
        return io.BytesIO(replaced.used(path)) if replaced.is_of(path) else opened(path)

    io.open_code = open_code


def run_as_main(namespace: dict[str, Any], typed: str, path: str) -> None:
    """What the stub does: the text as ``__main__``, as if its file had been named."""
    replaced = _installed[0]
    stub = os.path.dirname(os.path.realpath(namespace["__file__"]))
    # Under PYTHONSAFEPATH the folder of a script is not on the path, neither that of the stub.
    if sys.path and os.path.realpath(sys.path[0] or os.curdir) == stub:
        sys.path[0] = os.path.dirname(replaced.path)
    sys.argv[0] = typed
    for name in [each for each in namespace if not each.startswith("__")]:
        del namespace[name]
    namespace["__file__"] = path
    exec(compile(replaced.used(path), path, "exec", dont_inherit=True), namespace)


class _Replaced:
    """The real path, and the text that stands for it."""

    def __init__(self, path: str, text: bytes, send: Send) -> None:
        self.path, self.text, self.send, self.told = path, text, send, False

    def is_of(self, path: Any) -> bool:
        # The names are compared first: resolving every path that is asked for would take time.
        name = os.path.basename(os.fspath(path))
        return name == os.path.basename(self.path) and bool(os.path.realpath(path) == self.path)

    def used(self, path: str) -> bytes:
        """The text, for a reader that calls the file so; ``inspect`` and tracebacks see it as well."""
        lines = importlib.util.decode_source(self.text).splitlines(keepends=True)
        linecache.cache[path] = (len(self.text), None, lines, path)
        if not self.told:
            self.told = True
            self.send({"kind": "replaced", "path": self.path})
        return self.text


class _Finder:
    """Asks the other finders, and lets the text stand for the file that they found."""

    def __init__(self, replaced: _Replaced) -> None:
        self.replaced = replaced

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        folder, file = os.path.split(self.replaced.path)
        wanted = os.path.basename(folder) if file == "__init__.py" else file[: -len(".py")]
        if name.rpartition(".")[2] != wanted:
            return None
        found = (each.find_spec(name, path, target) for each in sys.meta_path if each is not self)
        spec = next((each for each in found if each is not None), None)
        if spec is not None and spec.origin and self.replaced.is_of(spec.origin):
            spec.loader = _Loader(name, spec.origin, self.replaced)
        return spec


class _Loader(importlib.machinery.SourceFileLoader):
    """Compiles anew each time: a compiled file would be that of the text on disk."""

    def __init__(self, name: str, path: str, replaced: _Replaced) -> None:
        super().__init__(name, path)
        self.replaced = replaced

    def get_code(self, fullname: str) -> Any:
        return compile(self.replaced.used(self.path), self.path, "exec", dont_inherit=True)

    def get_data(self, path: str) -> bytes:
        return self.replaced.used(path) if self.replaced.is_of(path) else super().get_data(path)
