"""What ``check`` prints for people and for programs."""

import json
import os
import subprocess
import sys
from pathlib import Path

import fastjsonschema
import pytest
from faulty import HEAD, LOOP, SCRIPT, notebook_text

from firstfault.lint.check import Checked, check_paths
from firstfault.lint.render import to_text
from firstfault.lint.rule import all_rules
from firstfault.lint.sarif import to_sarif

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = ROOT / "node_modules" / "@microsoft" / "jest-sarif" / "lib" / "schemas" / "sarif-2.1.0-rtm.5.json"


def check(*arguments: str, cwd: Path) -> str:
    command = [sys.executable, "-m", "firstfault", "check", *arguments]
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8"}
    return subprocess.run(command, capture_output=True, cwd=cwd, env=environment).stdout.decode()


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A script in a folder with a blank and an umlaut, a notebook, a file that cannot be read."""
    (tmp_path / "grüne wiese").mkdir()
    (tmp_path / "grüne wiese" / "train.py").write_text(SCRIPT)
    (tmp_path / "run.ipynb").write_text(notebook_text(HEAD, LOOP))
    (tmp_path / "broken.py").write_text("def f(:\n")
    (tmp_path / "binary.py").write_bytes(b"\0\0")
    monkeypatch.chdir(tmp_path)
    return tmp_path


# ------------------------------------------------------------------------------------------ text


def test_the_line_the_carets_and_what_it_rests_on(project: Path) -> None:
    text = check("grüne wiese", cwd=project)
    assert f"{Path('grüne wiese', 'train.py')}:12:16: error GA101 mean-of-means\n" in text
    assert "\n  12 |         loss = loss / STEPS\n     |                ^^^^^^^^^^^^\n" in text
    assert "\n   9 |         tags[words == 0] = -100\n     |         - this makes" in text
    assert "\n  fix: Weigh every token of the window the same\n" in text
    assert "\n1 error in 1 file.\n1 has a safe fix: --fix applies it, --diff shows what would change.\n" in text
    assert text.endswith("Why it matters: firstfault explain GA101\n")


def test_a_notebook_is_cited_by_cell_as_people_count_them(project: Path) -> None:
    text = check("run.ipynb", cwd=project)
    assert "run.ipynb: cell 3, line 7: error GA101" in text and "  7 |         loss = loss / STEPS\n" in text


def test_carets_stand_under_wide_characters_and_in_long_lines(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    for prefix in ("'漢字'; ", f"'{'x' * 300}'; "):
        path.write_text(SCRIPT.replace("        loss = loss", f"        {prefix}loss = loss"))
        lines = to_text(check_paths([str(path)]), colour=False).split("\n")
        at = next(number for number, line in enumerate(lines) if "^" in line)
        width = sum(2 if each in "漢字" else 1 for each in lines[at - 1][: lines[at - 1].index("loss / STEPS")])
        assert lines[at].index("^") == width and len(lines[at - 1]) < 160
    path.write_text(SCRIPT.replace("    ", "\t"))
    lines = to_text(check_paths([str(path)]), colour=False).split("\n")
    at = next(number for number, line in enumerate(lines) if "^" in line)
    assert lines[at].expandtabs().index("^") == lines[at - 1].expandtabs().index("loss / STEPS")


def test_messages_are_wrapped_for_a_terminal_alone(project: Path) -> None:
    checked = check_paths(["grüne wiese"])
    narrow = to_text(checked, colour=False, width=60)
    assert max(len(line) for line in narrow.split("\n")[1:4]) <= 60
    assert " ".join(narrow.split()) == " ".join(to_text(checked, colour=False).split())


def test_escapes_of_a_script_do_not_reach_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT.replace("loss / STEPS", "loss / STEPS  # \x1b]0;owned\x07"))
    text = to_text(check_paths([str(path)]), colour=False)
    assert not [each for each in text if not each.isprintable() and each != "\n"]


# ------------------------------------------------------------------------------------------ SARIF


@pytest.fixture(scope="module")
def valid() -> object:
    if not SCHEMA.is_file():
        pytest.skip("the schema comes with the Node.js packages; npm ci installs them")
    return fastjsonschema.compile(json.loads(SCHEMA.read_text(encoding="utf-8")))


def test_sarif_fits_its_schema(project: Path, valid: object) -> None:
    log = json.loads(check("--format", "sarif", ".", "gone.py", cwd=project))
    valid(log)  # type: ignore[operator]
    (run,) = log["runs"]
    assert {each["id"] for each in run["tool"]["driver"]["rules"]} >= {each.code for each in all_rules()}
    for result in run["results"]:
        assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
    assert not run["invocations"][0]["executionSuccessful"]
    assert len(run["invocations"][0]["toolExecutionNotifications"]) == 2


def test_the_schema_would_refuse_another_log(valid: object) -> None:
    log = to_sarif(Checked([], [], 0, [], {}))
    valid(log)  # type: ignore[operator]
    log["runs"][0]["results"] = [{"message": "no object"}]
    with pytest.raises(fastjsonschema.JsonSchemaValueException):
        valid(log)  # type: ignore[operator]


def test_sarif_places_levels_and_fixes(project: Path) -> None:
    (run,) = json.loads(check("--format", "sarif", ".", cwd=project))["runs"]
    script, cell, broken = (
        next(each for each in run["results"] if uri(each).endswith(end)) for end in ("train.py", "ipynb", "broken.py")
    )
    assert uri(script) == "gr%C3%BCne%20wiese/train.py" and script["level"] == "error"
    assert region(script) == {"startLine": 12, "endLine": 12, "startColumn": 16, "endColumn": 28}
    assert script["relatedLocations"][0]["message"]["text"].startswith("this makes")
    edits = script["fixes"][0]["artifactChanges"][0]["replacements"]
    assert all(set(each) == {"deletedRegion", "insertedContent"} for each in edits)
    raw = (project / "run.ipynb").read_text().split("\n")
    assert "loss = loss / STEPS" in raw[region(cell)["startLine"] - 1] and "fixes" not in cell
    assert (broken["ruleId"], broken["level"]) == ("syntax-error", "note")


def test_fingerprints_outlive_lines_that_move(project: Path) -> None:
    path = project / "grüne wiese" / "train.py"

    def fingerprint() -> list[str]:
        results = to_sarif(check_paths([str(path)]))["runs"][0]["results"]
        return [each["partialFingerprints"]["firstfault/v1"] for each in results]

    before = fingerprint()
    path.write_text(f"import os\n\n{SCRIPT}")
    assert fingerprint() == before
    path.write_text(f"{SCRIPT}\n\n{LOOP}")
    assert len(set(fingerprint())) == 2 and fingerprint()[0] == before[0]


def uri(result: dict) -> str:  # type: ignore[type-arg]
    return str(result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"])


def region(result: dict) -> dict:  # type: ignore[type-arg]
    return dict(result["locations"][0]["physicalLocation"]["region"])


# ------------------------------------------------------------------------------------------ GitHub's annotations


def test_annotations_stand_where_github_shows_them(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GITHUB_WORKSPACE", raising=False)
    lines = check("--format", "github", ".", cwd=project).splitlines()
    script = next(each for each in lines if "train.py" in each)
    assert script.startswith("::error title=GA101 mean-of-means,file=grüne wiese/train.py,line=12,endLine=12,col=16,")
    assert "::`loss` is a mean over" in script
    cell = next(each for each in lines if "run.ipynb" in each)
    assert "Cell 3, line 7: " in cell and "col=" not in cell
    assert next(each for each in lines if "broken.py" in each).startswith("::notice title=syntax-error,")
    assert len(lines) == 3


def test_annotations_escape_what_would_end_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GITHUB_WORKSPACE", raising=False)
    (tmp_path / "a,b%c").mkdir()
    (tmp_path / "a,b%c" / "train.py").write_text(SCRIPT)
    assert "file=a%2Cb%25c/train.py," in check("--format", "github", ".", cwd=tmp_path)
