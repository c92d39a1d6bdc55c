"""A script runs with another text, and nothing but that text is different from a run of the script itself."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from firstfault.prove import replacing
from firstfault.prove.runner import Run, run

# What a script can see of itself and of its surroundings.
SEEN = """\
import inspect, json, os, sys
import beside

def text_of_mine():
    return 1

if __name__ == "__main__":
    seen = {
        "argv": sys.argv, "file": __file__, "name": __name__, "first": sys.path[0], "folder": os.getcwd(),
        "package": __package__, "names": sorted(each for each in globals() if not each.startswith("__")),
        "source": inspect.getsource(text_of_mine), "beside": beside.__file__,
    }
    with open(sys.argv[1], "w") as file:
        json.dump(seen, file)
"""
OTHER = SEEN.replace("return 1", "return 2")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "package").mkdir(parents=True)
    (folder / "train.py").write_text(SEEN)
    (folder / "beside.py").write_text("")
    (folder / "package" / "train.py").write_text(SEEN.replace("import beside", "from . import beside"))
    (folder / "package" / "beside.py").write_text("")
    return folder


def replaced(command: list[str], folder: Path, script: str, text: str) -> Run:
    path = folder / script
    before = path.read_bytes()
    files = sorted(folder.rglob("*"))
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    answer = run([sys.executable, *command], 1, 60, str(folder), environment, replaced=(str(path), text))
    assert path.read_bytes() == before
    assert sorted(folder.rglob("*")) == files, "nothing is written beside the script"
    return answer


def kinds(answer: Run) -> list[str]:
    return [each["kind"] for process in answer.processes for each in process.messages]


@pytest.mark.parametrize(
    "command",
    [["train.py"], ["./train.py"], ["-m", "train"], ["-m", "package.train"], ["package/../train.py"]],
    ids="/".join,
)
def test_a_script_sees_what_it_would_see(project: Path, tmp_path: Path, command: list[str]) -> None:
    own, other = tmp_path / "own.json", tmp_path / "other.json"
    script = "package/train.py" if "package.train" in command else "train.py"
    text = (project / script).read_text().replace("return 1", "return 2")
    subprocess.run([sys.executable, "-B", *command, own], cwd=project, check=True)
    answer = replaced([*command, str(other)], project, script, text)
    assert "replaced" in kinds(answer), answer.ended
    expected = own.read_text().replace("return 1", "return 2").replace(str(own), str(other))
    assert other.read_text() == expected


def test_a_module_that_the_script_imports(project: Path) -> None:
    (project / "train.py").write_text("import beside, sys\nsys.exit(beside.VALUE)\n")
    (project / "beside.py").write_text("VALUE = 3\n")
    subprocess.run([sys.executable, "-c", "import beside"], cwd=project, check=True)  # a compiled file lies there
    answer = replaced(["train.py"], project, "beside.py", "VALUE = 7\n")
    assert answer.ended.startswith("The command ended with status 7"), answer.ended


def test_processes_that_are_spawned_run_the_same_text(project: Path) -> None:
    spawning = """\
import multiprocessing, sys
VALUE = 3
def child(queue):
    queue.put(VALUE)
if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    queue = context.SimpleQueue()
    process = context.Process(target=child, args=(queue,))
    process.start()
    process.join()
    sys.exit(queue.get())
"""
    (project / "train.py").write_text(spawning)
    answer = replaced(["train.py"], project, "train.py", spawning.replace("VALUE = 3", "VALUE = 7"))
    assert answer.ended.startswith("The command ended with status 7"), answer.ended


def test_the_encoding_of_the_script(project: Path) -> None:
    text = "# -*- coding: latin-1 -*-\nimport sys\nsys.exit(ord('\u00e9') - 200)\n"
    (project / "train.py").write_bytes(text.encode("latin-1"))
    assert replaced(["train.py"], project, "train.py", text).ended.startswith("The command ended with status 33")


def test_a_command_that_never_reads_the_script(project: Path) -> None:
    assert "replaced" not in kinds(replaced(["-c", "pass"], project, "train.py", OTHER))


def test_it_runs_on_python_3_9() -> None:
    ast.parse(Path(replacing.__file__).read_text(), feature_version=(3, 9))
