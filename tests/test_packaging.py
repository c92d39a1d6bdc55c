"""The wheel holds what a user needs and nothing else, and works from an environment of its own."""

import json
import os
import re
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from firstfault import __version__

ROOT = Path(__file__).resolve().parent.parent
BIN = "Scripts" if os.name == "nt" else "bin"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", folder, ROOT)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """A new environment with the wheel alone: no pygls, no regex, no torch, and no checkout beside it."""
    home = tmp_path_factory.mktemp("installed")
    venv.create(home / "env", with_pip=False)
    pip("--python", home / "env" / BIN / "python", "install", "--no-deps", "--no-index", wheel)
    return home


def pip(*arguments):
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *map(str, arguments)]
    subprocess.run(command, check=True)


def firstfault(home, *arguments):
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    command = [str(home / "env" / BIN / "firstfault"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8", cwd=home, env=environment)


def test_the_wheel_carries_the_compiled_signatures(wheel):
    with zipfile.ZipFile(wheel) as archive:
        compiled = json.loads(archive.read("firstfault/signatures/library.json").split(b"\n")[0])
    files = list((ROOT / "signatures" / "failures").glob("**/*.toml"))
    assert {each[0] for each in compiled["failures"]} == {path.stem for path in files}
    assert len(compiled["prefixes"]) == len(list((ROOT / "signatures" / "prefixes").glob("*.toml")))


def test_the_wheel_carries_every_module_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    package = ROOT / "pyserver" / "firstfault"
    modules = {path.relative_to(ROOT / "pyserver").as_posix() for path in package.glob("**/*.py")}
    compiled = {f"firstfault/signatures/{name}.json" for name in ("library", "examples", "tables")}
    assert names == modules | compiled | {"firstfault/py.typed"}


def test_the_installed_command_tells_its_version(installed):
    assert firstfault(installed, "--version").stdout.split() == ["firstfault", __version__]


def test_the_installed_command_diagnoses_with_the_packaged_library(installed):
    answer = firstfault(installed, "diagnose", "--format", "json", ROOT / "examples" / "logs")
    assert answer.returncode == 1, answer.stderr
    initiating = json.loads(answer.stdout)["initiating"]
    assert initiating["rank"] == 2
    assert "KeyError" in initiating["exception"]
    assert initiating["frame"]["function"] == "__getitem__"


def test_the_extension_has_the_version_of_the_package():
    assert json.loads((ROOT / "package.json").read_text(encoding="utf-8"))["version"] == __version__


def test_the_extension_bundles_what_the_package_needs():
    """But for ``regex``, which is compiled and which the package can do without."""
    pins = re.findall(r'^    "([\w-]+==[\w.]+)', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    dependencies = pins[: next(at for at, pin in enumerate(pins) if pin.startswith("hatchling"))]
    bundled = (ROOT / "extension" / "bundle.mjs").read_text(encoding="utf-8")
    assert {each.partition("==")[0] for each in dependencies} == {"pygls", "lsprotocol", "regex", "tomli"}
    assert [each for each in dependencies if f'"{each}"' not in bundled] == [dependencies[2]]
