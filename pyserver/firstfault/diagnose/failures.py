"""From matches to failures: one value for each thing that went wrong, with its class, its rank and its role.

Every exception that is not a launcher's wrapper becomes one failure, whatever its chain; what no signature knows is
a ``user-exception``. Native lines, exit codes and table rows become failures of their own.
"""

import re
from typing import NamedTuple

from firstfault.diagnose.match import Occurrence, occurrences, quoted_in
from firstfault.diagnose.ranks import Owner, Ranks
from firstfault.diagnose.report import Frame
from firstfault.library import Library, Role, Signature
from firstfault.logs.log import Block, Line, Log, Raised, Row
from firstfault.patterns import gated

LIBRARY_PATH = re.compile(
    r"site-packages|dist-packages|[\\/]lib(?:64)?[\\/]python\d|^<(?!ipython)"
    r"|[\\/]deepspeed[\\/](?:runtime|utils|launcher|comm|ops|inference)[\\/]"
    # Libraries that were installed from their checkout.
    r"|[\\/]src[\\/](?:transformers|accelerate|peft|trl|diffusers|datasets|lightning|pytorch_lightning)[\\/]"
    r"|[\\/]torch[\\/](?:nn|distributed|_|utils|optim|autograd|cuda)"
    r"|[\\/][Ll]ib[\\/](?:multiprocessing|runpy|threading|concurrent|asyncio|json|pickle|importlib|subprocess|os)\b"
    r"|[\\/](?:pydevd?|_pydev|pydev_)|anaconda3?[\\/][Ll]ib[\\/]"
    # Commands that an installation makes: a file of bin without an ending, or a program of Scripts.
    r"|[\\/]bin[\\/](?:[^\\/.]+|python[\d.]*)$|[\\/]Scripts[\\/][^\\/]+(?:\.(?:exe|EXE)|-script\.py|[\\/]__main__\.py)$"
    r"|\.(?:exe|EXE)[\\/]__main__\.py$|[\\/]Scripts[\\/][^\\/.]+$"
    # What a library downloads, generates or unpacks to run or to build it.
    r"|[\\/]transformers_modules[\\/]|[\\/]?unsloth_compiled_cache[\\/]|[\\/]torch_extensions[\\/]|[\\/]torchinductor_"
    r"|[\\/]pip-(?:install|build-env|req-build|wheel|modern-metadata)-\w+"
)
LAUNCHER = re.compile(r"(?:ChildFailedError|SignalException|ProcessExitedException)$")
# What a launcher raises of its own, and not about a process, says what is wrong with the launch itself.
OF_LAUNCH = re.compile(r"(?<!CalledProcess)(?<!ChildFailed)Error$|(?<!Signal)Exception$")
LAUNCHER_PATH = re.compile(
    r"torch[\\/]distributed[\\/](?:run|launch|launcher)|torch[\\/]distributed[\\/]elastic[\\/](?:agent|rendezvous)"
    r"|accelerate[\\/]commands|deepspeed[\\/]launcher"
)
# ``subprocess`` says of another Python process only that it failed; why, that one has printed itself.
CHILD = gated(
    r"Command (?![^\n]{0,400}(?:setup\.py|\bpip\b))['\"(\[]{1,3}[^'\"\n]{0,300}?"
    r"\bpython[\d.]*(?:\.exe)?[\"', ][\s\S]{0,6000}?"
    r"\breturned\s{1,4}non-zero\s{1,4}exit\s{1,4}status\s{1,4}(?P<exitcode>\d{1,10})",
    "non-zero",
)
USER_EXCEPTION = "user-exception"
# Ray raises the exception of a task anew under this name.
TASK = "RayTaskError"
# A failed check of a kernel, and those of which the text tells which one it is.
ANY_CHECK = "device-assert"
CHECKS = frozenset(("assert-label", "assert-embedding", "assert-index", "assert-bce"))
COLLATERAL: Role = "collateral"
INITIATING: Role = "initiating"
EITHER: Role = "either"


class Failure(NamedTuple):
    """One thing that went wrong. ``lines`` are its evidence, the line that shows it first."""

    signature: Signature
    role: Role
    captures: dict[str, str]
    owner: Owner
    lines: tuple[Line, ...]
    raised: Raised | None
    block: Block | None
    row: Row | None
    known: bool

    @property
    def order(self) -> int:
        return self.lines[0].order


