"""Messages of exceptions without the exception's name, as people copy them into a question.

Only a short text is asked so, in which nothing else failed and nothing of a run is told; and only a line whose first
words, or those that it sets apart, are those of a message that a signature knows at length. A logger's line is none.
"""

import re
from collections.abc import Iterator

from firstfault.diagnose.match import (
    CODE,
    NAMELESS,
    REPAIRS,
    Event,
    Found,
    Occurrence,
    below,
    best,
    is_decided_by_engine,
)
from firstfault.diagnose.progress import HARMLESS, shows_progress
from firstfault.diagnose.quoted import may_happen
from firstfault.library import Library
from firstfault.logs.log import Log, Tags

LONGEST_QUESTION = 80
# So many characters must be those of the signature's own pattern: fewer are words that anybody may use.
ENOUGH = 24
MARKS = "`*>'\"\u201c\u201d \t"
# Words of torch before those of the driver.
CUDA = "CUDA error: "
# What a sentence sets apart as code, or in bold letters.
MARKED = re.compile(r"(?:`|\*\*)([^`*]{24,400})(?:`|\*\*)")
NO_TAGS = Tags()


def messages_in(log: Log, library: Library) -> Iterator[Occurrence]:
    """The lines of a question that are the message of a known exception."""
    if len(log.lines) > LONGEST_QUESTION or shows_progress(log):
        return
    for at, line in enumerate(log.lines):
        code = line.raw.lstrip().startswith((*CODE, *REPAIRS))
        if code or line.tags != NO_TAGS or may_happen(line) or HARMLESS.search(line.raw):
            continue
        for text in (line.raw.strip(MARKS), *MARKED.findall(line.raw)):
            hit = _known("\n".join((text, *below(at, log))), library)
            if hit is not None and len(text) >= ENOUGH:
                yield Occurrence(hit.signature, hit.captures, line)
                break


def _known(message: str, library: Library) -> Found | None:
    signatures = [each for each in library.signatures.holding(message) if not is_decided_by_engine(each)]
    begins = len(CUDA) if message.startswith(CUDA) else 0
    hit = best(Event(NAMELESS, message, None, "", None), signatures, begins)
    return hit if hit is not None and hit.length >= ENOUGH else None
