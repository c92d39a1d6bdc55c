"""Which release of a library a script runs with, and what the table of Trainers says of one."""

from pathlib import Path

import pytest

from firstfault.lint import Workspace
from firstfault.lint import trainers as table
from firstfault.lint.script import read_script
from firstfault.lint.versions import Release, below, parse, release


def found(files: dict[str, str], source: str = "import torch\n") -> Release | None:
    script = read_script(source, "/project/src/train.py")
    assert script is not None
    workspace = Workspace("/project", {f"/project/{name}": text for name, text in files.items()})
    return release("transformers", script, workspace)


@pytest.mark.parametrize(
    ("name", "text", "low", "high"),
    [
        ("requirements.txt", "transformers==4.57.6\n", (4, 57, 6), (4, 57, 6)),
        ("requirements-gpu.txt", "torch\ntransformers[torch] >= 4.46, < 5  # why\n", (4, 46, 0), (4, 9999)),
        ("requirements.txt", "Transformers~=4.46.1\n", (4, 46, 1), (4, 46, 9999)),
        ("requirements.txt", "transformers==4.57.*\n", (4, 57, 0), (4, 57, 9999)),
        ("requirements.txt", "transformers<=4.45.2; python_version < '3.12'\n", (0, 0, 0), (4, 45, 2)),
        ("pyproject.toml", 'dependencies = [\n  "transformers>=5.0.0",\n]\n', (5, 0, 0), None),
        ("pyproject.toml", 'transformers = "^4.46"\n', (4, 46, 0), (4, 9999)),
        ("pyproject.toml", 'transformers = {version = "4.46.3", extras = ["torch"]}\n', (4, 46, 3), (4, 46, 3)),
        ("environment.yml", "  - transformers=4.57\n", (4, 57, 0), (4, 57, 9999)),
        ("uv.lock", '[[package]]\nname = "transformers"\nversion = "5.24.0"\n', (5, 24, 0), (5, 24, 0)),
        ("src/requirements.txt", "transformers==5.0\n", (5, 0, 0), (5, 0, 0)),
    ],
)
def test_what_a_file_states(name: str, text: str, low: tuple[int, ...], high: tuple[int, ...] | None) -> None:
    stated = found({name: text})
    assert stated is not None and (stated.low, stated.high) == (low, high)


@pytest.mark.parametrize(
    "text",
    [
        "transformers\n",
        "transformers-stream-generator==0.0.5\n",
        "# transformers==4.46\n",
        "sentence-transformers==3.0\n",
    ],
)
def test_what_states_nothing(text: str) -> None:
    assert found({"requirements.txt": text}) is None


def test_a_lock_goes_before_requirements_and_a_comment_before_both() -> None:
    files = {
        "uv.lock": '[[package]]\nname = "transformers"\nversion = "4.57.6"\n',
        "requirements.txt": "transformers>=4.40\n",
    }
    locked = found(files)
    assert locked is not None and locked.text == "4.57.6" and locked.line == 3
    own = found(files, '# /// script\n# dependencies = ["torch", "transformers==4.46.3"]\n# ///\nimport torch\n')
    assert own is not None and own.text == "==4.46.3" and own.file.endswith("train.py") and own.line == 2


def test_what_is_installed_is_read_off_its_folder(tmp_path: Path) -> None:
    for environment, number in (("chosen", "4.57.6"), (".venv", "5.0.0rc1")):
        (tmp_path / environment / "lib/python3.11/site-packages" / f"transformers-{number}.dist-info").mkdir(
            parents=True
        )
    (tmp_path / "requirements.txt").write_text("transformers==4.45.2\n")
    script = read_script("import torch\n", str(tmp_path / "train.py"))
    assert script is not None
    chosen = release("transformers", script, Workspace(str(tmp_path), {}, str(tmp_path / "chosen")))
    assert chosen is not None and chosen.is_exact and chosen.low == (4, 57, 6)
    beside = release("transformers", script, Workspace(str(tmp_path)))
    assert beside is not None and beside.low == (5, 0, 0)
    assert release("accelerate", script, Workspace(str(tmp_path))) is None


def test_below_a_number() -> None:
    assert below(parse("5")) == (4, 9999) and below(parse("4.46.0")) == (4, 45, 9999)


def test_between_two_measured_releases_only_what_both_say_is_believed() -> None:
    def exactly(number: str) -> Release:
        return Release(parse(number), parse(number), number, "", 1)

    assert table.of_case("compute-loss-mean", exactly("5.20.1")) == table.TIMES_STEPS
    assert table.of_case("causal-lm", exactly("4.46.9")) is None  # right before, wrong after
    assert table.of_case("causal-lm", Release(parse("4.40"), None, ">=4.40", "", 1)) is None
    assert table.of_head("BertForSequenceClassification", exactly("99.0")) == table.TIMES_STEPS
    assert table.of_head("NoSuchHead", exactly("5.24.0")) is None


def test_the_kind_of_a_checkpoint_is_a_whole_word_of_its_name() -> None:
    auto = "AutoModelForSequenceClassification"
    assert table.kind_of_checkpoint("google-bert/bert-base-uncased", auto) == "bert"
    assert table.kind_of_checkpoint("FacebookAI/xlm-roberta-base", auto) == "xlm-roberta"
    assert table.kind_of_checkpoint("openai-community/gpt2-medium", auto) == "gpt2"
    assert table.kind_of_checkpoint("vinai/bertweet-base", auto) is None
