"""Which release of a library a script runs with: read off files, nothing is imported.

First the script's own inline metadata (``# /// script``), which brings an environment of its own; then the environment
that the caller names (the chosen interpreter's), then one that lies in the project, then what the project's files pin
or bound: lock files, requirements, pyproject.toml, environment.yml.
"""

import os
import re
from collections.abc import Iterator
from typing import NamedTuple

from firstfault.lint.script import Script
from firstfault.lint.workspace import Workspace

Number = tuple[int, ...]

_ENVIRONMENTS = (".venv", "venv", "env")
_LOCKS = ("uv.lock", "poetry.lock", "pdm.lock")
_LISTS = ("requirements.txt", "environment.yml", "environment.yaml", "conda.yaml", "pyproject.toml", "setup.py")
_CLAUSE = re.compile(r"(===?|~=|>=|<=|!=|<|>|\^|(?<![<>=~!])=(?!=))\s*v?(\d+(?:\.\d+)*)")
_DIST_INFO = re.compile(r"(\w[\w.]*)-(\d+(?:\.\d+)*)[^/]*\.dist-info", re.IGNORECASE)
_LOCKED = re.compile(r'^version\s*=\s*"(\d+(?:\.\d+)*)', re.MULTILINE)
_ANY = 9999  # every number of this place
_INLINE = re.compile(r"^# /// script\n(?:#.*\n)*?# ///", re.MULTILINE)
_LARGEST = 20_000_000


class Release(NamedTuple):
    """The releases that are possible, both ends included; ``high`` is None where nothing bounds them above."""

    low: Number
    high: Number | None
    text: str  # as the file says it: ``4.57.6``, ``>=4.46,<5``
    file: str
    line: int

    @property
    def is_exact(self) -> bool:
        return self.low == self.high


def release(package: str, script: Script, workspace: Workspace) -> Release | None:
    """None where no file tells."""
    inline = _of_comment(package, script)
    if inline is not None:
        return inline
    folders = list(_folders(script, workspace))
    environments = [workspace.environment] if workspace.environment else []
    environments += [os.path.join(folder, name) for folder in folders for name in _ENVIRONMENTS]
    for each in environments:
        found = _installed(package, each)
        if found is not None:
            return found
    for folder in folders:
        found = next(_stated(package, folder, workspace), None)
        if found is not None:
            return found
    return None


def parse(text: str) -> Number:
    """``4.57.6`` -> (4, 57, 6), ``5`` -> (5, 0, 0). Of a release candidate only the numbers count."""
    return (*_parts(text), 0, 0, 0)[:3]


def _parts(text: str) -> Number:
    return tuple(int(each) for each in re.findall(r"\d+", text.partition("+")[0])[:3])


def _folders(script: Script, workspace: Workspace) -> Iterator[str]:
    """The script's folder and those above it, up to the project's root."""
    folder, root = os.path.abspath(script.folder or "."), os.path.abspath(workspace.root_of(script))
    yield folder
    while folder != root and folder.startswith(root.rstrip(os.sep) + os.sep):
        folder = os.path.dirname(folder)
        yield folder


# ------------------------------------------------------------------------------------------------ installed


def _installed(package: str, environment: str) -> Release | None:
    for folder in _site_packages(environment):
        for name in _listed(folder):
            match = _DIST_INFO.fullmatch(name)
            if match and _same(match[1], package):
                number = parse(match[2])
                return Release(number, number, match[2], os.path.join(folder, name), 1)
    return None


def _site_packages(environment: str) -> Iterator[str]:
    yield os.path.join(environment, "Lib", "site-packages")
    above = os.path.join(environment, "lib")
    for name in _listed(above):
        if name.startswith("python"):
            yield os.path.join(above, name, "site-packages")
    yield environment


