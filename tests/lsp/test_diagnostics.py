"""Squiggles: pulled or pushed, for the text on the screen, and steady while a line is being typed."""

from pathlib import Path

import pytest

from lsp.client import PULLING, Client, running
from lsp.scripts import BATCH_NORM, CLEAN, MEAN_OF_MEANS, UNREADABLE

PUSHING: dict[str, object] = {"textDocument": {"publishDiagnostics": {"versionSupport": True}}}


def codes(report: dict) -> list[str]:
    return [each["code"] for each in report["items"]]


def at(text: str, needle: str, occurrence: int = 1) -> dict[str, int]:
    """Where a piece of a text that is all ASCII begins."""
    offset = -1
    for _ in range(occurrence):
        offset = text.index(needle, offset + 1)
    return {"line": text.count("\n", 0, offset), "character": offset - (text.rfind("\n", 0, offset) + 1)}


def test_a_finding_tells_what_an_editor_shows(client: Client) -> None:
    client.open("untitled:shown", MEAN_OF_MEANS)
    (item,) = client.pull("untitled:shown")["items"]
    assert (item["code"], item["source"]) == ("GA101", "firstfault")
    assert item["codeDescription"]["href"].endswith("/rules/mean-of-means.md")
    assert item["severity"] in (1, 2) and "tags" not in item
    assert item["message"].endswith(".") and "\n" not in item["message"]
    line = MEAN_OF_MEANS.splitlines()[item["range"]["start"]["line"]]
    assert "loss" in line and item["range"]["start"] != item["range"]["end"]


def test_related_places_lead_to_their_lines(client: Client) -> None:
    client.open("untitled:related", BATCH_NORM)
    item = next(each for each in client.pull("untitled:related")["items"] if each["code"] == "BN501")
    related = item.get("relatedInformation", [])
    assert related
    for each in related:
        assert each["location"]["uri"] == "untitled:related" and each["message"]


def test_the_same_text_is_unchanged_and_another_is_not(client: Client) -> None:
    uri = "untitled:same"
    client.open(uri, MEAN_OF_MEANS)
    first = client.pull(uri)
    again = client.pull(uri, first["resultId"])
    assert again == {"kind": "unchanged", "resultId": first["resultId"]}
    client.change(uri, 2, {"text": CLEAN})
    other = client.pull(uri, first["resultId"])
    assert (other["kind"], other["items"]) == ("full", [])
    client.change(uri, 3, {"text": MEAN_OF_MEANS})
    assert codes(client.pull(uri, other["resultId"])) == ["GA101"]


def test_a_text_that_does_not_parse_keeps_its_squiggles(client: Client) -> None:
    uri = "untitled:typing"
    client.open(uri, MEAN_OF_MEANS)
    first = client.pull(uri)
    client.change(uri, 2, {"text": UNREADABLE})
    assert client.pull(uri, first["resultId"]) == {"kind": "unchanged", "resultId": first["resultId"]}
    assert client.pull(uri) == {"kind": "full", "items": []}


def test_a_half_typed_line_elsewhere_changes_nothing(client: Client) -> None:
    uri = "untitled:half"
    client.open(uri, MEAN_OF_MEANS + "\nmodel.foo(\n")
    assert codes(client.pull(uri)) == ["GA101"]


@pytest.mark.parametrize("eol", ["\n", "\r\n", "\r"])
def test_line_ends_of_every_kind(client: Client, eol: str) -> None:
    uri = f"untitled:eol-{eol!r}"
    client.open(uri, MEAN_OF_MEANS)
    expected = client.pull(uri)["items"]
    client.change(uri, 2, {"text": MEAN_OF_MEANS.replace("\n", eol)})
    assert client.pull(uri)["items"] == expected


