"""Tracebacks in all their shapes, from the lines of one stream: chains, groups, wrappers, fatal errors, C++ throws.

A traceback may be cut at either end: frames without a header open one, and one without its last line keeps an empty
type. What a wrapper quotes (DataLoader worker, mp.spawn, a checkpoint reader) becomes a block before the wrapper's own.
"""

import re
from collections.abc import Sequence

from firstfault.logs.boxes import EDGE, PIECE, RICH_END, frames_in
from firstfault.logs.log import Block, FrameLine, Line, Link, Origin, Raised
from firstfault.patterns import gated

HEADER_TEXT = "Traceback (most recent call last):"
HEADER = gated(
    r"Traceback \(most recent call last\):|\w+ {3,}Traceback \(most recent call last\)",
    "Traceback (most recent call last)",
)
FRAME = gated(
    r'\s*File ["\u201c](?P<file>[^"\u201d\n]{1,1000})["\u201d], line (?P<line>\d{1,9})'
    r"(?:,? in(?: (?P<function>.{1,200}))?)?,?\s*$",
    'File "',
    "File \u201c",
)
IPYTHON_FRAME = gated(
    r"\s*(?:File (?=[^\n]{1,500}:\d{1,9},|[^\n]{1,500}\.py:\d{1,9}$)"
    r"(?P<file>\S{1,500}?|(?:~|/|[A-Za-z]:)[\\/]?[^\n\"<>|]{1,500}?):(?P<line>\d{1,9})(?:,|$)"
    r"|Cell In ?\[(?P<cell>\d+)\], line (?P<cl>\d+))",
    "File ",
    "Cell In",
)
# IPython before version 8: the file without its line, which stands at the arrow below.
# Colab makes the file a link.
OLD_IPYTHON_FRAME = gated(
    r"\[?(?P<file>(?:~|/|[A-Za-z]:)[^\n\"<>|]{1,300}\.py|<ipython-input-[\w\-]{1,60}>|Input In \[\d{1,6}\])"
    r"(?:\]\(https?://[^\s()]{1,200}\))?,?"
    r" in (?P<function><module>|<cell line: \d{1,6}>\(\)|\w{1,80}(?:\(.{0,600}\))?)$",
    " in ",
)
# Colab hides the frames of libraries behind a button.
HIDDEN = gated(r"\d{1,4} frames$", " frames")
ARROW = gated(r"-{1,4}> {0,6}(?P<line>\d{1,6})\b", "-> ")
RICH_HEADER = gated(r"\u256d\u2500+ Traceback \(most recent call last\) \u2500", "Traceback (most recent call last) ")
EXCEPTION = re.compile(r"(?P<type>[A-Za-z_][\w.]{0,150}(?:\([\w.]{1,80}\))?)(?:: ?(?P<message>.*))?$")
# The name of an exception of which a paste that was cut kept the first letters: all in small ones, and nothing below.
STUMP = re.compile(r"(?:[a-z_]\w{0,60}\.){0,8}(?:(?!\w*(?:error|timeout)$)[a-z_]\w{0,60})?$")
NAMED_EXCEPTION = re.compile(
    r"(?P<type>(?:[A-Za-z_]\w*\.){0,8}_?[A-Z]\w{0,80}(?:Error|Exception|Interrupt|Exit|Group|Timeout|Died|Failed|Iteration))"
    r"(?:\([\w.]{1,80}\))?(?:: ?(?P<message>.*))?$"
)
# An error file as torch's error handler prints it; the frames below are one escaped line.
RECORDED = gated(
    r'\s*"message": "(?P<type>(?:[A-Za-z_]\w*\.){0,8}[A-Z]\w{0,80}(?:Error|Exception|Interrupt|Exit|Timeout))'
    r'(?:: ?(?P<message>[^"]*))?',
    '"message": "',
)
CAUSE = gated(r"The above exception was the direct cause of the following exception:", "the direct cause")
CONTEXT = gated(r"During handling of the above exception, another exception occurred:", "During handling")
MEMBER = gated(r"[\s|]*\+[-+]{2,}(?: \d+ -+)?\s*$", "+-", "+---")
IGNORED = gated(r"Exception ignored in", "Exception ignored in")
FORWARD_CALL = gated(r"Traceback of forward call that caused the error:", "Traceback of forward call")
THREAD = gated(r"Exception in thread (?P<thread>.{1,100}?):?$", "Exception in thread")
FATAL = gated(r"Fatal Python error: (?P<message>.{1,300})", "Fatal Python error: ")
FATAL_THREAD = gated(
    r"(?P<current>Current thread|Thread) 0x[0-9a-f]+.{0,80}\(most recent call first\):", "(most recent call first)"
)
FATAL_FRAME = gated(r'\s*File "(?P<file>[^"\n]{1,1000})", line (?P<line>\d{1,9}) in (?P<function>.{1,200})$', 'File "')
TERMINATE = gated(
    r"terminate called (?:after throwing an instance of '(?P<type>[^'\n]{1,200})'"
    r"|without an active exception|recursively)",
    "terminate called",
)
WHAT = gated(r"\s*what\(\): {0,3}(?P<message>.*)$", "what():")
# A paste that lost its line ends has the message on the line of the death itself.
WHAT_BEHIND = gated(r"terminate called.{1,250}?what\(\): {0,3}(?P<message>.*)$", "what():")
# Ray raises the task's own exception anew; the frames below its line are those of the worker.
TASK = gated(r"RayTaskError\(", "RayTaskError(")
WRAPPED = gated(r"Original Traceback|Traceback \(most recent call last\): \(RANK \d+\)", "Original Traceback", "(RANK ")
WRAPS_NEXT = gated(r"terminated with the following error|^ray::|\n ?ray::", "terminated with", "ray::")
# What Python adds to a traceback, also where a web page took the spaces before it.
REPEATED = gated(r"\s*\[Previous line repeated \d+ more times?\]|[~^]{2,400}$", "[Previous line repeated", "^^", "~~")
BAR = gated(r"\d{1,3}%\|", "%|")
# Lines that torch adds behind a message, and the C++ stack below it; they belong to it even after an empty line.
TRAILER = re.compile(
    r"CUDA kernel errors might|For debugging consider|Compile with `TORCH_USE|Exception raised from |frame #\d+|"
    r"Device-side assertion|Search for `|Original Traceback|-- Process \d+ terminated|Unsupported operand \d|"
    r"Check the documentation of torch\.load|\s*\(\d\) "
)
LOG_LIKE = re.compile(
    r"[\[{$(<]|\d|(?:epoch|step|iter|iteration|train|loss|saved|INFO|WARN|ERROR|DEBUG|srun:|slurmstepd:|wandb:|\*{5}|-{5}|={5})",
    re.IGNORECASE,
)
# Markdown's marks around a block of code.
FENCES = ("```", "~~~")
MESSAGE_LINES = 120
RICH_LINES = 600
LOOSE_LINES = 12
# How many empty lines a traceback may hold at one place, and one.
GAP = 4


