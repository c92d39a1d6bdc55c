"""The pages of the failures and of the log prefixes: each is printed from its TOML file."""

import re
from itertools import groupby

from firstfault.library import Library, NearMiss, Sample, Signature, load
from firstfault.lsp.pages import page
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
    """The page that the editor shows, and below it the texts that hold the signature to it."""
    source = f"signatures/failures/{failure.category}/{failure.id}.toml"
    parts = [
        f"{NOTE.format(source=source)}\n# {_escape(failure.title)}",
        (page(failure.id) or "").strip(),
        "## Looks like\n\n" + "\n\n".join(map(_sample, failure.samples)),
        "## Looks alike\n\n" + "\n\n".join(map(_near_miss, failure.near_misses)),
        *_related(failure),
    ]
    return "\n\n".join(parts) + "\n"


def _sample(sample: Sample) -> str:
    version = [f"torch {sample.version}:"] if sample.version else []
    values = ", ".join(f"{name} = `{value}`" for name, value in sample.captures.items())
    return "\n\n".join([*version, _block(sample.text), *([f"Read from it: {values}."] if values else [])])


def _near_miss(near: NearMiss) -> str:
    really = f" It is [{near.is_}]({near.is_}.md)." if near.is_ else ""
    return f"{_block(near.text)}\n\nNot this one: {_escape(near.why).rstrip('.')}.{really}"


def _related(failure: Signature) -> list[str]:
    links = [f"- [{each}]({each}.md)" for each in dict.fromkeys([*failure.narrows, *failure.related])]
    return ["## Related failures\n\n" + "\n".join(links)] if links else []


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
    return "".join(each if each.startswith("`") else each.replace("<", "&lt;") for each in pieces)


def _cell(text: str) -> str:
    return _escape(" ".join(text.split())).replace("|", "\\|")


def _block(text: str) -> str:
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    visible = "".join(each if each in "\n\t" or each.isprintable() else f"\\x{ord(each):02x}" for each in text)
    return f"{fence}text\n{visible.strip(chr(10))}\n{fence}"
