"""What measurements said of findings, kept for the very text that they were measured on.

While the text is unchanged a finding is *proven*, with the number in its message, or it is *refuted* and goes. Another
text is another loop: its findings are suspected again. Changed back, the text is the one that was measured.
"""

import os
from collections.abc import Iterable
from hashlib import blake2b
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from firstfault.lint.config import Config
    from firstfault.lint.rule import Finding
    from firstfault.prove.render import Judged

_MANY = 64  # scripts; the oldest is forgotten


class _Kept(NamedTuple):
    content: bytes
    verdicts: "dict[tuple[str, int], Judged]"  # by code and line


class Verdicts:
    """By path; of each script the last measurement."""

    def __init__(self) -> None:
        self.revision = 0  # changes whenever something is kept
        self._kept: dict[str, _Kept] = {}

    def keep(self, path: str, text: str, judged: "Iterable[Judged]") -> None:
        mine = {
            (each.code, each.line): each
            for each in judged
            if each.suspected and each.file and each.line and _real(each.file) == _real(path)
        }
        self._kept.pop(_real(path), None)
        self._kept[_real(path)] = _Kept(content(text), mine)
        if len(self._kept) > _MANY:
            del self._kept[next(iter(self._kept))]
        self.revision += 1

    def told(self, path: str, text: str, findings: "list[Finding]", config: "Config") -> "list[Finding]":
        """The findings of a text, with what was measured on it."""
        kept = self._kept.get(_real(path)) if self._kept else None
        if kept is None or kept.content != content(text):
            return findings
        told = [_told(each, kept.verdicts.get((each.code, each.span.start.line)), config) for each in findings]
        return [each for each in told if each.state != "refuted"]


def _told(finding: "Finding", judged: "Judged | None", config: "Config") -> "Finding":
    """A severity that the user has set for the rule stays."""
    if judged is None or judged.state == "not measured":
        return finding
    if judged.state == "refuted":
        return finding._replace(state="refuted")
    message = f"{judged.message}\n{finding.message}"
    return config.graded(finding._replace(state="proven", severity="error", message=message))


def content(text: str) -> bytes:
    """The same for a file and for the editor's text of it: line ends and the mark at the beginning do not count."""
    plain = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    return blake2b(plain.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _real(path: str) -> str:
    return os.path.normcase(os.path.realpath(path))
