"""The pages of the failures and of the log prefixes: each is printed from its TOML file."""

import re
from itertools import groupby

from firstfault.explain import block, failure_page, without_html
from firstfault.library import Library, NearMiss, Signature, load
from rule_pages import NOTE


def pages() -> dict[str, str]:
    library = load()
    signatures = sorted(library.signatures.values(), key=lambda each: (each.category, each.id))
    return {
        **{f"docs/failures/{each.id}.md": _page(each) for each in signatures},
        "docs/failures/README.md": _index(signatures),
        "docs/prefixes.md": _prefixes(library),
        "docs/README.md": _contents(library),
    }


# ------------------------------------------------------------------------------------------ one failure


def _page(failure: Signature) -> str:
    """The page that the terminal and the editor show, and below it what must not match."""
    source = f"signatures/failures/{failure.category}/{failure.id}.toml"
    near_misses = "\n\n".join(map(_near_miss, failure.near_misses))
    return f"{NOTE.format(source=source)}\n{failure_page(failure).strip()}\n\n## Looks alike\n\n{near_misses}\n"


def _near_miss(near: NearMiss) -> str:
    really = f" It is [{near.is_}]({near.is_}.md)." if near.is_ else ""
    return f"{block(near.text)}\n\nNot this one: {_escape(near.why).rstrip('.')}.{really}"


# ------------------------------------------------------------------------------------------ lists


def _index(signatures: list[Signature]) -> str:
    samples = sum(len(each.samples) for each in signatures)
    near = sum(len(each.near_misses) for each in signatures)
    parts = [
        f"{NOTE.format(source='signatures/failures')}\n# Failures",
        f"{len(signatures)} failures, held by {samples} samples that must match and {near} near misses that must not.",
    ]
    for category, members in groupby(signatures, key=lambda each: each.category):
        parts.append(f"## {category}\n\n{_table(list(members))}")
    return "\n\n".join(parts) + "\n"


def _table(members: list[Signature]) -> str:
    rows = [
        f"| [{each.id}]({each.id}.md) | {_cell(each.title)} | {each.role} | {len(each.samples)} "
        f"| {len(each.near_misses)} |"
        for each in members
    ]
    return "\n".join(["| id | title | role | samples | near misses |", "| --- | --- | --- | --- | --- |", *rows])


def _prefixes(library: Library) -> str:
    rows = [
        f"| `{each.id}` | {_cell(each.title)} | {', '.join(sorted(re.compile(each.pattern).groupindex)) or 'nothing'} "
        f"| {_cell(each.limits)} |"
        for each in library.prefixes
    ]
    return "\n".join(
        [
            NOTE.format(source="signatures/prefixes"),
            "# Log prefixes",
            "",
            "What launchers and loggers put before a line, in the order in which they are tried.",
            "",
            "| id | title | tells | limits |",
            "| --- | --- | --- | --- |",
            *rows,
            "",
        ]
    )


def _contents(library: Library) -> str:
    return "\n".join(
        [
            NOTE.format(source="the library"),
            "# Firstfault's pages",
            "",
            "- [Rules](rules/README.md): what `firstfault check` finds in a script.",
            "- [The check in a project](ci.md): settings, comments, hooks, workflows.",
            "- [A probe](probe.md): what `firstfault prove` runs.",
            "- [The monitor](monitor.md): what a training script imports.",
            f"- [Failures](failures/README.md): the {len(library.signatures)} that `firstfault diagnose` names.",
            f"- [Log prefixes](prefixes.md): the {len(library.prefixes)} that are read and taken off.",
            "- [Architecture](../ARCHITECTURE.md) and [how to add a rule, a failure or a prefix](../CONTRIBUTING.md).",
            "",
        ]
    )


# ------------------------------------------------------------------------------------------ Markdown


def _escape(text: str) -> str:
    """Angle brackets would be read as HTML, except inside of code."""
    pieces = re.split(r"(`[^`]*`)", text)
    return "".join(each if each.startswith("`") else without_html(each) for each in pieces)


def _cell(text: str) -> str:
    return _escape(" ".join(text.split())).replace("|", "\\|")
