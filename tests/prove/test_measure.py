"""``firstfault measure`` from end to end, and what a script does that no table of faults has."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from measuring import Warm, free_port, warm

from firstfault.measuring import findings_of, join, right
from firstfault.prove.measured import Measured, Window, measured
from firstfault.prove.messages import Plan, received, this_host
from firstfault.prove.picture import to_svg
from firstfault.prove.render import to_json, to_text
from firstfault.prove.verdict import Verdict, verdict_for, verdicts

SCRIPTS = Path(__file__).parent / "scripts"


@pytest.fixture(scope="module")
def process() -> Iterator[Warm]:
    with warm() as started:
        yield started


def firstfault(*arguments: str, folder: Path = SCRIPTS) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "firstfault", "measure", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder)


def test_a_script_is_measured_from_end_to_end(tmp_path: Path) -> None:
    """Ten and ninety targets: the ratio of the textbook is 9, and the mass is right."""
    picture = tmp_path / "weights.svg"
    answer = firstfault("--format", "json", "--picture", str(picture), "--", sys.executable, "naive.py")
    assert answer.returncode == 1, answer.stderr
    value = json.loads(answer.stdout)
    assert (value["schema"], value["ended"]) == (1, "Stopped after 2 windows, as planned.")
    (verdict,) = (each for each in value["verdicts"] if each["state"] == "proven")
    assert (verdict["code"], verdict["name"], verdict["line"]) == ("GA101", "mean-of-means", 17)
    assert verdict["message"].startswith("One target weighs up to 9 times as much as another: micro-batch 1 has 10")
    assert [(each["ratio"], each["mass"]) for each in value["windows"]] == [(9.0, 1.0), (9.0, 1.0)]
    assert [each["weight"] for each in value["windows"][0]["micro_batches"]] == pytest.approx([1 / 20, 1 / 180])
    assert "checkpoints, logs and uploads" in answer.stderr
    assert "every batch was used" not in answer.stderr, "it is ended when enough is measured"
    assert ElementTree.parse(picture).getroot().tag.endswith("svg")


def test_a_picture_that_cannot_be_written_costs_no_answer() -> None:
    answer = firstfault("--picture", "no/such/folder.svg", "--", sys.executable, "-c", "pass")
    assert answer.returncode == 2 and "never imported torch" in answer.stdout
    assert "The picture could not be written: no/such/folder.svg" in answer.stderr


def test_two_real_ranks_are_one_measurement() -> None:
    """120 and 40 targets: 3."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", f"--master-port={free_port()}"]
    answer = firstfault("--format", "json", "--windows", "1", "--", *torchrun, "two_ranks.py")
    value = json.loads(answer.stdout)
    assert answer.returncode == 1, answer.stdout + answer.stderr
    assert [each["rank"] for each in value["ranks"]] == [0, 1]
    assert value["windows"][0]["ratio"] == pytest.approx(3.0)
    assert value["windows"][0]["mass"] == pytest.approx(1.0)
    assert [each["code"] for each in value["verdicts"] if each["state"] == "proven"] == ["GA301"]


def test_a_script_that_catches_the_end_is_ended_all_the_same(process: Warm) -> None:
    found = process.measure(SCRIPTS / "catches_everything.py")
    assert [window.length for window in found.complete] == [1, 1]


@pytest.mark.parametrize(
    "end",
    [
        "train()\nos._exit(0)",
        "child = multiprocessing.get_context('fork').Process(target=train)\nchild.start(); child.join()",
    ],
)
def test_the_last_window_of_a_process_that_runs_no_exit_handlers(process: Warm, tmp_path: Path, end: str) -> None:
    head, loop = NAIVE.split("for ", 1)
    loop = "for " + loop.replace("print", "pass; print")
    body = "".join(f"    {line}\n" for line in loop.splitlines())
    (tmp_path / "train.py").write_text(f"import multiprocessing, os\n{head}\ndef train():\n{body}\n{end}\n")
    found = process.measure(tmp_path / "train.py", windows=100)
    whole = process.measure(SCRIPTS / "naive.py", windows=100)
    assert [each.length for each in found.complete] == [each.length for each in whole.complete] != []


def test_a_loaders_workers_record_nothing(process: Warm) -> None:
    found = process.measure(SCRIPTS / "loader_workers.py")
    assert [window.length for window in found.complete] == [3, 3]
    assert len(found.ranks) == 1
    losses = [each.losses for window in found.complete for each in window.parts[0].micro_batches]
    assert [len(each) for each in losses] == [1] * 6


def test_a_line_that_is_called_twice_is_two_losses(process: Warm) -> None:
    found = verdicts(process.measure(SCRIPTS / "two_losses.py"))
    assert verdict_for("GA102", found).state == "refuted"
    assert not [each for each in found if each.state == "proven"]