def _listed(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _same(name: str, package: str) -> bool:
    return re.sub(r"[-_.]+", "-", name).lower() == re.sub(r"[-_.]+", "-", package).lower()


# ------------------------------------------------------------------------------------------------ stated


def _of_comment(package: str, script: Script) -> Release | None:
    """``# dependencies = ["transformers==4.57.6"]`` in the block that Python's packaging defines for single scripts."""
    block = _INLINE.search(script.source)
    if block is None:
        return None
    for match in re.finditer(rf"[\"']{re.escape(package)}(?![\w.-])\s*(?:\[[^\]]*\])?([^\"';]*)", block[0]):
        line = script.source.count("\n", 0, block.start() + match.start()) + 1
        return _range(match[1], script.path, line)
    return None


def _stated(package: str, folder: str, workspace: Workspace) -> Iterator[Release]:
    names = {os.path.basename(each) for each in workspace.overlay if os.path.dirname(each) == folder}
    names |= set(_listed(folder))
    lists = [each for each in sorted(names) if re.fullmatch(r"requirements[\w.-]*\.txt", each)]
    for name in (*_LOCKS, *lists, *_LISTS):
        path = os.path.join(folder, name)
        text = _text(path, workspace) if name in names else ""
        if package not in text.lower():
            continue
        found = _of_lock(package, text, path) if name in _LOCKS else _of_list(package, text, path)
        if found is not None:
            yield found


def _text(path: str, workspace: Workspace) -> str:
    if path in workspace.overlay:
        return workspace.overlay[path]
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(_LARGEST)
    except OSError:
        return ""


def _of_lock(package: str, text: str, path: str) -> Release | None:
    """``[[package]]``, its name, its version: the form that uv, poetry and pdm share."""
    for match in re.finditer(r'^name\s*=\s*"([^"]+)"', text, re.MULTILINE):
        if _same(match[1], package):
            version = _LOCKED.search(text, match.end(), match.end() + 400)
            if version:
                line = text.count("\n", 0, version.start()) + 1
                return Release(parse(version[1]), parse(version[1]), version[1], path, line)
    return None


def _of_list(package: str, text: str, path: str) -> Release | None:
    """``transformers[torch]>=4.46,<5``, ``transformers = "^4.46"``, ``- transformers=4.57.6``."""
    name = re.compile(
        rf"^[\s\"'-]*(?:pip\s+install\s+)?{re.escape(package)}(?![\w.-])\s*(?:\[[^\]]*\])?(.*)$", re.IGNORECASE
    )
    for number, line in enumerate(text.split("\n"), 1):
        match = name.match(line.partition("#")[0])
        if match is None:
            continue
        rest = re.sub(r"^\s*=\s*[{\"']", "", match[1]).partition(";")[0]
        rest = re.sub(r"^version\s*=\s*[\"']", "", rest.strip())
        found = _range(rest, path, number)
        if found is not None:
            return found
    return None


def _range(text: str, path: str, line: int) -> Release | None:
    """The bounds of a requirement; an exclusive upper bound becomes the last number below it."""
    text = re.split(r"[\"'}]", text)[0].strip()
    if re.fullmatch(r"\d+(\.\d+)*", text):  # poetry's plain number
        text = f"=={text}"
    low: Number = (0, 0, 0)
    high: Number | None = None
    clauses = _CLAUSE.findall(text)
    for sign, number in clauses:
        value, parts = parse(number), _parts(number)
        if sign == "===" or (sign == "==" and f"{number}.*" not in text):
            low, high = value, value
        elif sign in ("==", "="):  # `==4.57.*` and conda's `=4.57` leave the rest open
            low, high = value, value if len(parts) == 3 else (*parts, _ANY)
        elif sign in (">=", ">"):
            low = value
        elif sign == "~=":
            low, high = value, (*parts[:-1], _ANY)
        elif sign == "^":
            low, high = value, (parts[0], _ANY)
        elif sign in ("<=", "<"):
            high = value if sign == "<=" else below(value)
    return Release(low, high, text, path, line) if clauses and (any(low) or high) else None


def below(number: Number) -> Number:
    """The last release before a number: ``5`` -> (4, 9999), ``4.46.0`` -> (4, 45, 9999)."""
    parts = list(number)
    while parts and parts[-1] == 0:
        parts.pop()
    return (*parts[:-1], parts[-1] - 1, _ANY) if parts else (0,)
