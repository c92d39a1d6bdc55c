"""The light bulb and the hover, on what a client does with them: it applies the edits."""

import json
from typing import Any

import pytest
from lsprotocol import types

from firstfault.lsp.documents import Document
from lsp.client import PULLING, Client, running
from lsp.scripts import BATCH_NORM, CLEAN, MEAN_OF_MEANS

EVERYWHERE = {"start": {"line": 0, "character": 0}, "end": {"line": 9999, "character": 0}}


def applied(text: str, edits: list[dict[str, Any]]) -> str:
    """The text after an editor's edits, applied from the last to the first."""
    document = Document(types.TextDocumentItem(uri="a", language_id="python", version=1, text=text), "utf-16")
    placed = []
    for number, edit in enumerate(edits):
        corners = [types.Position(**edit["range"][each]) for each in ("start", "end")]
        placed.append((document.offset(corners[0]), number, document.offset(corners[1]), edit["newText"]))
    for start, _, end, new in sorted(placed, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def edits_of(action: dict[str, Any]) -> list[dict[str, Any]]:
    (change,) = action["edit"]["documentChanges"]
    return change["edits"]


def fix_of(actions: list[dict[str, Any]]) -> dict[str, Any]:
    return next(each for each in actions if not each["title"].startswith("Ignore"))


def ignore_of(actions: list[dict[str, Any]]) -> dict[str, Any]:
    return next(each for each in actions if each["title"].startswith("Ignore"))


@pytest.mark.parametrize("eol", ["\n", "\r\n"])
def test_a_fix_removes_its_finding_and_keeps_the_line_ends(client: Client, eol: str) -> None:
    uri, text = f"untitled:fix-{eol!r}", MEAN_OF_MEANS.replace("\n", eol)
    client.open(uri, text, version=7)
    fix = fix_of(client.actions(uri, EVERYWHERE))
    assert fix["kind"] == "quickfix"
    assert fix["edit"]["documentChanges"][0]["textDocument"] == {"uri": uri, "version": 7}
    fixed = applied(text, edits_of(fix))
    assert fixed != text and fixed.count("\n") == fixed.count(eol)
    compile(fixed, "fixed.py", "exec")
    client.change(uri, 8, {"text": fixed})
    assert client.pull(uri)["items"] == []


def test_only_a_safe_fix_is_preferred_and_the_others_say_what_they_are_worth(client: Client) -> None:
    for uri, text in (("untitled:safe", MEAN_OF_MEANS), ("untitled:norm", BATCH_NORM)):
        client.open(uri, text)
        for action in client.actions(uri, EVERYWHERE):
            if any(word in action["title"].lower() for word in ("partial", "unsafe", "ignore")):
                assert "isPreferred" not in action
    assert any("partial" in each["title"].lower() for each in client.actions("untitled:norm", EVERYWHERE))


def test_actions_carry_the_squiggle_that_they_belong_to(client: Client) -> None:
    uri = "untitled:mine"
    client.open(uri, MEAN_OF_MEANS)
    (item,) = client.pull(uri)["items"]
    other = {**item, "code": "E501", "source": "ruff"}
    for action in client.actions(uri, item["range"], diagnostics=[other, item]):
        assert [each["code"] for each in action["diagnostics"]] == ["GA101"]


def test_no_action_away_from_the_finding_or_of_another_kind(client: Client) -> None:
    uri = "untitled:away"
    client.open(uri, MEAN_OF_MEANS)
    assert client.actions(uri, {"start": {"line": 0, "character": 0}, "end": {"line": 1, "character": 0}}) == []
    assert client.actions(uri, EVERYWHERE, only=["refactor", "source.organizeImports"]) == []
    assert client.actions(uri, EVERYWHERE, only=["quickfix"])


def test_a_client_without_document_changes_gets_plain_changes() -> None:
    with running() as client:
        client.initialize({"textDocument": {"diagnostic": {}}})
        client.open("untitled:a", MEAN_OF_MEANS)
        edit = fix_of(client.actions("untitled:a", EVERYWHERE))["edit"]
        assert list(edit) == ["changes"] and edit["changes"]["untitled:a"]


def test_ignore_silences_this_finding_alone(client: Client) -> None:
    uri = "untitled:ignore"
    client.open(uri, MEAN_OF_MEANS)
    ignore = ignore_of(client.actions(uri, EVERYWHERE))
    assert ignore["title"] == "Ignore GA101 on this line"
    text = applied(MEAN_OF_MEANS, edits_of(ignore))
    assert text.count("  # firstfault: ignore[GA101]\n") == 1
    client.change(uri, 2, {"text": text})
    assert client.pull(uri)["items"] == []


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("loss = loss / STEPS  # mine", "loss = loss / STEPS  # mine  # firstfault: ignore[GA101]"),
        ("loss = loss / STEPS  # firstfault: ignore[BN501]", "loss = loss / STEPS  # firstfault: ignore[BN501, GA101]"),
        ("loss = loss / STEPS   ", "loss = loss / STEPS  # firstfault: ignore[GA101]"),
    ],
)
def test_ignore_goes_along_with_what_the_line_says_already(client: Client, line: str, expected: str) -> None:
    text = MEAN_OF_MEANS.replace("loss = loss / STEPS", line)
    uri = f"untitled:beside-{line}"
    client.open(uri, text)
    edited = applied(text, edits_of(ignore_of(client.actions(uri, EVERYWHERE))))
    assert expected in [each.strip() for each in edited.splitlines()]


