"""What a text only quotes: documentation of errors, advice, sentences; against what somebody tells that happened."""

import pytest

from firstfault import logs
from firstfault.diagnose import diagnose
from firstfault.diagnose.report import Report
from firstfault.library import load
from firstfault.logs.source import from_text

OOM = (
    "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 23.65 GiB total capacity; 20.10 GiB already "
    "allocated; 1.10 GiB free; 21.90 GiB reserved in total by PyTorch)"
)
TRACEBACK = f'Traceback (most recent call last):\n  File "/home/ann/lab/train.py", line 3, in main\n    go()\n{OOM}'


def diagnosed(text: str) -> Report:
    library = load()
    return diagnose(logs.read([from_text(text, "README.md")], library.prefixes), library)


def told(text: str) -> tuple[str, str | None]:
    report = diagnosed(text)
    return report.verdict, report.initiating and report.initiating.signature


@pytest.mark.parametrize("quoted", [OOM, TRACEBACK], ids=["one line", "traceback"])
@pytest.mark.parametrize(
    "above",
    [
        "If the batch is too large, training ends like this:",
        "# The kit\n\nWith long rows you may see an error like:",
        "## Troubleshooting\n\nOut of memory:",
        "### Common errors\n\nThe card is too small.",
    ],
)
def test_documentation_quotes_what_did_not_happen(above: str, quoted: str) -> None:
    report = diagnosed(f"{above}\n\n```\n{quoted}\n```\n\nReduce the batch size.\n")
    assert (report.verdict, report.initiating and report.initiating.signature) == ("symptom-only", "cuda-oom")
    assert report.initiating is not None and "documentation" in report.initiating.reason
    assert "output of a run" in report.missing[0].fact


@pytest.mark.parametrize(
    "text",
    [
        f"When I run it I get this:\n\n```\n{TRACEBACK}\n```\n",
        f"### Describe the bug\n\nIf you start it, it ends so:\n\n```\n{TRACEBACK}\n```\n",
        f"If the batch is large it ends.\n\n```\n{TRACEBACK}\n",
        f"```\n{TRACEBACK}\n```\n",
        f"If the batch is too large you may see:\n```\nepoch 1\n```\n\n{TRACEBACK}\n",
        f"## Troubleshooting\n\n```\nnvidia-smi\n```\n## The run of today\n\n```\n{TRACEBACK}\n```\n",
    ],
    ids=["told by somebody", "a report", "an open fence", "nothing but the block", "beside the block", "other heading"],
)
def test_what_somebody_shows_of_a_run_is_a_failure(text: str) -> None:
    assert told(text) == ("established", "cuda-oom")


def test_a_fence_is_no_part_of_the_message() -> None:
    report = diagnosed(f"```\n{TRACEBACK}\n```\n")
    assert report.initiating is not None
    assert "`" not in report.initiating.message


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("I get RuntimeError CUDA out of memory. Tried to allocate 20.00 MiB", ("established", "cuda-oom")),
        ("Then my run stops with RuntimeError CUDA out of memory after an hour.", ("symptom-only", "unknown-failure")),
        ("My job crashed with a WellError Depth is missing", ("symptom-only", "unknown-failure")),
        ("If you see RuntimeError CUDA out of memory. Tried to allocate 2 GiB, use less.", ("no-failure", None)),
        ("You may get `RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB` there.", ("no-failure", None)),
        ("INFO a handler for RuntimeError Registered", ("no-failure", None)),
    ],
)
def test_sentences(sentence: str, expected: tuple[str, str | None]) -> None:
    assert told(sentence + "\n") == expected


def test_an_answers_mark_quotes_as_fences_do() -> None:
    quoted = "\n".join(f"> {line}" for line in TRACEBACK.split("\n"))
    assert told(f"With long rows you may see:\n\n{quoted}\n\nReduce the batch size.\n") == ("symptom-only", "cuda-oom")
    assert told(f"My run ends so:\n\n{quoted}\n") == ("established", "cuda-oom")
    assert told(quoted) == ("established", "cuda-oom")


@pytest.mark.parametrize("words", ["Fix", "- Fix", "Handle"])
def test_a_line_of_a_changelog_tells_of_no_run(words: str) -> None:
    assert (
        told(f"commit 3fa9d1\n    {words} RuntimeError: CUDA error: device-side assert triggered\n")[0] == "no-failure"
    )
