"""One known fault in one known rank of a real run: its fresh output must be told as that fault, on that rank."""

import re
import socket
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from faultlab import lab
from firstfault import logs
from firstfault.diagnose import diagnose
from firstfault.diagnose.report import Rank, Report
from firstfault.library import load
from firstfault.logs.source import from_paths

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="signals, limits and /proc are those of Linux"),
]
AT_ONCE = 2
# Each attempt meets in a store of its own; in a shared one an attempt can meet addresses of the attempt before.
OWN_STORE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}


class Fault(NamedTuple):
    """How it is run, and what is true of it. ``fault`` names the marked line of ``job.py`` that the user must see."""

    start: Callable[[Path], None]
    verdict: str
    signature: str | None = None
    rank: Rank = None
    fault: str | None = None
    message: str = ""
    logs: str = "*.log"
    or_signature: str | None = None
    earlier: tuple[str, ...] = ()


def under_torchrun(fault: str, culprit: int, ranks: int, *options: str, **environment: str) -> Callable[[Path], None]:
    return lambda folder: lab.run(folder, [lab.torchrun(fault, culprit, ranks, *options)], **environment)


def two_agents(folder: Path) -> None:
    """Two launchers that meet at a port of this machine, as on two nodes; rank 2 is on the second to come."""
    meeting = ["--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{lab.free_port()}", "--rdzv-id=lab"]
    options = ["--nnodes=2", "--nproc-per-node=2", "--local-addr=127.0.0.1", *meeting]
    command = [*lab.TORCHRUN, *options, str(lab.JOB), "value", "2"]
    lab.run(folder, [command, command])


def spawn(folder: Path) -> None:
    lab.run(folder, [[sys.executable, str(lab.JOB), "spawn", "1", str(lab.free_port())]])