def test_ignore_goes_where_a_comment_can_stand(client: Client) -> None:
    text = MEAN_OF_MEANS.replace("loss = loss / STEPS", "loss = loss / \\\n            STEPS")
    client.open("untitled:backslash", text)
    edited = applied(text, edits_of(ignore_of(client.actions("untitled:backslash", EVERYWHERE))))
    assert "loss / \\\n            STEPS  # firstfault: ignore[GA101]\n" in edited


def test_ignore_is_not_offered_where_no_comment_can_stand(client: Client) -> None:
    text = MEAN_OF_MEANS.replace("loss = loss / STEPS", "loss = loss / STEPS; text = '''a\n'''")
    client.open("untitled:string", text)
    titles = [each["title"] for each in client.actions("untitled:string", EVERYWHERE)]
    assert not [each for each in titles if each.startswith("Ignore")]


def test_the_hover_shows_the_rule_page_its_first_paragraph_first(client: Client) -> None:
    uri = "untitled:hover"
    client.open(uri, MEAN_OF_MEANS)
    (item,) = client.pull(uri)["items"]
    params = {"textDocument": {"uri": uri}, "position": item["range"]["start"]}
    hover = client.request("textDocument/hover", params)
    page = client.request("firstfault/explain", {"id": "mean-of-means"})["markdown"]
    assert (hover["contents"]["kind"], hover["range"]) == ("markdown", item["range"])
    first, link, rest = hover["contents"]["value"].split("\n\n", 2)
    assert first == page.split("\n\n")[1] and not first.startswith("#")
    assert link == f"[GA101 mean-of-means]({item['codeDescription']['href']})"
    assert page.endswith(rest.replace("#### ", "## ")) and "\n#### Limits\n" in rest
    assert client.request("textDocument/hover", {**params, "position": {"line": 0, "character": 0}}) is None


def test_explain_knows_rules_by_code_and_name_and_failures_by_id(client: Client) -> None:
    rule = client.request("firstfault/explain", {"id": "ga101"})["markdown"]
    assert rule == client.request("firstfault/explain", {"id": "mean-of-means"})["markdown"]
    assert "cuda-oom" in client.request("firstfault/explain", {"id": "cuda-oom"})["markdown"]
    error = client.error("firstfault/explain", {"id": "cuda-oomph"})
    assert error["message"].startswith("There is no failure or rule cuda-oomph. Did you mean cuda-oom")


def test_edits_stand_in_the_units_of_the_client() -> None:
    text = MEAN_OF_MEANS.replace("        loss = loss / STEPS", '        "🚀"; loss = loss / STEPS')
    with running() as client:
        client.initialize({**PULLING, "general": {"positionEncodings": ["utf-16"]}})
        client.open("untitled:a", text)
        ignored = applied(text, edits_of(ignore_of(client.actions("untitled:a", EVERYWHERE))))
        assert '"🚀"; loss = loss / STEPS  # firstfault: ignore[GA101]\n' in ignored


def test_a_clean_script_has_no_actions(client: Client) -> None:
    client.open("untitled:clean", CLEAN)
    assert json.dumps(client.actions("untitled:clean", EVERYWHERE)) == "[]"
