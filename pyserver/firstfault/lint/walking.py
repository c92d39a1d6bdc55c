"""Which files are checked: what is named by hand as it is, of folders the scripts and notebooks that git would keep."""

import os
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from firstfault.lint.config import Config, project_config
from firstfault.lint.gitignore import Patterns, above, is_left_out, read_patterns
from firstfault.lint.workspace import project_root

ENDINGS = (".py", ".ipynb")
STDIN = "<stdin>"
_SKIPPED = {"node_modules", "site-packages", "dist-packages", "__pycache__", "build", "dist"}
_ENVIRONMENT = ("pyvenv.cfg", "conda-meta")


class Problem(NamedTuple):
    """A path that could not be checked, and why."""

    path: str
    message: str


class Script(NamedTuple):
    """A file that is to be checked: where its imports may be looked up, and what its project says."""

    path: str
    root: str
    config: Config


Say = Callable[[Problem], None]
ConfigOf = Callable[[str], Config]  # for a folder


def scripts(paths: Iterable[str], config_of: ConfigOf, say: Say, force_exclude: bool = False) -> Iterator[Script]:
    """Each script once, in the order of the paths. Raises ConfigError."""
    seen: set[str] = set()
    for path, root in _named(paths, config_of, say, force_exclude):
        real = path if path == STDIN else os.path.realpath(path)
        if real not in seen:
            seen.add(real)
            folder = os.getcwd() if path == STDIN else os.path.dirname(os.path.abspath(path))
            yield Script(path, root, config_of(folder))


def configs(over: Config) -> ConfigOf:
    """The settings of each folder, read once, under those of the command line."""
    known: dict[str, Config] = {}

    def config_of(folder: str) -> Config:
        if folder not in known:
            known[folder] = over.over(project_config(folder))
        return known[folder]

    return config_of


def _named(paths: Iterable[str], config_of: ConfigOf, say: Say, force_exclude: bool) -> Iterator[tuple[str, str]]:
    for path in paths:
        if path == "-":
            yield STDIN, os.getcwd()
        elif os.path.isdir(path):
            yield from _of_folder(path, config_of, say)
        elif not os.path.exists(path):
            say(Problem(path or "''", "There is no such file or folder."))
        elif not os.path.isfile(path):
            say(Problem(path, "It is neither a file nor a folder."))
        elif not path.endswith(ENDINGS):
            say(Problem(path, "Only .py and .ipynb files are checked."))
        elif not (force_exclude and _folder_config(path, config_of).leaves_out(path)):
            yield path, project_root(path)


def _folder_config(path: str, config_of: ConfigOf) -> Config:
    return config_of(os.path.dirname(os.path.abspath(path)))


def _of_folder(folder: str, config_of: ConfigOf, say: Say) -> Iterator[tuple[str, str]]:
    root, empty = project_root(folder), True
    for path in _walk(folder, config_of, say):
        empty = False
        yield path, root
    if empty:
        say(Problem(folder, "There is no .py or .ipynb file in it that would be checked."))


def _walk(top: str, config_of: ConfigOf, say: Say) -> Iterator[str]:
    def unreadable(error: OSError) -> None:
        say(Problem(str(error.filename), f"It cannot be read: {error.strerror or error}."))

    chains: dict[str, tuple[Patterns, ...]] = {}
    for folder, folders, names in os.walk(top, onerror=unreadable):
        chain = chains.pop(folder, None)
        chain = _with_own(folder, above(top) if chain is None else chain)
        config = config_of(os.path.abspath(folder))
        folders[:] = sorted(each for each in folders if not _is_skipped(os.path.join(folder, each), chain, config))
        chains |= {os.path.join(folder, each): chain for each in folders}
        for name in sorted(names):
            path = os.path.join(folder, name)
            if name.endswith(ENDINGS) and not name.startswith(".") and _is_kept(path, chain, config):
                yield path


def _with_own(folder: str, chain: tuple[Patterns, ...]) -> tuple[Patterns, ...]:
    own = read_patterns(os.path.join(folder, ".gitignore"), folder)
    return (*chain, own) if own is not None else chain


def _is_kept(path: str, chain: tuple[Patterns, ...], config: Config) -> bool:
    # A pipe would never end, and a link to nowhere is no script.
    return os.path.isfile(path) and not is_left_out(path, False, chain) and not config.leaves_out(path)


def _is_skipped(folder: str, chain: tuple[Patterns, ...], config: Config) -> bool:
    name = os.path.basename(folder)
    if name.startswith(".") or name.endswith(".egg-info") or name in _SKIPPED:
        return True
    if any(os.path.exists(os.path.join(folder, mark)) for mark in _ENVIRONMENT):
        return True
    return is_left_out(folder, True, chain) or config.leaves_out(folder, is_folder=True)
