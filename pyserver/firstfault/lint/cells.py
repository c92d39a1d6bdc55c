"""Findings of a notebook, which is linted as one text, told cell by cell: what an editor and a file can take."""

from firstfault.lint.notebook import Notebook
from firstfault.lint.rule import Finding, Fix, Related
from firstfault.lint.script import Script
from firstfault.text import Edit, Position, Span


def in_cells(script: Script, finding: Finding) -> Finding:
    """A finding with its lines counted within its cell. A fix that touches another cell is left out: cells run in an
    order that the text does not tell."""
    notebook = script.notebook
    assert notebook
    cell, start = notebook.position(finding.span.start)
    end_cell, end = notebook.position(finding.span.end)
    span = Span(start, end if end_cell == cell else Position(start.line, start.column + 1))
    fixes = tuple(fix for each in finding.fixes if (fix := _fix_in_cell(script, notebook, each, cell)))
    related = tuple(_related_in_cell(script, notebook, each) for each in finding.related)
    return finding._replace(span=span, cell=cell, fixes=fixes, related=related)


def _fix_in_cell(script: Script, notebook: Notebook, fix: Fix, cell: int) -> Fix | None:
    edits = []
    for edit in fix.edits:
        mine = _edit_in_cell(script, notebook, edit, cell)
        if mine is None:
            return None
        edits.append(mine)
    return fix._replace(edits=tuple(edits))


def _edit_in_cell(script: Script, notebook: Notebook, edit: Edit, cell: int) -> Edit | None:
    if notebook.place(edit.span.end.line)[0] != cell:
        edit = _before_the_end(script, edit)
    places = [_place_in_cell(notebook, script, each, cell) for each in edit.span]
    return Edit(Span(places[0], places[1]), edit.text) if places[0] and places[1] else None


def _before_the_end(script: Script, edit: Edit) -> Edit:
    """An edit up to the beginning of a line, said up to the end of the line before: that may be a cell's last one."""
    start, end = edit.span
    if end.column != 1 or end.line == 1 or not (edit.text.endswith("\n") or edit.text == ""):
        return edit
    text = edit.text.removesuffix("\n")
    last = _end_of(script, end.line - 1)
    if start.column == 1 and start.line > 1:
        return Edit(Span(_end_of(script, start.line - 1), last), f"\n{text}" if edit.text else "")
    return Edit(Span(start, last), text)


def _end_of(script: Script, line: int) -> Position:
    return Position(line, len(script.line_text(line)) + 1)


def _place_in_cell(notebook: Notebook, script: Script, position: Position, cell: int) -> Position | None:
    """None outside of the cell, and inside of a line that only stands for a magic."""
    found, place = notebook.position(position)
    if found != cell:
        return None
    length = notebook.magics.get(position.line)
    if length is None or position.column == 1:
        return place
    return Position(place.line, length + 1) if position == _end_of(script, position.line) else None


def _related_in_cell(script: Script, notebook: Notebook, related: Related) -> Related:
    if related.file != script.path:
        return related
    cell, line = notebook.place(related.line)
    return related._replace(line=line, cell=cell)
