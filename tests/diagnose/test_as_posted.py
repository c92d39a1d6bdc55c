"""Reports as people post them: pieces, retold lines, what a launcher did afterwards."""

import pytest

from firstfault import logs
from firstfault.diagnose import diagnose
from firstfault.diagnose.render import to_text
from firstfault.diagnose.report import Report
from firstfault.library import load
from firstfault.logs.source import from_text

KILLED_WITH_THE_STEP = """\
srun: error: node4: task 6: Exited with exit code 1
srun: launch/slurm: _step_signal: Terminating StepId=4471.0
slurmstepd: error: *** STEP 4471.0 ON node4 CANCELLED AT 2026-03-14T08:00:36 ***
srun: error: node4: tasks 1,3: Killed
srun: error: node5: task 8: Killed
"""
KILLED_BEFORE_THE_STEP = """\
srun: error: node5: task 8: Killed
srun: launch/slurm: _step_signal: Terminating StepId=4471.0
slurmstepd: error: *** STEP 4471.0 ON node4 CANCELLED AT 2026-03-14T08:00:36 ***
srun: error: node4: task 1: Killed
"""
INTERRUPTED = """\
  File "/home/ann/env/lib/python3.10/site-packages/deepspeed/launcher/runner.py", line 548, in sigkill_handler
    result_kill = subprocess.Popen(kill_cmd, env=env)
NameError: free variable 'kill_cmd' referenced before assignment in enclosing scope
  File "/home/ann/lab/serve.py", line 39, in wait
    time.sleep(1e-3)
KeyboardInterrupt
[2026-03-14 20:27:02,195] [INFO] [launch.py:428:sigkill_handler] Killing subprocess 3508
"""
PIECE_OF_A_BOX = """\
│   919                                                                    │
│   921 def main():                                                        │
│                                                                          │
│ E:\\lab\\venv\\lib\\site-packages\\starter\\commands\\launch.py:580 in start  │
│                                                                          │
│ ❱ 580 │   │   │   raise Refused(returncode=process.returncode)           │
╰──────────────────────────────────────────────────────────────────────────╯
"""
TABLE = """\
| host  | path                          |
│ /data/runs/a                           │
│ /data/runs/b                           │
epoch 1 loss 0.5
epoch 2 loss 0.4
"""
LABELLED = """\
actual error: RuntimeError: Error(s) in loading state_dict for Net:
\tMissing key(s) in state_dict: "head.weight", "head.bias".
\tUnexpected key(s) in state_dict: "module.head.weight", "module.head.bias".
"""
TIED = """\
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
lab.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2026-09-04_10:10:23
  host      : ubuntu
  rank      : 1 (local_rank: 1)
  exitcode  : 1 (pid: 31)
  error_file: <N/A>
[2]:
  time      : 2026-09-04_10:10:23
  host      : ubuntu
  rank      : 2 (local_rank: 2)
  exitcode  : 1 (pid: 32)
  error_file: <N/A>
"""


def report(text: str) -> Report:
    return diagnose(logs.read([from_text(text, "run.log")], load().prefixes), load())


def first(text: str) -> str | None:
    initiating = report(text).initiating
    return initiating.signature if initiating else None


def test_what_srun_kills_after_it_ended_the_step_started_nothing() -> None:
    assert first(KILLED_WITH_THE_STEP) == "child-failed"
    assert first(KILLED_BEFORE_THE_STEP) == "sigkill"


def test_an_interrupt_comes_before_what_the_launchers_handler_trips_over() -> None:
    assert first(INTERRUPTED) == "interrupted"


def test_a_piece_of_a_box_is_a_traceback_and_a_table_is_none() -> None:
    assert first(PIECE_OF_A_BOX) == "unknown-failure"
    assert first(TABLE) is None


def test_the_lines_below_a_labelled_exception_belong_to_it() -> None:
    told = report(LABELLED)
    assert told.initiating is not None and told.initiating.signature == "state-dict-keys"
    assert "module." in told.cause


def test_no_rank_is_spoken_of_where_several_ended_at_once() -> None:
    told = report(TIED)
    assert told.initiating is not None and told.initiating.rank is None
    assert "rank 1" not in told.cause + told.missing[0].fact


