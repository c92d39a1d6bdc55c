"""The page of a failure or a rule, as Markdown: for the terminal, the hover and the docs."""

from firstfault.library import Signature, load


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


def failure_page(signature: Signature) -> str:
    parts = [f"# {signature.title} ({signature.id})", signature.explain.strip()]
    parts.append("## Fix\n\n" + "\n".join(f"{number}. {_plain(fix)}" for number, fix in enumerate(signature.fix, 1)))
    if signature.verify:
        parts.append(f"## Verify\n\n```sh\n{_plain(signature.verify).strip()}\n```")
    parts.append(f"## What a match does not establish\n\n{signature.limits.strip()}")
    if signature.missing:
        facts = "\n".join(f"- {_plain(each.fact)}\n  `{_plain(each.how)}`" for each in signature.missing)
        parts.append(f"## Facts that decide\n\n{facts}")
    samples = "\n\n".join(_sample(sample.text, sample.version) for sample in signature.samples)
    parts.append(f"## As printed\n\n{samples}")
    if signature.related:
        parts.append("## Related\n\n" + ", ".join(f"`{each}`" for each in signature.related))
    if signature.references:
        parts.append("## References\n\n" + "\n".join(f"- {each}" for each in signature.references))
    return "\n\n".join(parts) + "\n"


def _sample(text: str, version: str | None) -> str:
    head = f"{version}:\n\n" if version else ""
    return f"{head}```text\n{text.strip(chr(10))}\n```"


def _plain(template: str) -> str:
    """The template for a page: the names of the values stand in angle brackets, optional parts without brackets."""
    import re

    text = re.sub(r"\[\[(.+?)\]\]", r"\1", template, flags=re.DOTALL)
    return re.sub(r"\{(\w+)\}", r"<\1>", text)