@pytest.mark.parametrize(("encoding", "width"), [("utf-16", 2), ("utf-8", 4), ("utf-32", 1)])
def test_columns_behind_characters_beyond_the_basic_plane(encoding: str, width: int) -> None:
    plain = MEAN_OF_MEANS.replace("        loss = loss / STEPS", '        "r"; loss = loss / STEPS')
    with running() as client:
        answer = client.initialize({**PULLING, "general": {"positionEncodings": [encoding, "utf-16"]}})
        assert answer["capabilities"]["positionEncoding"] == encoding
        client.open("untitled:plain", plain)
        client.open("untitled:rockets", plain.replace('"r"', '"🚀"'))
        (item,), (moved,) = (client.pull(uri)["items"] for uri in ("untitled:plain", "untitled:rockets"))
        same_line = item["range"]["start"]["line"] == plain[: plain.index('"r"')].count("\n")
        assert same_line, "the finding must lie on the line with the rocket for this test to mean anything"
        for corner in ("start", "end"):
            assert moved["range"][corner]["character"] == item["range"][corner]["character"] + width - 1


def test_incremental_changes_are_followed(client: Client) -> None:
    uri = "untitled:steps"
    client.open(uri, MEAN_OF_MEANS)
    start = at(MEAN_OF_MEANS, "        loss = loss / STEPS\n")
    end = {"line": start["line"] + 1, "character": 0}
    client.change(uri, 2, {"range": {"start": start, "end": end}, "text": ""})
    assert "GA101" not in codes(client.pull(uri))
    client.change(uri, 3, {"range": {"start": start, "end": start}, "text": "        loss = loss / STEPS\n"})
    assert codes(client.pull(uri)) == ["GA101"]


@pytest.mark.parametrize(
    "uri",
    [
        "untitled:Untitled-1",
        "untitled:/home/ada/not%20saved.py",
        "file:///c%3A/Users/Ada/train%20run.py",
        "file:///C:/Users/Ada/train.py",
        "file://server/share/train.py",
        "file:///tmp/a%3Bb%23c%3Fd%25e/train.py",
        "file:///tmp/%F0%9F%9A%80.py",
        "file:///outside/of/any/workspace/train.py",
    ],
)
def test_documents_of_many_kinds_are_checked(client: Client, uri: str) -> None:
    client.open(uri, MEAN_OF_MEANS)
    assert codes(client.pull(uri)) == ["GA101"]


@pytest.mark.parametrize(
    ("uri", "language"),
    [
        ("vscode-notebook-cell:/home/ada/run.ipynb#W0sZmlsZQ%3D%3D", "python"),
        ("git:/home/ada/train.py?%7B%7D", "python"),
        ("file:///home/ada/notes.md", "markdown"),
        ("http://[broken", "python"),
    ],
)
def test_what_is_no_script_gets_no_squiggle(client: Client, uri: str, language: str) -> None:
    client.open(uri, MEAN_OF_MEANS, language)
    assert client.pull(uri)["items"] == []


def test_a_client_without_pull_is_told_of_its_own_accord() -> None:
    with running() as client:
        client.initialize(PUSHING)
        client.open("untitled:a", MEAN_OF_MEANS)
        first = client.notified("textDocument/publishDiagnostics")
        assert (first["uri"], first["version"], codes_of(first)) == ("untitled:a", 1, ["GA101"])
        client.change("untitled:a", 2, {"text": UNREADABLE})
        client.change("untitled:a", 3, {"text": CLEAN})
        second = client.notified("textDocument/publishDiagnostics")
        assert (second["version"], second["diagnostics"]) == (3, [])
        client.change("untitled:a", 4, {"text": MEAN_OF_MEANS})
        assert client.notified("textDocument/publishDiagnostics")["version"] == 4
        client.notify("textDocument/didClose", {"textDocument": {"uri": "untitled:a"}})
        assert client.notified("textDocument/publishDiagnostics")["diagnostics"] == []


def test_of_many_changes_of_a_large_text_only_the_last_is_checked() -> None:
    text = "pass\n" * 6_000 + MEAN_OF_MEANS
    with running() as client:
        client.initialize(PUSHING)
        client.open("untitled:a", text)
        for version in range(2, 12):
            client.change("untitled:a", version, {"text": text + f"# {version}\n"})
        assert client.notified("textDocument/publishDiagnostics")["version"] == 11
        client.request("shutdown", None)
        assert not [each for each in client.asked if each["method"] == "textDocument/publishDiagnostics"]