def failures_of(log: Log, library: Library, ranks: Ranks) -> list[Failure]:
    """All failures in reading order."""
    found = occurrences(log, library)
    by_raised: dict[int, list[Occurrence]] = {}
    for each in found:
        if each.raised is not None:
            by_raised.setdefault(id(each.raised), []).append(each)
    failures = [_of_raised(raised, by_raised.get(id(raised), []), library, ranks) for raised in log.raised]
    failures += [_of_occurrence(each, ranks) for each in found if each.raised is None]
    kept = sorted((each for each in failures if each is not None), key=lambda each: each.order)
    return [_explained(each, kept) for each in kept] or _quoted(log, library, ranks)


def user_frame(raised: Raised, block: Block) -> Frame | None:
    """The innermost frame of the user's own code: of the block that failed, else of the exceptions around it."""
    others = [each for each in raised.blocks if each is not block]
    for each in (block, *others):
        for frame in reversed(each.frames):
            if frame.line and not LIBRARY_PATH.search(frame.file):
                return Frame(frame.file, frame.line, frame.function)
    return None


def script_of(raised: Raised) -> str | None:
    """The file that was started: the module frame of the user's own code, else its outermost frame.

    A cause that was caught further in shows only the frames below the place that caught it.
    """
    frames = [frame for block in raised.blocks for frame in block.frames if not LIBRARY_PATH.search(frame.file)]
    started = [frame for frame in frames if frame.function == "<module>"]
    return next((frame.file for frame in [*started, *frames]), None)


def _quoted(log: Log, library: Library, ranks: Ranks) -> list[Failure]:
    """What people quote from a log that they do not show. In a log of a whole run a quotation of no class is idle."""
    from firstfault.diagnose.progress import RUN_DONE
    from firstfault.diagnose.quoted import may_happen

    failures = []
    for line, found in quoted_in(log, library):
        if may_happen(line):
            continue
        if found is None and any(RUN_DONE.search(each.text) for each in log.lines):
            continue
        signature = found.signature if found else library.signatures["unknown-failure"]
        captures = found.captures if found else {}
        owner = ranks.of_line(line, captures)
        role = found.signature.role if found else EITHER
        failures.append(Failure(signature, role, captures, owner, (line,), None, None, None, found is not None))
    if failures:
        return failures
    from firstfault.diagnose.nameless import messages_in

    return [_of_occurrence(each, ranks) for each in messages_in(log, library)]


def _explained(failure: Failure, failures: list[Failure]) -> Failure:
    """An exception that only says that a kernel's check failed, with the check that the kernel printed below it.

    The exception comes from the host, the check from the device: either can be printed first.
    """
    if failure.signature.id != ANY_CHECK or failure.block is None:
        return failure
    checks = [each for each in failures if each.signature.id in CHECKS and each.owner.rank == failure.owner.rank]
    first = min(checks, key=lambda each: each.order, default=None)
    if first is None or first.order < failure.order:
        return failure
    lines = tuple(dict.fromkeys((*failure.lines, *first.lines)))
    return failure._replace(signature=first.signature, role=first.role, captures=first.captures, lines=lines)


def _of_raised(raised: Raised, found: list[Occurrence], library: Library, ranks: Ranks) -> Failure | None:
    own = {id(each.block): each for each in found}
    block = _primary(raised, {key: each.signature for key, each in own.items()})
    if not block.type and not block.frames:
        return None
    occurrence = own.get(id(block))
    owner = ranks.of_raised(raised)
    if not block.type or _is_empty_task(raised):
        signature, role = library.signatures["unknown-failure"], EITHER
    elif occurrence is None and (_is_launcher(block) or CHILD.match(block.message)):
        signature, role = library.signatures["child-failed"], COLLATERAL
    elif occurrence is None:
        signature, role = library.signatures[USER_EXCEPTION], INITIATING
    else:
        signature, role = occurrence.signature, occurrence.signature.role
        owner = owner if owner.rank is not None else ranks.of_line(block.at, occurrence.captures)
    captures = occurrence.captures if occurrence else {**_exit_code(block), **_job(ranks)}
    lines = _evidence(raised, block, occurrence)
    return Failure(signature, role, captures, owner, lines, raised, block, None, occurrence is not None)


