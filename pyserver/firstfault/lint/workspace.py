"""The files around a script, read when a rule asks for them. Files are read only; nothing is ever run."""

import ast
import os
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache

from firstfault.lint.script import Script, read_script

_LARGEST = 2_000_000  # characters; nobody writes a longer module by hand
_HOPS = 2
_MOST_FILES = 60  # of a folder; in a larger one nobody waits for who imports a module
_ROOT_MARKS = (".git", ".hg", "pyproject.toml", "setup.py", "setup.cfg")


def project_root(path: str) -> str:
    """The folder of a path, or the nearest one above it that a repository or a package is rooted in."""
    start = os.path.abspath(path)
    start = start if os.path.isdir(start) else os.path.dirname(start)
    folder = start
    while True:
        if any(os.path.exists(os.path.join(folder, mark)) for mark in _ROOT_MARKS):
            return folder
        above = os.path.dirname(folder)
        if above == folder:
            return start
        folder = above


def active_environment() -> str | None:
    """The environment that the shell has activated: what its scripts run with."""
    return os.environ.get("VIRTUAL_ENV") or os.environ.get("CONDA_PREFIX")


class Workspace:
    """A root folder (else that of each script's project), and the unsaved texts in the place of what is on disk.

    ``environment`` is the folder of the interpreter that the scripts run with, where the caller knows it. A view of
    one moment: make a new one for the next lint, so that what changed on disk is seen.
    """

    def __init__(
        self, root: str | None = None, overlay: Mapping[str, str] | None = None, environment: str | None = None
    ) -> None:
        self.root = os.path.abspath(root) if root else None
        self.environment = environment
        self.overlay = {os.path.abspath(path): text for path, text in (overlay or {}).items()}
        self._modules: dict[tuple[str, str], Script | None] = {}
        self._siblings: dict[Script, list[Script]] = {}
        self._importers: dict[Script, list[Script]] = {}
        self._roots: dict[str, str] = {}
        self._names: dict[str, list[str]] = {}

    def text(self, path: str) -> str | None:
        """The text of a file as it stands in the editor, else on disk; None where it cannot be read as text."""
        path = os.path.abspath(path)
        return self.overlay[path] if path in self.overlay else _read(path)

    def names(self, folder: str) -> list[str]:
        """The files and folders of a folder, those that are not saved yet among them; [] where there is none."""
        folder = os.path.abspath(folder)
        if folder not in self._names:
            unsaved = {os.path.basename(path) for path in self.overlay if os.path.dirname(path) == folder}
            self._names[folder] = sorted({*_listed(folder), *unsaved})
        return self._names[folder]

    def script(self, path: str) -> Script | None:
        """The script of a path, or None where there is none that can be read and parsed."""
        text = self.text(path)
        return _parsed(text, os.path.abspath(path)) if text is not None else None

    def module(self, name: str, importer: Script) -> Script | None:
        """The sibling module that an import in a script names: ``data``, ``src.models``, ``.losses``."""
        key = (importer.folder, name)
        if key not in self._modules:
            self._modules[key] = self._find_module(name, importer)
        return self._modules[key]

    def _find_module(self, name: str, importer: Script) -> Script | None:
        level = len(name) - len(name.lstrip("."))
        parts = [each for each in name.lstrip(".").split(".") if each]
        for folder in self._folders(importer, level):
            for candidate in _candidates(folder, parts):
                if candidate in self.overlay or os.path.isfile(candidate):
                    return self.script(candidate)
        return None

    def definition(self, name: str, importer: Script, hops: int = _HOPS) -> tuple[Script, ast.AST] | None:
        """Where a name of a script is defined: in the file itself, or in a module of the workspace that it imports."""
        head, _, rest = name.partition(".")
        if name in importer.definitions and head not in importer.imports:
            return importer, importer.definitions[name]
        qualified = importer.imports.get(head)
        if qualified is None or not hops:
            return None
        full = f"{qualified}.{rest}" if rest else qualified
        dots = len(full) - len(full.lstrip("."))
        parts = full[dots:].split(".")
        for cut in range(len(parts) - 1, 0 if not dots else -1, -1):
            module = self.module("." * dots + ".".join(parts[:cut]), importer)
            if module is not None and module is not importer:
                return self.definition(".".join(parts[cut:]), module, hops - 1)
        return None

    def siblings(self, importer: Script) -> list[Script]:
        """The modules of the workspace that a script imports, one hop, in the order of the imports."""
        if importer not in self._siblings:
            self._siblings[importer] = self._find_siblings(importer)
        return self._siblings[importer]

    def _find_siblings(self, importer: Script) -> list[Script]:
        found: dict[str, Script] = {}
        for qualified in importer.imports.values():
            dots = len(qualified) - len(qualified.lstrip("."))
            parts = qualified[dots:].split(".")
            for cut in (len(parts), len(parts) - 1):
                module = self.module("." * dots + ".".join(parts[:cut]), importer) if cut or dots else None
                if module is not None and module.path != importer.path:
                    found.setdefault(module.path, module)
                    break
        return list(found.values())

    def importers(self, module: Script) -> list[Script]:
        """The scripts beside a module, or in a folder above it up to the root, that import it."""
        if module not in self._importers:
            self._importers[module] = list(self._find_importers(module))
        return self._importers[module]

    def _find_importers(self, module: Script) -> Iterator[Script]:
        here = os.path.abspath(module.path)
        folder, name = os.path.split(here)
        stem = os.path.basename(folder) if name == "__init__.py" else name.removesuffix(".py")
        imports = re.compile(rf"^[ \t]*(?:from|import)\b.*\b{re.escape(stem)}\b", re.MULTILINE)
        for path in self._files_around(module):
            text = self.text(path) if path != here else None
            other = self.script(path) if text is not None and imports.search(text) else None
            if other is not None and any(os.path.abspath(each.path) == here for each in self.siblings(other)):
                yield other

    def _files_around(self, module: Script) -> Iterator[str]:
        for folder in self._folders(module, 0):
            names = [each for each in self.names(folder) if each.endswith(".py") and not each.startswith("test_")]
            yield from (os.path.join(folder, each) for each in names if len(names) <= _MOST_FILES)

    def root_of(self, script: Script) -> str:
        return self.root or self._project_root(script)

    def _project_root(self, importer: Script) -> str:
        if importer.folder not in self._roots:
            self._roots[importer.folder] = project_root(importer.path)
        return self._roots[importer.folder]

    def _folders(self, importer: Script, level: int) -> list[str]:
        """Where Python would look: beside the script, then each folder above it up to the root."""
        folder = os.path.abspath(importer.folder or ".")
        if level:
            for _ in range(level - 1):
                folder = os.path.dirname(folder)
            return [folder]
        folders, root = [folder], self.root_of(importer)
        while folder != root and folder.startswith(root.rstrip(os.sep) + os.sep):
            folder = os.path.dirname(folder)
            folders += [folder, os.path.join(folder, "src")]
        return folders


def _candidates(folder: str, parts: list[str]) -> list[str]:
    base = os.path.join(folder, *parts)
    return [base + ".py", os.path.join(base, "__init__.py")] if parts else [os.path.join(base, "__init__.py")]


def _listed(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _read(path: str) -> str | None:
    try:
        with open(path, "rb") as file:
            data = file.read(_LARGEST + 1)
    except OSError:
        return None
    if len(data) > _LARGEST or b"\0" in data[:1024]:
        return None
    return data.decode("utf-8-sig", "replace")


@lru_cache(maxsize=128)
def _parsed(text: str, path: str) -> Script | None:
    return read_script(text, path)
