"""``[tool.firstfault]``: what it changes, where it is found, and what is said about a setting that cannot be."""

from pathlib import Path

import pytest
from faulty import SCRIPT

from firstfault.lint import Workspace, lint
from firstfault.lint.check import Options, check_paths
from firstfault.lint.config import Config, ConfigError, config_of, project_config, selectors

UNKNOWN_LENGTHS = SCRIPT.replace("        tags[words == 0] = -100\n", "")
UNKNOWN_SIZE = """\
import torch
from torch import nn

net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8))


def fit(endless_batches, optimizer, window):
    net.train()
    for number, (images, marks) in enumerate(endless_batches):
        loss = nn.functional.cross_entropy(net(images), marks) / window
        loss.backward()
        if (number + 1) % window == 0:
            optimizer.step()
            optimizer.zero_grad()
"""


def codes(source: str, **settings: object) -> list[str]:
    table = {name.replace("_", "-"): value for name, value in settings.items()}
    found = lint(source, "/p/train.py", Workspace("/p", {}), config_of(table, "settings"))
    return [f"{each.code} {each.severity}" for each in found or []]


def test_selectors_are_codes_names_and_beginnings() -> None:
    assert codes(SCRIPT) == ["GA101 error"]
    for kept in (["GA101"], ["mean-of-means"], ["GA"], ["ga1"], ["all"], ["BN", "GA101"]):
        assert codes(SCRIPT, select=kept) == ["GA101 error"]
        assert codes(SCRIPT, ignore=kept) == []
    assert codes(SCRIPT, select=["BN", "CL"]) == []
    assert codes(SCRIPT, select=[]) == []
    assert codes(SCRIPT, select=["GA"], ignore=["GA101"]) == []


def test_the_longest_selector_gives_the_severity() -> None:
    assert codes(SCRIPT, severity={"GA": "hint"}) == ["GA101 hint"]
    assert codes(SCRIPT, severity={"GA101": "warning", "GA": "hint"}) == ["GA101 warning"]
    assert codes(SCRIPT, severity={"BN": "hint"}) == ["GA101 error"]


def test_variable_length_speaks_where_no_text_does() -> None:
    assert codes(UNKNOWN_LENGTHS) == []
    assert codes(UNKNOWN_LENGTHS, variable_length=True) == ["GA101 error"]
    assert codes(SCRIPT, variable_length=False) == []


def test_variable_length_is_no_matter_of_one_label_per_example() -> None:
    source = UNKNOWN_LENGTHS.replace("scores.transpose(1, 2), tags, ignore_index=-100", "scores, tags")
    assert codes(source, variable_length=True) == []


def test_grad_accumulation_speaks_where_no_text_does() -> None:
    assert codes(UNKNOWN_SIZE) == ["BN501 warning"]
    assert codes(UNKNOWN_SIZE, grad_accumulation=1) == []
    assert codes(UNKNOWN_SIZE, grad_accumulation=8) == ["BN501 warning"]
    assert codes(SCRIPT, grad_accumulation=1) == ["GA101 error"]  # here the text tells


def test_grad_accumulation_names_the_window_of_an_engine() -> None:
    source = """\
import deepspeed
from torch import nn

net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8))


def fit(batches, arguments):
    engine, *_ = deepspeed.initialize(args=arguments, model=net)
    for images, marks in batches:
        loss = nn.functional.cross_entropy(engine(images), marks)
        engine.backward(loss)
        engine.step()
"""
    assert codes(source) == []
    assert codes(source, grad_accumulation=4) == ["BN501 warning"]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"selct": []}, "there is no setting 'selct'. Did you mean select?"),
        ({"grad_accumulation": 8}, "Did you mean grad-accumulation?"),
        ({"colour": True}, "there is no setting 'colour'."),
        ({"select": "GA101"}, "select: it must be a list of strings."),
        ({"ignore": ["GA999"]}, "ignore: there is no rule 'GA999'."),
        ({"ignore": ["mean-of-meens"]}, "Did you mean mean-of-means?"),
        ({"ignore": [""]}, "there is no rule ''."),
        ({"severity": {"GA101": "fatal"}}, "GA101 must be error, warning or hint, not 'fatal'."),
        ({"severity": ["GA101"]}, "it must be a table such as"),
        ({"variable-length": "yes"}, "variable-length must be true or false, not 'yes'."),
        ({"grad-accumulation": 0}, "grad-accumulation must be a whole number from 1, not 0."),
        ({"grad-accumulation": True}, "grad-accumulation must be a whole number"),
    ],
)
def test_a_setting_that_cannot_be_followed_is_a_sentence(settings: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        config_of(settings, "pyproject.toml: [tool.firstfault]")
    assert str(refused.value).startswith("pyproject.toml: [tool.firstfault]") and said in str(refused.value)


def test_the_nearest_file_with_a_table_of_ours_counts(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text('[tool.firstfault]\nignore = ["GA101"]\n')
    (tmp_path / "a" / "pyproject.toml").write_text("[tool.other]\nline-length = 9\n")
    assert project_config(str(inner)).ignore == {"ga101"}
    (inner / "pyproject.toml").write_text("[tool.firstfault]\n")
    assert project_config(str(inner)) == Config()


@pytest.mark.parametrize(
    "text", ['[tool.firstfault\nselect = ["GA"]', "[tool]\nfirstfault = 3\n", "# firstfault\nx = '\xff"]
)
def test_a_broken_file_is_told(tmp_path: Path, text: str) -> None:
    (tmp_path / "pyproject.toml").write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigError, match=r"pyproject\.toml"):
        project_config(str(tmp_path))


def test_the_command_line_stands_before_the_file(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "pyproject.toml").write_text('[tool.firstfault]\nselect = ["BN"]\nseverity = { GA101 = "hint" }\n')
    assert check_paths([str(tmp_path)]).findings == []
    over = Options(Config(select=selectors(["GA"], "--select")))
    assert [each.severity for each in check_paths([str(tmp_path)], over).findings] == ["hint"]