def port_in_use(folder: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        port = taken.getsockname()[1]
        address = ["--master-addr=127.0.0.1", f"--master-port={port}", "--nproc-per-node=2"]
        lab.run(folder, [[*lab.TORCHRUN, *address, str(lab.JOB), "value", "1"]])


def redirected(folder: Path) -> None:
    options = ["--redirects=3", f"--log-dir={folder / 'ranks'}"]
    lab.run(folder, [lab.torchrun("value", 1, 2, *options)])


FAULTS = {
    "exception": Fault(
        under_torchrun("value", 1, 3), "established", "user-exception", 1, "value", "gauge 7 reports level -4"
    ),
    "chained exception": Fault(
        under_torchrun("chain", 0, 2, "--tee=3"), "established", "user-exception", 0, "chain", "height of gauge 12"
    ),
    "exception in a loader's worker": Fault(
        under_torchrun("worker-key", 1, 2), "established", "dataset-key-error", 1, "worker-key", "'level'"
    ),
    # Whether the kill or the closed socket is seen first depends on what the worker was doing.
    "loader's worker killed": Fault(
        under_torchrun("worker-killed", 1, 2), "symptom-only", "dataloader-worker-killed", 1,
        or_signature="dataloader-worker-exited",
    ),
    "killed": Fault(under_torchrun("sigkill", 1, 2), "symptom-only", "sigkill", 1),
    "segmentation fault": Fault(under_torchrun("segfault", 1, 2), "established", "sigsegv", 1, "segfault"),
    "hang before a monitored barrier": Fault(
        under_torchrun("hang", 2, 3), "established", "monitored-barrier", 2
    ),
    "another collective": Fault(
        under_torchrun("mismatch", 2, 3, TORCH_DISTRIBUTED_DEBUG="DETAIL"), "established", "collective-mismatch", 2
    ),
    "disk full": Fault(under_torchrun("disk-full", 1, 2), "symptom-only", "write-fail", 1, "disk-full"),
    "unused parameters": Fault(under_torchrun("unused", -1, 2), "established", "ddp-unused", "all", "unused"),
    "restart that recovers": Fault(
        under_torchrun("restart-once", 1, 2, "--max-restarts=1", **OWN_STORE), "no-failure"
    ),
    "restarts used up": Fault(
        under_torchrun("restart-always", 1, 2, "--max-restarts=1", LOGLEVEL="INFO", **OWN_STORE),
        "established", "user-exception", 1, "value", "gauge 7 reports level -4 in attempt 1",
        earlier=("gauge 7 reports level -4 in attempt 0",),
    ),
    "restarts used up, of which the launcher says nothing": Fault(
        under_torchrun("restart-always", 1, 2, "--max-restarts=1", **OWN_STORE),
        "established", "user-exception", 1, "value", "gauge 7 reports level -4 in attempt 1",
        earlier=("gauge 7 reports level -4 in attempt 0",),
    ),
    "two agents": Fault(two_agents, "established", "user-exception", 2, "value", "gauge 7"),
    "spawn": Fault(spawn, "established", "user-exception", 1, "value", "gauge 7"),
    "one rank leaves": Fault(under_torchrun("leave", 1, 3), "established", "early-exit", 1),
    "port in use": Fault(port_in_use, "established", "port-in-use"),
    "a folder of rank files": Fault(
        redirected, "established", "user-exception", 1, "value", "gauge 7", logs="ranks"
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def outputs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[Path]]]:
    """The runs of the selected tests, two at a time."""
    asked = {item.callspec.params["name"] for item in request.session.items if "faultlab" in str(item.path)}
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {
            name: pool.submit(_recorded, fault, tmp_path_factory.mktemp("run"))
            for name, fault in FAULTS.items()
            if name in asked
        }


def _recorded(fault: Fault, folder: Path) -> Path:
    """Once more where another process of this machine took the port that was to be used."""
    fault.start(folder)
    text = "".join(path.read_text(errors="replace") for path in folder.glob("*.log"))
    if "EADDRINUSE" in text and fault.signature != "port-in-use":
        fault.start(folder)
    return folder


@pytest.mark.parametrize("name", FAULTS)
def test_the_injected_fault_is_named(name: str, outputs: dict[str, Future[Path]]) -> None:
    fault, folder = FAULTS[name], outputs[name].result()
    paths = sorted(map(str, folder.glob(fault.logs)))
    report = _diagnosed(paths)
    shown = "".join(Path(path).read_text(errors="replace") for path in paths if Path(path).is_file())
    first = report.initiating
    told = (report.verdict, first.signature if first else None, first.rank if first else None)
    names = {fault.signature, fault.or_signature or fault.signature}
    assert told in {(fault.verdict, name, fault.rank) for name in names}, shown
    _check_evidence(report)
    if first is None:
        return
    assert fault.earlier == () or fault.earlier == tuple(each.message for each in report.earlier)
    assert fault.message in first.message
    if fault.fault is not None:
        assert first.frame is not None and Path(first.frame.file).name == "job.py"
        assert first.frame.line in _marked(fault.fault)
    if report.verdict == "symptom-only":
        assert report.missing


@pytest.mark.parametrize("name", ["hang before a monitored barrier"])
def test_the_barrier_that_was_not_reached_is_shown(name: str, outputs: dict[str, Future[Path]]) -> None:
    first = _diagnosed([str(outputs[name].result() / "node-0.log")]).initiating
    assert first is not None and first.frame is not None
    assert first.frame.line in _marked("hang")


def _diagnosed(paths: list[str]) -> Report:
    library = load()
    return diagnose(logs.read(from_paths(paths), library.prefixes), library)


def _marked(fault: str) -> list[int]:
    """The numbers of the job's lines that carry the mark of this fault."""
    lines = lab.JOB.read_text(encoding="utf-8").splitlines()
    return [number for number, line in enumerate(lines, start=1) if re.search(rf"# fault {fault}$", line)]


def _check_evidence(report: Report) -> None:
    cited = [*(report.initiating.evidence if report.initiating else ())]
    cited += [item for each in report.collateral for item in each.evidence]
    assert cited or report.initiating is None
    for item in cited:
        lines = Path(item.file).read_bytes().decode("utf-8", "replace").split("\n")
        assert item.text in lines[item.line - 1]