def codes_of(published: dict) -> list[str]:
    return [each["code"] for each in published["diagnostics"]]


CONFIGURABLE = {**PULLING, "workspace": {**PULLING["workspace"], "configuration": True}}
OFF = [
    {"check": {"enabled": False}},
    {"check": {"disabledRules": ["GA101"]}},
    {"check": {"disabledRules": ["mean-of-means"]}},
]


@pytest.mark.parametrize("settings", OFF)
def test_settings_at_the_start(settings: dict) -> None:
    with running() as client:
        client.initialize(initializationOptions=settings)
        client.open("untitled:a", MEAN_OF_MEANS)
        assert client.pull("untitled:a")["items"] == []


@pytest.mark.parametrize("settings", OFF)
def test_settings_that_the_server_asks_for(settings: dict) -> None:
    with running() as client:
        client.settings = {"check": {"enabled": True, "disabledRules": []}}
        client.initialize(CONFIGURABLE)
        client.open("untitled:a", MEAN_OF_MEANS)
        first = client.pull("untitled:a")
        assert codes(first) == ["GA101"]
        client.settings = settings
        client.notify("workspace/didChangeConfiguration", {"settings": None})
        client.notified("workspace/diagnostic/refresh")
        assert client.pull("untitled:a", first["resultId"])["items"] == []


def test_settings_that_come_with_their_change() -> None:
    with running() as client:
        client.initialize(PUSHING)
        client.open("untitled:a", MEAN_OF_MEANS)
        assert codes_of(client.notified("textDocument/publishDiagnostics")) == ["GA101"]
        client.notify("workspace/didChangeConfiguration", {"settings": {"firstfault": OFF[0]}})
        assert client.notified("textDocument/publishDiagnostics")["diagnostics"] == []


@pytest.mark.parametrize("settings", [None, 7, {"check": 7}, {"check": {"enabled": "no", "disabledRules": "GA101"}}])
def test_settings_that_make_no_sense_are_none(settings: object) -> None:
    with running() as client:
        client.settings = settings
        client.initialize(CONFIGURABLE, initializationOptions=settings)
        client.open("untitled:a", MEAN_OF_MEANS)
        assert codes(client.pull("untitled:a")) == ["GA101"]


@pytest.mark.parametrize("answer", [None, {}, {"interpreter": ["python3"]}, {"check": {"enabled": True}}])
def test_what_the_client_does_not_say_stays_as_it_was_at_the_start(answer: object) -> None:
    with running() as client:
        client.settings = answer
        client.initialize(CONFIGURABLE, initializationOptions=OFF[1])
        client.notify("workspace/didChangeConfiguration", {"settings": None})
        client.open("untitled:a", MEAN_OF_MEANS)
        assert client.pull("untitled:a")["items"] == []


def test_the_server_asks_to_hear_of_changes() -> None:
    able = {"dynamicRegistration": True}
    with running() as client:
        client.initialize({"workspace": {"didChangeConfiguration": able, "didChangeWatchedFiles": able}})
        methods = [client.notified("client/registerCapability")["registrations"][0]["method"] for _ in range(2)]
        assert methods == ["workspace/didChangeConfiguration", "workspace/didChangeWatchedFiles"]


def test_another_file_that_changes_on_disk_or_in_the_editor_brings_a_new_answer(client: Client, tmp_path: Path) -> None:
    uri, other = (tmp_path / "train.py").as_uri(), (tmp_path / "other.py").as_uri()
    client.open(uri, MEAN_OF_MEANS)
    first = client.pull(uri)
    client.notify("workspace/didChangeWatchedFiles", {"changes": [{"uri": other, "type": 2}]})
    client.notified("workspace/diagnostic/refresh")
    second = client.pull(uri, first["resultId"])
    assert second["kind"] == "full"
    client.open(other, "step = 1\n")
    assert client.pull(uri, second["resultId"])["kind"] == "full"
