"""Between the protocol's shapes and ours: URIs and paths, findings and diagnostics, edits."""

import os
import re
from collections.abc import Callable
from difflib import SequenceMatcher
from urllib.parse import SplitResult, quote, unquote, urlsplit

from lsprotocol import types

from firstfault.lint.rule import Finding, Fix, Related, Severity
from firstfault.lsp.documents import Document
from firstfault.lsp.protocol import SOURCE, UNUSED_IGNORE

# A hint becomes Information: editors draw the protocol's own Hint as three dots that nobody sees and leave it out of
# the list of problems. An advice that cannot be seen cannot be taken.
_SEVERITY: dict[Severity, types.DiagnosticSeverity] = {
    "error": types.DiagnosticSeverity.Error,
    "warning": types.DiagnosticSeverity.Warning,
    "hint": types.DiagnosticSeverity.Information,
}
_DRIVE = re.compile(r"/[A-Za-z]:")
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\n|\r)|[^\r\n]+")
_WORDS = {"safe": "", "partial": "partial fix", "unsafe": "unsafe fix"}


def path_of(uri: str) -> str | None:
    """The path of a ``file:`` URI, None for any other; percent-decoded, drive letters and shares included."""
    parts = _parts(uri)
    if parts is None or parts.scheme != "file":
        return None
    path = unquote(parts.path)
    if _DRIVE.match(path):
        path = path[1].lower() + path[2:]
    elif parts.netloc and parts.netloc != "localhost":
        path = f"//{unquote(parts.netloc)}{path}"
    return path.replace("/", "\\") if os.name == "nt" else path


def scheme_of(uri: str) -> str:
    parts = _parts(uri)
    return parts.scheme if parts else ""


def name_of(uri: str) -> str:
    """What stands for the path in a URI that is none of a file: ``Untitled-1``."""
    parts = _parts(uri)
    return unquote(parts.path).strip("/") if parts else ""


def uri_of(path: str) -> str:
    path = path.replace("\\", "/") if os.name == "nt" or re.match(r"[A-Za-z]:\\", path) else path
    if path.startswith("//"):
        return "file:" + quote(path)
    return "file://" + quote(path if path.startswith("/") else f"/{path}")


DocumentOf = Callable[[int | None], Document]  # of a cell of the same notebook


def diagnostic(document: Document, finding: Finding, cells: DocumentOf) -> types.Diagnostic:
    return types.Diagnostic(
        range=document.range(finding.span),
        message=f"Proven: {finding.message}" if finding.state == "proven" else finding.message,
        severity=_SEVERITY[finding.severity],
        code=finding.code,
        code_description=types.CodeDescription(href=finding.url) if finding.url else None,
        source=SOURCE,
        related_information=[_related(cells(each.cell), finding, each) for each in finding.related] or None,
        tags=[types.DiagnosticTag.Unnecessary] if finding.code == UNUSED_IGNORE else None,
    )


def title(fix: Fix) -> str:
    """The fix's title; one that does not settle the matter, or may change more than it should, says so."""
    word = _WORDS[fix.applicability]
    return fix.title if not word or word.split()[0] in fix.title.lower() else f"{fix.title} ({word})"


def text_edits(document: Document, fix: Fix) -> list[types.TextEdit]:
    """The fix's edits, with the line ends that the document has."""
    return [
        types.TextEdit(range=document.range(edit.span), new_text=_with_eol(edit.text, document.eol))
        for edit in fix.edits
    ]


def changes(document: Document, text: str) -> list[types.TextEdit]:
    """The edits that lead from a document to another text, line by line, so that the cursor stays where it is."""
    before, after = _LINE.findall(document.text), _LINE.findall(text)
    found = []
    for kind, start, end, first, last in SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if kind != "equal":
            corners = (document.place(sum(map(len, before[:each]))) for each in (start, end))
            place = types.Range(*(document.position(each) for each in corners))
            found.append(types.TextEdit(range=place, new_text="".join(after[first:last])))
    return found


def _parts(uri: str) -> SplitResult | None:
    try:
        return urlsplit(uri)
    except ValueError:  # Such as a bracket that opens an IPv6 address and never closes it.
        return None


def _with_eol(text: str, eol: str) -> str:
    return re.sub(r"\r\n|\n|\r", eol, text)


def _related(document: Document, finding: Finding, related: Related) -> types.DiagnosticRelatedInformation:
    own = related.file == finding.file
    line = types.Position(line=max(related.line, 1) - 1, character=0)
    place = document.line_range(related.line) if own else types.Range(start=line, end=line)
    location = types.Location(uri=document.uri if own else uri_of(related.file), range=place)
    return types.DiagnosticRelatedInformation(location=location, message=related.message)