def raised_in(lines: Sequence[Line]) -> list[Raised]:
    """All exceptions in the lines of one stream, in the order in which they end."""
    return _Reader(lines).run()


class _Reader:
    """Walks one stream once. ``at`` is the next line to look at."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self.lines = lines
        self.at = 0
        self.found: list[Raised] = []

    def run(self) -> list[Raised]:
        link: Link | None = None
        ignored, thread = False, None
        while self.at < len(self.lines):
            text = self.lines[self.at].text
            if CAUSE.search(text) or CONTEXT.search(text):
                link = "cause" if CAUSE.search(text) else "context"
                self.at += 1
            elif MEMBER.match(text):
                link = "group" if self.found and "Group" in self.found[-1].blocks[-1].type else link
                self.at += 1
            elif IGNORED.match(text):
                ignored = True
                self.at += 1
            elif FORWARD_CALL.search(text):
                self._skip_forward_call()
            elif named := THREAD.match(text):
                thread = named["thread"]
                self.at += 1
            else:
                blocks, origin = self._blocks()
                if blocks:
                    self._keep(blocks, origin, link, ignored, thread)
                    link, ignored, thread = None, False, None
        return self.found

    def _skip_forward_call(self) -> None:
        """Anomaly mode shows where the forward call was; these frames raised nothing."""
        self.at += 1
        while self.at < len(self.lines) and self.lines[self.at].text[:1].isspace():
            self.at += 1

    def _keep(self, blocks: list[Block], origin: Origin, link: Link | None, ignored: bool, thread: str | None) -> None:
        if link is not None and self.found and origin in ("traceback", "bare"):
            before = self.found.pop()
            *first, last = before.blocks
            if link == "group":
                blocks = [*first, *(each._replace(link="group") for each in blocks), last]
            else:
                blocks = [*first, last._replace(link=link), *blocks]
            ignored, thread = before.ignored, before.thread
        self.found.append(Raised(tuple(blocks), blocks[-1].at.stream, origin, ignored, thread))

    def _blocks(self) -> tuple[list[Block], Origin]:
        """The block that starts at this line, behind those that it wraps; none where no exception starts here."""
        line = self.lines[self.at]
        if HEADER.search(line.text):
            self.at += 1
            return self._traceback([line]), "traceback"
        if RICH_HEADER.search(line.text):
            return self._rich(), "traceback"
        if PIECE.match(line.text):
            return self._rich(EDGE), "traceback"
        if FATAL_FRAME.match(line.text) is None and FRAME.match(line.text):
            return self._traceback([]), "traceback"
        if found := FATAL.match(line.text):
            return [self._fatal(found["message"])], "fatal"
        if found := TERMINATE.search(line.text):
            return [self._terminate(found["type"] or "")], "terminate"
        if found := NAMED_EXCEPTION.match(line.text) or RECORDED.match(line.text):
            return self._exception(found["type"], found["message"] or "", [], [line]), "bare"
        self.at += 1
        return [], "bare"

    # ---------------------------------------------------------------------------------- Python tracebacks

    def _traceback(self, lines: list[Line]) -> list[Block]:
        frames: list[FrameLine] = []
        code_due = False
        while self.at < len(self.lines):
            line = self.lines[self.at]
            if frame := _frame(line):
                frames.append(frame)
                code_due = True
            elif arrow := ARROW.match(line.text):
                code_due = False
                if frames and not frames[-1].line:
                    frames[-1] = frames[-1]._replace(line=int(arrow["line"]))
            elif not line.text and self._goes_on():
                pass
            elif code_due and line.text and not NAMED_EXCEPTION.match(line.text) and not self._is_start(line):
                code_due = False
            elif line.text[:1].isspace() or REPEATED.match(line.text) or HIDDEN.match(line.text):
                pass
            else:
                break
            lines.append(line)
            self.at += 1
        if frames:
            self._skip_gap()
        found = EXCEPTION.match(self.lines[self.at].text) if self.at < len(self.lines) else None
        if found and frames and (found["message"] or "") == HEADER_TEXT:
            return self._wrapping(found["type"], frames, lines)
        if found is None or BAR.search(found[0]) or self._is_start(self.lines[self.at]) or self._stump():
            return [_block("", "", frames, lines)] if frames else []
        return self._exception(found["type"], found["message"] or "", frames, [*lines, self.lines[self.at]])

    def _goes_on(self) -> bool:
        """Does the traceback go on below an empty line?"""
        after = self._below_gap()
        return after is not None and bool(
            _frame(after) or ARROW.match(after.text) or HIDDEN.match(after.text) or after.text[0].isspace()
        )

    def _below_gap(self) -> Line | None:
        return next((line for line in self.lines[self.at : self.at + GAP] if line.text), None)

    def _skip_gap(self) -> None:
        """Notebooks, and pastes with an empty line behind each line, have one before the exception's own line."""
        after = self._below_gap()
        if after is not None and NAMED_EXCEPTION.match(after.text) and not self.lines[self.at].text:
            while self.lines[self.at] is not after:
                self.at += 1

    def _wrapping(self, type_: str, frames: list[FrameLine], lines: list[Line]) -> list[Block]:
        """The message is another process's traceback, whose header stands behind the name of the exception."""
        at = self.lines[self.at]
        self.at += 1
        inner = self._traceback([at])
        own = Block(type_, "", tuple(frames), at, (*lines, at), (at,), None)
        return [*(each._replace(link=each.link or "wrapped") for each in inner), own]

    def _stump(self) -> bool:
        return bool(STUMP.match(self.lines[self.at].text)) and not any(line.text for line in self.lines[self.at + 1 :])

    def _rich(self, edge: str = "") -> list[Block]:
        """Rich draws a box around the frames; the exception stands below it. A box without its top has edges only."""
        lines = [self.lines[self.at]]
        self.at += 1
        while self.at < len(self.lines) and len(lines) < RICH_LINES:
            line = self.lines[self.at]
            if edge not in line.text and RICH_END not in line.text:
                break
            lines.append(line)
            self.at += 1
            if RICH_END in line.text:
                break
        frames = frames_in(lines)
        named = EXCEPTION.match(self.lines[self.at].text) if self.at < len(self.lines) else None
        if named is None or RICH_END not in lines[-1].text:
            return [_block("", "", frames, lines)._replace(at=frames[-1].at)] if frames else []
        return self._exception(named["type"], named["message"] or "", frames, [*lines, self.lines[self.at]])

    def _exception(self, type_: str, message: str, frames: list[FrameLine], lines: list[Line]) -> list[Block]:
        """The exception's own line is the last of ``lines``; the message may go on, and may quote another traceback."""
        at = lines[-1]
        parts, said, inner = [message], [at], list[Block]()
        self.at += 1
        loose = 0
        while self.at < len(self.lines) and len(parts) < MESSAGE_LINES:
            line = self.lines[self.at]
            if _frame(line) and TASK.search(type_):
                inner += self._traceback([])
                lines = [*lines, *(each for block in inner for each in block.lines)]
                continue
            if WRAPPED.search(line.text) or (HEADER.search(line.text) and WRAPS_NEXT.search("\n".join(parts))):
                self.at += 1
                inner += self._quoted_chain(line)
                lines = [*lines, *(each for block in inner for each in block.lines)]
                continue
            if not self._continues(line, at, parts, loose):
                break
            loose += bool(line.text) and not line.text[0].isspace() and not TRAILER.match(line.text)
            parts.append(line.text)
            said.append(line)
            lines.append(line)
            self.at += 1
        message, spoken = _trimmed(parts, said)
        own = Block(type_, message, tuple(frames), at, tuple(lines), spoken, None)
        return [*(each._replace(link=each.link or "wrapped") for each in inner), own]

    def _quoted_chain(self, header: Line) -> list[Block]:
        """What a wrapper quotes may be a chain itself; its links stand between the tracebacks."""
        blocks = self._traceback([header])
        while True:
            ahead = self.at
            while ahead < len(self.lines) and not self.lines[ahead].text:
                ahead += 1
            text = self.lines[ahead].text if ahead < len(self.lines) else ""
            link: Link | None = "cause" if CAUSE.search(text) else "context" if CONTEXT.search(text) else None
            while link and ahead + 1 < len(self.lines) and not self.lines[ahead + 1].text:
                ahead += 1
            if link is None or ahead + 1 >= len(self.lines) or not HEADER.search(self.lines[ahead + 1].text):
                return blocks
            self.at = ahead + 2
            blocks = [*blocks[:-1], blocks[-1]._replace(link=link), *self._traceback([self.lines[ahead + 1]])]

    def _continues(self, line: Line, at: Line, parts: list[str], loose: int) -> bool:
        text = line.text
        if parts[-1].endswith("`") and parts[-1].count("`") % 2:
            return False  # Markdown's mark closes the piece of code.
        if len(parts) == 1 and parts[0].endswith(" raised:") and NAMED_EXCEPTION.match(text):
            return True  # A compiler's backend names what it raised itself.
        if self._is_start(line) or MEMBER.match(text) or BAR.search(text) or text.startswith(FENCES):
            return False
        if line.tags.time and not at.tags.time:
            return False
        if not text:
            return self._trailer_follows() or not "".join(parts).strip()
        if text[0].isspace() or TRAILER.match(text):
            return True
        if at.tags.rank is not None:
            return not NAMED_EXCEPTION.match(text)
        return loose < LOOSE_LINES and not LOG_LIKE.match(text) and not NAMED_EXCEPTION.match(text)

    def _is_start(self, line: Line) -> bool:
        text = line.text
        return bool(
            HEADER.search(text) or FATAL.match(text) or TERMINATE.search(text) or CAUSE.search(text)
            or CONTEXT.search(text) or IGNORED.match(text) or THREAD.match(text) or _frame(line)
        )  # fmt: skip

    def _trailer_follows(self) -> bool:
        for line in self.lines[self.at + 1 : self.at + 4]:
            if line.text:
                return bool(TRAILER.match(line.text))
        return False

    # ---------------------------------------------------------------------------------- deaths without a traceback

    def _fatal(self, message: str) -> Block:
        """faulthandler's report: the most recent call comes first, and only the current thread tells where it was."""
        head = self.lines[self.at]
        lines, frames, current = [head], list[FrameLine](), False
        self.at += 1
        while self.at < len(self.lines):
            line = self.lines[self.at]
            if found := FATAL_THREAD.match(line.text):
                current = found["current"] == "Current thread"
            elif found := FATAL_FRAME.match(line.text):
                if current:
                    frames.append(FrameLine(found["file"], int(found["line"]), found["function"], line))
            elif line.text and not line.text.startswith(("  ", "Python runtime state", "<Cannot", "Extension modules")):
                break
            lines.append(line)
            self.at += 1
        return Block("Fatal Python error", message.strip(), tuple(reversed(frames)), head, tuple(lines), (head,), None)

    def _terminate(self, type_: str) -> Block:
        head = self.lines[self.at]
        joined = WHAT_BEHIND.search(head.text)
        lines, parts = [head], [joined["message"]] if joined else list[str]()
        self.at += 1
        while self.at < len(self.lines) and len(parts) < MESSAGE_LINES:
            line = self.lines[self.at]
            if found := WHAT.match(line.text):
                parts.append(found["message"])
            elif not parts or self._is_start(line) or line.tags.time or not (line.text and self._below_what(line.text)):
                break
            else:
                parts.append(line.text)
            lines.append(line)
            self.at += 1
        return Block(type_ or head.text, "\n".join(parts).strip(), (), head, tuple(lines), tuple(lines), None)

    @staticmethod
    def _below_what(text: str) -> bool:
        return bool(TRAILER.match(text)) or not LOG_LIKE.match(text)


