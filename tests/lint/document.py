"""A rule's test document: headings say the behaviour, fenced blocks are scripts.

```python                 a script; `# error`, `# warning` or `# hint` ends a line where a finding starts
```python fixed           the script before it, after its first fix (`fixed=2`: its second)
```python file=data.py    another file of the workspace, for the scripts of the same section
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

_FENCE = re.compile(r"^```python([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)
_MARK = re.compile(r"[ \t]*# (error|warning|hint)$", re.MULTILINE)


@dataclass
class Case:
    heading: str
    marked: str
    files: dict[str, str] = field(default_factory=dict)
    fixed: dict[int, str] = field(default_factory=dict)  # number of the fix -> the script after it

    @property
    def source(self) -> str:
        return _MARK.sub("", self.marked)

    @property
    def expected(self) -> list[tuple[int, str]]:
        marks = enumerate(self.marked.splitlines(), start=1)
        return [(number, mark[1]) for number, line in marks if (mark := _MARK.search(line))]


def read_document(path: Path) -> list[Case]:
    return [case for section in _sections(path.read_text(encoding="utf-8")) for case in _cases(*section)]


def example(page: str, heading: str) -> str | None:
    """The first script under a heading of a rule's page."""
    for title, body in _sections(page):
        if title == heading and (block := _FENCE.search(body)):
            return block[2]
    return None


def _sections(text: str) -> list[tuple[str, str]]:
    outside = _FENCE.sub(lambda block: "\n" * block[0].count("\n"), text)
    heads = [(match[1], outside.count("\n", 0, match.start())) for match in _HEADING.finditer(outside)]
    lines = text.split("\n")
    ends = [line for _, line in heads[1:]] + [len(lines)]
    return [(title, "\n".join(lines[line:end])) for (title, line), end in zip(heads, ends, strict=True)]


def _cases(heading: str, body: str) -> list[Case]:
    cases: list[Case] = []
    files: dict[str, str] = {}
    for block in _FENCE.finditer(body):
        kind, text = block[1].strip(), block[2]
        if kind.startswith("file="):
            files[kind.removeprefix("file=")] = text
        elif kind.startswith("fixed"):
            cases[-1].fixed[int(kind.partition("=")[2] or 1)] = text
        elif not kind:
            cases.append(Case(heading, text, files))
        else:
            raise ValueError(f"unknown kind of block {kind!r} under {heading!r}")
    return cases
