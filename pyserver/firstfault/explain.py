"""The page of a failure or a rule, as Markdown: for the terminal, the hover and the docs."""

from firstfault import patterns
from firstfault.library import Signature, load

FOUND = 12


def page(name: str) -> str | None:
    """The page of a failure's id, a rule's code or a rule's name, whatever the case; None where there is none."""
    signature = load().signatures.get(name.lower())
    if signature is not None:
        return failure_page(signature)
    from firstfault.lint.rule import all_rules

    for rule in all_rules():
        if name.upper() == rule.code or name.lower() == rule.name:
            return f"# {rule.name} ({rule.code})\n\n{rule.page.strip()}\n"
    return None


def closest(name: str) -> list[str]:
    """Ids and names that look like ``name``."""
    from difflib import get_close_matches

    from firstfault.lint.rule import all_rules

    names = [*load().signatures, *(each.name for each in all_rules()), *(each.code for each in all_rules())]
    return get_close_matches(name, names, n=3, cutoff=0.6)


def search(text: str) -> list[tuple[str, str]]:
    """Names and titles of the pages for an error's text or for some words, the surest first.

    Surest is a failure whose patterns match the text; then one that prints the text; then pages with all its words.
    """
    from firstfault.lint.rule import all_rules

    words = text.lower().split()
    ranked: dict[str, tuple[int, str]] = {}
    for signature in load().signatures.values():
        if _matches(signature, text):
            ranked[signature.id] = (0, signature.title)
        elif any(text.lower() in sample.text.lower() for sample in signature.samples):
            ranked[signature.id] = (1, signature.title)
        elif words and _holds(words, f"{signature.id} {signature.title} {signature.explain}"):
            ranked[signature.id] = (2, signature.title)
    for rule in all_rules():
        if words and _holds(words, f"{rule.code} {rule.name} {rule.page}"):
            ranked[rule.code] = (2, rule.name)
    return [(name, title) for name, (_, title) in sorted(ranked.items(), key=lambda each: (each[1][0], each[0]))][
        :FOUND
    ]


def catalogue() -> str:
    """All failures by category and all rules, a line each."""
    from firstfault.lint.rule import all_rules

    by_category: dict[str, list[str]] = {}
    for signature in sorted(load().signatures.values(), key=lambda each: (each.category, each.id)):
        by_category.setdefault(signature.category, []).append(f"  {signature.id:<32} {signature.title}")
    by_category["rules"] = [f"  {rule.code:<32} {rule.name}" for rule in all_rules()]
    return "\n\n".join("\n".join([category, *lines]) for category, lines in by_category.items()) + "\n"


def _matches(signature: Signature, text: str) -> bool:
    wanted = [each for entry in signature.matches for each in (entry.message, entry.line, entry.text) if each]
    held = any(literal in text for entry in signature.matches for literal in entry.literal)
    return held and any(patterns.search(pattern, text) for pattern in wanted)


def _holds(words: list[str], page_text: str) -> bool:
    return all(word in page_text.lower() for word in words)


def failure_page(signature: Signature) -> str:
    parts = [f"# {signature.title} ({signature.id})", _prose(signature.explain)]
    parts.append("## Fix\n\n" + "\n".join(f"{number}. {_prose(fix)}" for number, fix in enumerate(signature.fix, 1)))
    if signature.verify:
        parts.append(f"## Verify\n\n```sh\n{_plain(signature.verify)}\n```")
    parts.append(f"## What a match does not establish\n\n{_prose(signature.limits)}")
    if signature.missing:
        facts = "\n".join(f"- {_prose(each.fact)}\n  `{_plain(each.how)}`" for each in signature.missing)
        parts.append(f"## Facts that decide\n\n{facts}")
    samples = "\n\n".join(_sample(sample.text, sample.version) for sample in signature.samples)
    parts.append(f"## As printed\n\n{samples}")
    if signature.related:
        parts.append("## Related\n\n" + ", ".join(f"`{each}`" for each in signature.related))
    if signature.references:
        parts.append("## References\n\n" + "\n".join(f"- {each}" for each in signature.references))
    return "\n\n".join(parts) + "\n"


def block(text: str) -> str:
    """A fenced block that nothing in the text can end; what cannot be seen (escapes, NULs) is written out."""
    import re

    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    visible = "".join(each if each in "\n\t" or each.isprintable() else f"\\x{ord(each):02x}" for each in text)
    return f"{fence}text\n{visible.strip(chr(10))}\n{fence}"


def _sample(text: str, version: str | None) -> str:
    head = f"{'torch ' if version[0].isdigit() else ''}{version}:\n\n" if version else ""
    return head + block(text)


def without_html(text: str) -> str:
    """A word in angle brackets would be read as HTML and not be shown; a lone bracket stays."""
    import re

    return re.sub(r"<(?=[A-Za-z/!?])", "&lt;", text)


def _prose(template: str) -> str:
    """For Markdown: the names of the values in italics, in code spans in angle brackets."""
    import re

    parts = re.split(r"(`[^`]*`)", _without_brackets(template))
    return "".join(
        _named(part, "<", ">") if part.startswith("`") else _named(without_html(part), "*", "*") for part in parts
    )


def _plain(template: str) -> str:
    """For code: the names of the values stand in angle brackets."""
    return _named(_without_brackets(template), "<", ">")


def _named(text: str, before: str, after: str) -> str:
    import re

    return re.sub(r"\{(\w+)\}", rf"{before}\1{after}", text)


def _without_brackets(template: str) -> str:
    import re

    return re.sub(r"\[\[(.+?)\]\]", r"\1", template.strip(), flags=re.DOTALL)
