"""The hover over a finding, and ``firstfault/explain``: both answer with a page."""

import re
from typing import Any

from lsprotocol import types
from pygls.exceptions import JsonRpcInvalidParams

from firstfault import explain as explanation
from firstfault.library import LibraryError
from firstfault.lint.rule import Finding, all_rules
from firstfault.lsp import linting
from firstfault.lsp.protocol import ExplainResult
from firstfault.lsp.wire import RequestFailed, Server


def explain(_: Server, params: Any) -> ExplainResult:
    name = params.get("id") if isinstance(params, dict) else None
    if not isinstance(name, str):
        raise JsonRpcInvalidParams("firstfault/explain needs {id}.")
    try:
        page = explanation.page(name)
    except LibraryError as error:
        raise RequestFailed(str(error)) from None
    if page is None:
        near = explanation.closest(name)
        hint = f" Did you mean {', '.join(near)}?" if near else ""
        raise RequestFailed(f"There is no failure or rule {name}.{hint}")
    return {"markdown": page}


def hover(ls: Server, params: types.HoverParams) -> types.Hover | None:
    document = ls.documents.get(params.text_document.uri)
    if document is None:
        return None
    at = document.offset(params.position)
    for finding in linting.findings(ls, document) or []:
        if finding.url and linting.touches(document, finding, at, at):  # what is no rule has no page
            markdown = types.MarkupContent(kind=types.MarkupKind.Markdown, value=_page(finding))
            return types.Hover(contents=markdown, range=document.range(finding.span))
    return None


def _page(finding: Finding) -> str:
    """The rule's page without a title, its headings small: they would shout in a hover. The gist comes first."""
    page = next(rule.page.strip() for rule in all_rules() if rule.code == finding.code)
    if page.startswith("# "):
        page = page.partition("\n")[2].strip()
    first, _, rest = re.sub(r"^## ", "#### ", page, flags=re.MULTILINE).partition("\n\n")
    return f"{first}\n\n[{finding.code} {finding.name}]({finding.url})\n\n{rest}\n"