def _frame(line: Line) -> FrameLine | None:
    found = FRAME.match(line.text)
    if found:
        return FrameLine(found["file"], int(found["line"]), (found["function"] or "").rstrip(), line)
    if found := OLD_IPYTHON_FRAME.match(line.text):
        return FrameLine(found["file"], 0, found["function"].split("(", 1)[0], line)
    found = IPYTHON_FRAME.match(line.text)
    if found is None:
        return None
    if found["cell"]:
        return FrameLine(f"Cell In[{found['cell']}]", int(found["cl"]), "", line)
    return FrameLine(found["file"], int(found["line"]), "", line)


def _block(type_: str, message: str, frames: list[FrameLine], lines: list[Line]) -> Block:
    return Block(type_, message, tuple(frames), lines[-1], tuple(lines), (), None)


def _trimmed(parts: list[str], said: list[Line]) -> tuple[str, tuple[Line, ...]]:
    """A message without empty lines at its ends, and the lines that it stands in."""
    first = next((at for at, part in enumerate(parts) if part.strip()), 0)
    last = next((at for at in range(len(parts) - 1, -1, -1) if parts[at].strip()), 0)
    message = "\n".join(parts[first : last + 1]).strip()
    # The mark that closes a piece of code in Markdown is none of its words.
    return message[: len(message) - message.count("`") % 2 * message.endswith("`")], tuple(said[first : last + 1])