def test_a_scaler_that_is_off_tells_nothing_of_the_order(process: Warm, tmp_path: Path) -> None:
    """Without a GPU most scripts turn it off: clipping before unscale_ is a fault all the same, and does not show."""
    faulty = (SCRIPTS.parent / "faulty" / "ga210_clip_before_unscale.py").read_text()
    late = "        scaler.unscale_(optimizer)\n        scaler.step"
    (tmp_path / "off.py").write_text(
        faulty.replace("1024.0", "1024.0, enabled=False").replace("        scaler.step", late)
    )
    verdict = verdict_for("GA210", verdicts(process.measure(tmp_path / "off.py")))
    assert verdict.state == "not measured" and "No gradient scaler was at work" in verdict.message


def test_where_nothing_ran_nothing_is_told_of_it() -> None:
    assert {each.message for each in verdicts(ran_nothing())} == {"No backward ran."}
    assert to_text(ran_nothing(), []).startswith("No fault is suspected, and nothing was measured.")


def test_a_run_that_nobody_waits_for_ends(tmp_path: Path) -> None:
    worker = pytest.importorskip("firstfault.prove.worker")
    gone = subprocess.Popen([sys.executable, "-c", "pass"])
    gone.wait()
    folder, stopped = tmp_path / "messages", []
    folder.mkdir()
    for pid, host in ((gone.pid, "another-host"), (os.getpid(), this_host())):
        worker._end_without_watcher(Plan(str(folder), 2, pid, host), lambda: stopped.append(True))
    assert folder.exists() and not stopped
    worker._end_without_watcher(Plan(str(folder), 2, gone.pid, this_host()), lambda: stopped.append(True))
    assert stopped and not folder.exists()


@pytest.mark.parametrize("arguments", [["--windows", "0", "--", "true"], ["--timeout", "0", "--", "true"]])
def test_bad_usage(arguments: list[str]) -> None:
    answer = firstfault(*arguments)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr == "firstfault: --windows and --timeout must be greater than 0.\n"


# ------------------------------------------------------------------------------------------------ findings and verdicts

NAIVE = (SCRIPTS / "naive.py").read_text()
PROVEN = Verdict("GA101", "proven", "9 times", "train.py", 18, also=("GA105",))


def ran(path: Path, line: int) -> Measured:
    """A measurement whose only backward stands in this line."""
    loss = {"kind": "cross_entropy", "reduction": "mean", "file": str(path), "line": line, "targets": 4, "counted": 4.0}
    loss |= {"weight": 0.25, "low": 0.25, "high": 0.25, "unit": "target", "class_weights": False, "dtype": "float32"}
    micro_batch = {"losses": [loss], "file": str(path), "line": line}
    message = {"kind": "window", "index": 0, "rank": 0, "world": 1, "stepped": True, "skipped": False, "optimizer": 0}
    message |= {"micro_batches": [micro_batch], "events": [], "values": {}}
    folder = path.parent / "messages"
    folder.mkdir()
    (folder / "1.jsonl").write_text(json.dumps(message) + "\n")
    return measured("It ended.", received(str(folder)))


def test_a_finding_is_proven_by_its_code(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(NAIVE)
    (judged,) = join(findings_of(["python", str(script)]), [PROVEN], ran(script, 18))
    assert (judged.code, judged.state, judged.message, judged.suspected) == ("GA101", "proven", "9 times", True)


def test_a_loop_that_did_not_run_is_not_judged(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(NAIVE)
    refuted = PROVEN._replace(state="refuted")
    (judged,) = join(findings_of(["python", str(script)]), [refuted], ran(script, 3))
    assert (judged.state, judged.line) == ("not measured", 17)
    assert judged.message == "This loop did not run; the backward that ran is in line 3."


def test_what_no_finding_names_is_said_unless_it_may_be_meant(tmp_path: Path) -> None:
    found = [PROVEN, Verdict("GA207", "proven", "4 times", quiet=True), Verdict("GA102", "refuted", "1")]
    (judged,) = join([], found, ran(tmp_path / "train.py", 3))
    assert (judged.code, judged.suspected) == ("GA101", False)
    assert "train.py:18: GA101 mean-of-means: proven (the lint does not see it)" in to_text(ran_nothing(), [judged])


def test_what_is_right_is_told_once_for_each_number() -> None:
    found = [Verdict("GA102", "refuted", "adds up to 1"), Verdict("GA103", "refuted", "adds up to 1")]
    found += [Verdict("GA204", "refuted", "none was cleared"), Verdict("GA211", "refuted", "update ran once")]
    assert right([], [*found, Verdict("GA211", "proven", "unscale_ ran twice")]) == [
        "GA102 undivided-loss",
        "GA204 zero-grad-in-window",
    ]


def test_a_fault_that_no_probe_knows_is_not_measured() -> None:
    assert verdict_for("GA213", []) == Verdict("GA213", "not measured", "No probe measures this.")


def test_numbers_that_json_does_not_know_are_null(tmp_path: Path) -> None:
    found = ran(tmp_path / "train.py", 3)
    part = found.windows[0].parts[0]._replace(values={"loss": float("nan")})
    value = to_json(found._replace(windows=(Window(0, (part,)),)), [])
    assert value["windows"][0]["values"] == {"0": {"loss": None}}
    json.dumps(value, allow_nan=False)


def test_a_picture_of_nothing_says_so() -> None:
    assert "No weights of targets were measured." in to_svg(ran_nothing())


def ran_nothing() -> Measured:
    return measured("It ended.", [])
