"""Which of several failures came first, as far as the text tells it: by time stamps, and by lines of one writer.

Ranks write to a console through buffers and launchers that poll, and files are read in the order of their names:
between two ranks, or two files, the order of lines is not the order of time.
"""

from collections.abc import Sequence
from typing import NamedTuple

from firstfault.diagnose.evidence import Case
from firstfault.diagnose.failures import Failure
from firstfault.diagnose.ranks import LOG_RECORD
from firstfault.logs.times import TOLERANCE, Stamp, stamp
from firstfault.patterns import gated

# Schedulers tell the time inside of their words.
TOLD_AT = gated(r" AT (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\b", " AT ")
# What a collective raises because another rank left it, in words that no signature knows, starts nothing there.
COLLECTIVE = gated(r"torch[\\/]distributed[\\/](?:distributed_c10d|c10d_logger)\.py$", "c10d")


class Earliest(NamedTuple):
    """``tied`` are those of which none is surely later than another; ``reason`` tells how the one is known."""

    tied: tuple[Failure, ...]
    reason: str | None


def earliest(failures: Sequence[Failure], case: Case) -> Earliest:
    """The failures that no other one surely precedes: one, where the text tells the order."""
    if len(failures) == 1:
        return Earliest(tuple(failures), None)
    stamps = {id(each): stamp_of(each, case) for each in failures}
    left = [each for each in failures if not any(_is_before(other, each, stamps, case) for other in failures)]
    tied = _one_a_rank(left or list(failures))
    if len(tied) > 1:
        tied = [each for each in tied if not _in_collective(each)] or tied
        tied.sort(key=lambda each: _standing(each, tied))
    return Earliest(tuple(tied), _reason(tied, failures, stamps, case))


def stamp_of(failure: Failure, case: Case) -> Stamp | None:
    """When it happened: by the rank's error file, by its own lines, or by the log record that it stands below."""
    row = case.ranks.rows.get(failure.owner.rank) if failure.owner.rank is not None else None
    if row is not None and row.error is not None and row.time:
        return stamp(row.time)
    lines = [*failure.lines, *(failure.block.lines if failure.block else ())]
    above = case.ranks.line_before(failure.block.lines[0]) if failure.block else None
    if above is not None and above.stream == lines[0].stream and LOG_RECORD.search(above.text):
        lines.append(above)
    told = (line.tags.time or line.tags.recorded for line in lines)
    text = next(filter(None, told), None)
    if text is None and (said := TOLD_AT.search(failure.lines[0].text)):
        text = said[1]
    return stamp(text) if text else None


def surely_before(one: Failure, other: Failure, case: Case) -> bool:
    """By time stamps alone."""
    first, second = stamp_of(one, case), stamp_of(other, case)
    return first is not None and second is not None and first.before(second, on_one_host(one, other, case))


def on_one_host(one: Failure, other: Failure, case: Case) -> bool:
    hosts = {each.owner.host or each.lines[0].tags.host for each in (one, other)}
    if None in hosts:
        return case.ranks.one_host
    return len(hosts) == 1


def _is_before(one: Failure, other: Failure, stamps: dict[int, Stamp | None], case: Case) -> bool:
    if one is other:
        return False
    first, second = stamps[id(one)], stamps[id(other)]
    if first is not None and second is not None:
        same_host = on_one_host(one, other, case)
        if first.before(second, same_host) or second.before(first, same_host):
            return first.before(second, same_host)
    return _in_order(one, other) and one.order < other.order


def _in_order(one: Failure, other: Failure) -> bool:
    """Does the order of their lines say anything?"""
    ranks = {one.owner.rank, other.owner.rank} - {None}
    return len(ranks) < 2 and one.lines[0].file == other.lines[0].file


def _one_a_rank(failures: list[Failure]) -> list[Failure]:
    first: dict[object, Failure] = {}
    for each in failures:
        rank = each.owner.rank
        first.setdefault(rank if rank is not None else ("stream", each.lines[0].stream), each)
    return list(first.values())


def _standing(failure: Failure, tied: list[Failure]) -> tuple[int, bool, str, str, str, int]:
    """The class of most ranks first. Who wrote earlier must not decide what is said, so long as anything else can."""
    block, id_ = failure.block, failure.signature.id
    alike = sum(each.signature.id == id_ for each in tied)
    return -alike, not failure.known, id_, block.type if block else "", block.message if block else "", failure.order


def _in_collective(failure: Failure) -> bool:
    if failure.known or failure.block is None:
        return False
    return any(COLLECTIVE.search(frame.file) for frame in failure.block.frames[-3:])


def _reason(
    tied: list[Failure], failures: Sequence[Failure], stamps: dict[int, Stamp | None], case: Case
) -> str | None:
    """How the one is known to be the first; None where its place in the text tells it, or where it is not known."""
    if len(tied) > 1:
        return None
    first = stamps[id(tied[0])]
    others = [each for each in failures if each is not tied[0] and not _in_order(tied[0], each)]
    later = [each for each in others if stamps[id(each)] is not None]
    if first is None or not later:
        return None
    reason = f"Its time stamp, {first.text.strip()}, is before that of every other failure that can start a chain"
    if all(on_one_host(tied[0], each, case) for each in later):
        return f"{reason}."
    return f"{reason}, by more than the {TOLERANCE:.0f} s that clocks of two hosts may differ."