def _of_occurrence(found: Occurrence, ranks: Ranks) -> Failure:
    lines: tuple[Line, ...] = (found.at,)
    captures = dict(found.captures)
    if found.row is not None:
        row = found.row
        owner = Owner(row.rank, "inferred", row.host)
        lines = (found.at, *(line for line in row.lines if _tells_death(line, row)))
        captures.setdefault("pid", str(row.pid or ""))
    elif found.exit is not None and found.exit.local_rank is not None:
        captures.setdefault("pid", str(found.exit.pid))
        owner = ranks.of_line(found.at, {"pid": str(found.exit.pid)})
        owner = owner if owner.rank is not None else ranks.of_local(found.exit.local_rank, found.at.tags.host)
    else:
        owner = ranks.of_line(found.at, found.captures)
    return Failure(found.signature, found.signature.role, captures, owner, lines, None, None, found.row, True)


def _tells_death(line: Line, row: Row) -> bool:
    return "rank " in line.text or (row.signal_text is not None and row.signal_text in line.text)


def _primary(raised: Raised, known: dict[int, Signature]) -> Block:
    """The block of a chain that tells what failed.

    The innermost known failure is the answer, wherever it stands in the chain. Where none is known: what was wrapped,
    and of a chain the last exception, if the user's code raised it: it was made to say more than its cause.
    """
    cut = next((each for each in raised.blocks if not each.type and each.link == "wrapped"), None)
    if cut is not None:
        return cut
    blocks = [each for each in raised.blocks if each.type] or list(raised.blocks)
    wrapped = [at for at, each in enumerate(blocks) if each.link == "wrapped"]
    if wrapped:
        # What wraps says only where it was: a worker, a spawned process, another rank.
        blocks = blocks[: wrapped[0] + 1]
    # A None that was used has a class of its own, but tells no more than any other exception of a script.
    plain = {key for key, each in known.items() if USER_EXCEPTION in each.narrows}
    telling = [each for each in blocks if id(each) in known.keys() - plain and known[id(each)].role != "collateral"]
    if telling:
        return telling[0]
    told_more = _in_user_code(blocks[-1]) or _of_launch(blocks[-1]) or id(blocks[0]) in known.keys() - plain
    return blocks[-1] if told_more and id(blocks[-1]) not in plain else blocks[0]


def _in_user_code(block: Block) -> bool:
    return bool(block.frames) and not LIBRARY_PATH.search(block.frames[-1].file)


def _exit_code(block: Block) -> dict[str, str]:
    child = CHILD.match(block.message)
    return {"exitcode": child["exitcode"]} if child else {}


def _job(ranks: Ranks) -> dict[str, str]:
    """How to start the script again, and what to call its ranks where there are any."""
    if not ranks.spoken_of:
        return {"start": "python"}
    count = len(ranks.known)
    return {
        "start": "torchrun --standalone --nproc-per-node 1",
        "ranks": f"{count} ranks" if count > 1 else "the ranks",
    }


def _is_empty_task(raised: Raised) -> bool:
    """What Ray raises anew for a task, without the frames and the exception of the task itself."""
    (*inner, last) = raised.blocks
    return not inner and not last.frames and last.type.endswith(TASK) and "ray::" in last.message


def _is_launcher(block: Block) -> bool:
    """A launcher's wrapper around a process that failed; its frames are the launcher's own."""
    if LAUNCHER.search(block.type) and not _in_user_code(block):
        return True
    return _in_launcher(block) and not OF_LAUNCH.search(block.type)


def _of_launch(block: Block) -> bool:
    return _in_launcher(block) and bool(OF_LAUNCH.search(block.type))


def _in_launcher(block: Block) -> bool:
    return any(LAUNCHER_PATH.search(frame.file) for frame in block.frames[-3:])


def _evidence(raised: Raised, block: Block, found: Occurrence | None) -> tuple[Line, ...]:
    """The exception's own line, the line of its message that tells, its user frame, and what wrapped it."""
    frame = next((f.at for f in reversed(block.frames) if not LIBRARY_PATH.search(f.file)), None)
    around = [each.at for each in raised.blocks if each is not block and each.type]
    lines = [
        block.at,
        *([found.at, *([found.until] if found.until else [])] if found else []),
        *([frame] if frame else []),
        *around[:3],
    ]
    return tuple(dict.fromkeys(lines))
