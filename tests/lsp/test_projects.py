"""What the project's file and the editor's settings say about the check, as the editor shows it."""

from pathlib import Path
from typing import Any

import pytest

from lsp.client import PULLING, Client, running
from lsp.scripts import BATCH_NORM, MEAN_OF_MEANS
from lsp.test_actions import EVERYWHERE, applied, edits_of

SAFE = MEAN_OF_MEANS.replace("    for number", "    optimizer.zero_grad()\n    for number")


@pytest.fixture
def opened(tmp_path: Path) -> Any:
    with running() as client:
        folder = {"uri": tmp_path.as_uri(), "name": "project"}
        client.initialize(PULLING, workspaceFolders=[folder], rootUri=tmp_path.as_uri())
        yield client, tmp_path


def found(client: Client, uri: str) -> list[tuple[str, int]]:
    return [(each["code"], each["severity"]) for each in client.pull(uri)["items"]]


def settings(client: Client, **check: Any) -> None:
    client.notify("workspace/didChangeConfiguration", {"settings": {"firstfault": {"check": check}}})


def test_the_project_file_holds_and_is_read_anew(opened: tuple[Client, Path]) -> None:
    client, root = opened
    uri = (root / "src" / "train.py").as_uri()
    client.open(uri, MEAN_OF_MEANS)
    first = client.pull(uri)
    assert [each["code"] for each in first["items"]] == ["GA101"]
    (root / "pyproject.toml").write_text('[tool.firstfault]\nseverity = { GA101 = "hint" }\n')
    second = client.pull(uri, first["resultId"])
    assert [each["severity"] for each in second["items"]] == [3]
    (root / "pyproject.toml").write_text('[tool.firstfault]\nexclude = ["src"]\n')
    assert client.pull(uri, second["resultId"])["items"] == []


def test_a_broken_project_file_is_told_once_and_counts_as_silent(opened: tuple[Client, Path]) -> None:
    client, root = opened
    (root / "pyproject.toml").write_text("[tool.firstfault]\nselct = []\n")
    for name in ("a.py", "b.py"):
        client.open((root / name).as_uri(), MEAN_OF_MEANS)
        assert found(client, (root / name).as_uri()) == [("GA101", 1)]
    told = [each["params"] for each in client.asked if each["method"] == "window/showMessage"]
    assert len(told) == 1 and told[0]["type"] == 2 and "Did you mean select?" in told[0]["message"]


def test_the_editor_stands_before_the_project_file(opened: tuple[Client, Path]) -> None:
    client, root = opened
    (root / "pyproject.toml").write_text('[tool.firstfault]\nselect = ["BN"]\ngrad-accumulation = 1\n')
    uri = (root / "train.py").as_uri()
    client.open(uri, MEAN_OF_MEANS)
    assert found(client, uri) == []
    settings(client, select=["GA"], severity={"GA101": "warning"})
    assert found(client, uri) == [("GA101", 2)]
    settings(client, select=["GA"], exclude=["/train.py"])
    assert found(client, uri) == []


def test_facts_come_from_the_editor_too(opened: tuple[Client, Path]) -> None:
    client, root = opened
    uri = (root / "train.py").as_uri()
    unknown = MEAN_OF_MEANS.replace("        tags[words == 0] = -100\n", "")
    client.open(uri, unknown)
    assert found(client, uri) == []
    settings(client, variableLength=True)
    assert found(client, uri) == [("GA101", 1)]
    client.change(uri, 2, {"text": BATCH_NORM.replace("STEPS = 8\n", "").replace("def fit(", "def fit(STEPS, ")})
    assert found(client, uri) == [("BN501", 2)]
    settings(client, gradAccumulation=1)
    assert found(client, uri) == []


@pytest.mark.parametrize("wrong", [{"select": "GA"}, {"exclude": 3}, {"severity": {"GA101": "loud"}}, {"select": None}])
def test_wrong_settings_are_as_good_as_none(opened: tuple[Client, Path], wrong: dict[str, Any]) -> None:
    client, root = opened
    uri = (root / "train.py").as_uri()
    client.open(uri, MEAN_OF_MEANS)
    settings(client, **wrong, gradAccumulation=-1, variableLength="no")
    assert found(client, uri) == [("GA101", 1)]


# ------------------------------------------------------------------------------------------ all at once


@pytest.mark.parametrize("only", ["source", "source.fixAll", "source.fixAll.firstfault"])
@pytest.mark.parametrize("eol", ["\n", "\r\n"])
def test_fix_all_repairs_what_is_safe(opened: tuple[Client, Path], only: str, eol: str) -> None:
    client, root = opened
    uri = (root / "train.py").as_uri()
    text = (SAFE + "X = 1  # firstfault: ignore[GA102]\n").replace("\n", eol)
    client.open(uri, text, version=3)
    (action,) = client.actions(uri, EVERYWHERE, only=[only])
    assert action["kind"] == "source.fixAll.firstfault"
    assert action["edit"]["documentChanges"][0]["textDocument"] == {"uri": uri, "version": 3}
    fixed = applied(text, edits_of(action))
    assert fixed.endswith(f"X = 1{eol}") and fixed.count("\n") == fixed.count(eol)
    client.change(uri, 4, {"text": fixed})
    assert found(client, uri) == [] and client.actions(uri, EVERYWHERE, only=[only]) == []


def test_fix_all_is_only_given_where_it_is_asked_for(opened: tuple[Client, Path]) -> None:
    client, root = opened
    uri = (root / "train.py").as_uri()
    client.open(uri, SAFE)
    assert "source.fixAll.firstfault" not in [each["kind"] for each in client.actions(uri, EVERYWHERE)]
    assert client.actions(uri, EVERYWHERE, only=["source.fixAll.ruff", "source.organizeImports"]) == []
    client.open((root / "norm.py").as_uri(), BATCH_NORM)  # its fixes are unsafe or partial
    assert client.actions((root / "norm.py").as_uri(), EVERYWHERE, only=["source.fixAll"]) == []


def test_a_comment_that_silences_nothing_is_faded_and_removable(opened: tuple[Client, Path]) -> None:
    client, root = opened
    uri = (root / "train.py").as_uri()
    text = MEAN_OF_MEANS + "X = 1  # firstfault: ignore[GA102]\n"
    client.open(uri, text)
    hint = next(each for each in client.pull(uri)["items"] if each["code"] == "unused-ignore")
    assert hint["tags"] == [1] and "codeDescription" not in hint
    (action,) = client.actions(uri, hint["range"])
    assert action["title"] == "Remove this comment" and action["isPreferred"]
    assert applied(text, edits_of(action)) == MEAN_OF_MEANS + "X = 1\n"
    params = {"textDocument": {"uri": uri}, "position": hint["range"]["start"]}
    assert client.request("textDocument/hover", params) is None
