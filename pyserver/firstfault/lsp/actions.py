"""Quick fixes for the text as it stands: it is linted again, so that no edit was made for an older text."""

import re
import tokenize
from collections.abc import Iterator, Sequence

from lsprotocol import types

from firstfault.lint.rule import Finding, Fix
from firstfault.lsp import convert, linting
from firstfault.lsp.documents import Document
from firstfault.lsp.protocol import PROVE_FIX_COMMAND, FixOf
from firstfault.lsp.wire import Server
from firstfault.text import Edit, Position, Span, apply_edits

FIX_ALL = "source.fixAll.firstfault"
FIX_NOTEBOOK = f"notebook.{FIX_ALL}"  # asked for once for all cells
OPTIONS = types.CodeActionOptions(code_action_kinds=[types.CodeActionKind.QuickFix, FIX_ALL, FIX_NOTEBOOK])
_IGNORE = re.compile(r"#\s*firstfault:\s*ignore\[([^\]]*)\]")


def code_actions(ls: Server, params: types.CodeActionParams) -> list[types.CodeAction]:
    document = ls.documents.get(params.text_document.uri)
    if document is None:
        return []
    return [*_fix_all(ls, document, params.context), *_quick_fixes(ls, document, params)]


def _fix_all(ls: Server, document: Document, context: types.CodeActionContext) -> Iterator[types.CodeAction]:
    """Only where it is asked for by name: on save, or in the menu of source actions."""
    for kind in (FIX_ALL, FIX_NOTEBOOK):
        if any(f"{kind}.".startswith(f"{wanted}.") for wanted in context.only or ()):
            texts = linting.repaired(ls, document, whole_notebook=kind == FIX_NOTEBOOK)
            changed = [(found, text) for uri, text in texts.items() if (found := ls.documents.get(uri))]
            if changed:
                edits = [(each, convert.changes(each, text)) for each, text in changed]
                yield types.CodeAction("Apply all safe fixes", kind=kind, edit=_workspace_edit(ls, edits))


def _quick_fixes(ls: Server, document: Document, params: types.CodeActionParams) -> list[types.CodeAction]:
    if not _wants_quick_fixes(params.context):
        return []
    start, end = (document.offset(place) for place in (params.range.start, params.range.end))
    found = linting.findings(ls, document) or []
    return [
        action
        for finding in found
        if linting.touches(document, finding, start, end)
        for action in _actions(ls, document, finding, params.context)
    ]


def _wants_quick_fixes(context: types.CodeActionContext) -> bool:
    """Kinds are a tree: who asks for the empty kind asks for all, who asks for ``quickfix.x`` for none of ours."""
    return context.only is None or any(kind in ("", types.CodeActionKind.QuickFix) for kind in context.only)


def _actions(
    ls: Server, document: Document, finding: Finding, context: types.CodeActionContext
) -> Iterator[types.CodeAction]:
    mine = [each for each in context.diagnostics if _is_same(document, finding, each)]
    preferred = next((fix for fix in finding.fixes if fix.applicability == "safe"), None)
    for fix in finding.fixes:
        yield _action(ls, document, convert.title(fix), fix, mine, fix is preferred)
        if ls.proves_fixes and _can_run(ls, document, finding):
            yield _proof(document, finding, fix, mine)
    ignore = _ignore(ls, document, finding) if finding.url else None  # what is no rule is not ignored but mended
    if ignore is not None:
        yield _action(ls, document, ignore.title, ignore, mine, False)


def _is_same(document: Document, finding: Finding, diagnostic: types.Diagnostic) -> bool:
    return diagnostic.code == finding.code and diagnostic.range == document.range(finding.span)


def _action(
    ls: Server, document: Document, title: str, fix: Fix, mine: list[types.Diagnostic], preferred: bool
) -> types.CodeAction:
    return types.CodeAction(
        title=title,
        kind=types.CodeActionKind.QuickFix,
        diagnostics=mine or None,
        edit=_workspace_edit(ls, [(document, convert.text_edits(document, fix))]),
        is_preferred=preferred or None,
    )


def _can_run(ls: Server, document: Document, finding: Finding) -> bool:
    from firstfault.measuring import MEASURABLE

    is_script = convert.path_of(document.uri) is not None and ls.notebooks.of(document) is None
    return is_script and finding.code.startswith(MEASURABLE)


def _proof(document: Document, finding: Finding, fix: Fix, mine: list[types.Diagnostic]) -> types.CodeAction:
    """Offered, never run by itself: the client asks the user before anything runs."""
    title = f"Prove this fix on a run: {convert.title(fix)}"
    named = FixOf(
        uri=document.uri,
        version=document.version,
        code=finding.code,
        line=finding.span.start.line,
        title=convert.title(fix),
    )
    return types.CodeAction(
        title=title,
        kind=types.CodeActionKind.QuickFix,
        diagnostics=mine or None,
        command=types.Command(title=title, command=PROVE_FIX_COMMAND, arguments=[named]),
    )


def _workspace_edit(ls: Server, edits: Sequence[tuple[Document, list[types.TextEdit]]]) -> types.WorkspaceEdit:
    workspace = ls.client_capabilities.workspace
    capabilities = workspace.workspace_edit if workspace else None
    if capabilities is None or not capabilities.document_changes:
        return types.WorkspaceEdit(changes={document.uri: changes for document, changes in edits})
    # With the version the editor refuses the edit where the text has changed since.
    targets = [
        (types.OptionalVersionedTextDocumentIdentifier(uri=document.uri, version=document.version), changes)
        for document, changes in edits
    ]
    return types.WorkspaceEdit(
        document_changes=[types.TextDocumentEdit(text_document=target, edits=changes) for target, changes in targets]
    )


def _ignore(ls: Server, document: Document, finding: Finding) -> Fix | None:
    """The comment that silences the finding; None where none can stand (inside a string, behind a backslash)."""
    for line in sorted({finding.span.start.line, finding.span.end.line}):
        edit = _ignore_edit(document, finding.code, line)
        if _silences(ls, document, finding, edit):
            return Fix(f"Ignore {finding.code} on this line", "safe", (edit,))
    return None


def _silences(ls: Server, document: Document, finding: Finding, edit: Edit) -> bool:
    """Tried out rather than argued: the text still parses, the comment is one, and the finding is gone."""
    from firstfault.lint.notebook import masked
    from firstfault.lint.parse import syntax_error

    text = apply_edits(document.text, [edit])
    plain = masked(text) if ls.notebooks.of(document) is not None else text
    if syntax_error(plain) is not None or not _ends_in_comment(plain, edit.span.start.line):
        return False
    left = linting.lint_again(ls, document, text)
    return left is not None and all((each.code, each.span.start) != (finding.code, finding.span.start) for each in left)


def _ends_in_comment(text: str, line: int) -> bool:
    """Whether Python reads the mark as a comment, and not as a part of a string that goes on in the next line."""
    lines = (each + "\n" for each in re.split(r"\r\n|\n|\r", text))
    for token in tokenize.generate_tokens(lambda: next(lines, "")):
        if token.type == tokenize.COMMENT and token.start[0] == line:
            return True
        if token.start[0] > line:
            return False
    return False


def _ignore_edit(document: Document, code: str, number: int) -> Edit:
    line = document.line(number)
    present = _IGNORE.search(line)
    if present is not None and present[1].strip():
        inside = Position(number, present.end(1) + 1)
        return Edit(Span(inside, inside), f", {code}")
    blanks = Span(Position(number, len(line.rstrip()) + 1), Position(number, len(line) + 1))
    return Edit(blanks, f"  # firstfault: ignore[{code}]")
