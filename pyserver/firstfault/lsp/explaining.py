"""The hover over a finding, and ``firstfault/explain``: both answer with a page."""

from typing import Any

from lsprotocol import types
from pygls.exceptions import JsonRpcInvalidParams

from firstfault.lsp import linting, pages
from firstfault.lsp.protocol import ExplainResult
from firstfault.lsp.wire import RequestFailed, Server


def explain(ls: Server, params: Any) -> ExplainResult:
    name = params.get("id") if isinstance(params, dict) else None
    if not isinstance(name, str):
        raise JsonRpcInvalidParams("firstfault/explain needs {id}.")
    page = pages.page(name)
    if page is None:
        raise RequestFailed(f"Firstfault knows no rule and no failure named {name}.")
    return {"markdown": page}


def hover(ls: Server, params: types.HoverParams) -> types.Hover | None:
    document = ls.documents.get(params.text_document.uri)
    if document is None:
        return None
    at = document.offset(params.position)
    for finding in linting.findings(ls, document) or []:
        page = pages.page(finding.code)
        if page is not None and linting.touches(document, finding, at, at):
            markdown = types.MarkupContent(kind=types.MarkupKind.Markdown, value=page)
            return types.Hover(contents=markdown, range=document.range(finding.span))
    return None