def test_a_rank_that_failed_by_its_own_words_leaves_no_suspects() -> None:
    text = "RANK=0\nRANK=1\n" + "".join(
        f"[rank{rank}]: {line}\n"
        for rank, line in (
            (1, "terminate called after throwing an instance of 'std::out_of_range'"),
            (1, "  what():  vector::at"),
            (0, "Traceback (most recent call last):"),
            (0, '  File "/home/ann/lab/a.py", line 3, in main'),
            (0, "    dist.barrier()"),
            (0, "RuntimeError: [/pytorch/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:34437"),
            (2, "epoch 1 step 3 loss 0.4"),
        )
    )
    told = report(text)
    assert told.initiating is not None and told.initiating.rank == 1
    assert told.suspects == ()


def test_an_exception_without_frames_says_where_to_look() -> None:
    told = report("RuntimeError: the fifth wheel is flat\n")
    assert "frames" in told.fix[0]
    assert "Read the evidence" not in to_text(told, colour=False)


def test_a_cell_of_a_notebook_has_no_function() -> None:
    told = report(
        "RuntimeError  Traceback (most recent call last)\n"
        "Cell In[4], line 2\n      1 a\n----> 2 b()\n\nValueError: no b\n"
    )
    assert " of :" not in " ".join(told.fix) and "in  (" not in told.cause


def test_a_gradient_norm_that_stays_nan_beside_a_sound_loss_is_told() -> None:
    lines = [f"{{'loss': {2.3 - at / 100:.2f}, 'grad_norm': nan, 'epoch': 0.{at}}}" for at in range(2, 9)]
    lines.insert(0, "{'loss': 2.31, 'grad_norm': 1.2, 'epoch': 0.1}")
    assert first("\n".join(lines)) == "grad-nonfinite"


@pytest.mark.parametrize(
    ("message", "signature"),
    [
        (
            "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!",
            "device-mismatch",
        ),
        ("`CUDA error: no kernel image is available for execution on the device`", "no-kernel-image"),
        ("**mat1 and mat2 shapes cannot be multiplied (4x18 and 512x1024)**", "matmul-shape"),
    ],
)
def test_a_message_without_the_exceptions_name_speaks_in_a_question(message: str, signature: str) -> None:
    assert first(f"I followed the steps, and get this:\n{message}\n\nWhat can I do?\n") == signature
    assert first(f"epoch 1 loss 0.5\n{message}\nepoch 2 loss 0.4\n") is None
    bare = message.strip("`*")
    assert first(f"My server prompts: **{bare}**, so what can I do?\n") == signature
    assert signature == "no-kernel-image" or first(f"You may see **{bare}** on old cards.\n") is None
    assert first(f"INFO {message}\n") is None
    assert first(f"If you get this, change the device:\n# {message}\n") is None


def test_a_task_of_ray_without_its_exception_is_no_cause() -> None:
    task = "ray.exceptions.RayTaskError(RuntimeError): ray::Trainable.train() (pid=18, ip=10.0.0.2, repr=Lab)\n"
    assert first(task) == "unknown-failure"


def test_frames_that_a_web_page_spoiled_are_read() -> None:
    text = (
        "Traceback (most recent call last):\n"
        "File \u201c/home/ann/lab/train.py\u201d, line 9, in\n"
        "main()\n"
        "^^^^^^\n"
        "File \u201c/home/ann/lab/train.py\u201d, line 5, in main\n"
        "step(batch)\n"
        "^^^^^^^^^^^\n"
        "ValueError: no such step`\n"
        "What is wrong?\n"
    )
    told = report(text).initiating
    assert told is not None and told.frame is not None
    assert (told.frame.line, told.message) == (5, "no such step")


def test_a_service_that_ran_the_script_elsewhere_does_not_know_its_failure() -> None:
    text = (
        "Traceback (most recent call last):\n"
        '  File "/home/ann/lab/start.py", line 68, in launch\n'
        "    estimator.fit(inputs)\n"
        "sagemaker.exceptions.UnexpectedStatusException: Error for Training job lab-1: Failed. Reason: AlgorithmError: "
        "ExecuteUserScriptError:\nExitCode 1\n"
    )
    told = report(text)
    assert told.verdict == "symptom-only"
    assert told.initiating is not None and told.initiating.signature == "child-failed"


def test_a_quotation_below_a_line_of_ones_own_is_read() -> None:
    text = (
        "I had such an issue, with nvcc 11.7\n"
        "> Building wheel for fastops (setup.py) ... error\n"
        ">   error: subprocess-exited-with-error\n"
        ">\n"
        ">   \u00d7 python setup.py bdist_wheel did not run successfully.\n"
        ">   \u2502 exit code: 1\n"
        ">       running build\n"
    )
    assert first(text) == "pip-build-failed"
