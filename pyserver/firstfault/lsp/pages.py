"""The page of a rule or of a failure in Markdown, its short answer first. Knows nothing of the protocol."""

import re
from collections.abc import Iterator

from firstfault import library
from firstfault.library import Signature


def page(name: str) -> str | None:
    """The page of a rule (by code or name) or of a failure (by id); None where nothing has that name."""
    return _rule_page(name) or _failure_page(name)


def _rule_page(name: str) -> str | None:
    from firstfault.lint.rule import all_rules

    wanted = name.strip().lower()
    for rule in all_rules():
        if wanted in (rule.code.lower(), rule.name):
            first, _, rest = rule.page.strip().partition("\n\n")
            return f"{first}\n\n**{rule.code}** `{rule.name}` ([page]({rule.url}))\n\n{rest}".rstrip() + "\n"
    return None


def _failure_page(name: str) -> str | None:
    signature = library.load().signatures.get(name.strip().lower())
    return "\n\n".join(_failure_parts(signature)) + "\n" if signature is not None else None


def _failure_parts(signature: Signature) -> Iterator[str]:
    yield f"# {signature.title}"
    yield signature.explain.strip()
    yield f"**{signature.id}** ({signature.category}, {_ROLES[signature.role]})"
    yield "## What to do\n\n" + "\n".join(f"{number}. {_plain(fix)}" for number, fix in enumerate(signature.fix, 1))
    if signature.verify:
        yield f"## How to see that it worked\n\n```sh\n{_plain(signature.verify)}\n```"
    if signature.missing:
        yield "## What the text does not tell\n\n" + "\n".join(
            f"- {_plain(each.fact)}: `{_plain(each.how)}`" for each in signature.missing
        )
    yield f"## Limits\n\n{signature.limits.strip()}"
    if signature.references:
        yield "## References\n\n" + "\n".join(f"- {each}" for each in signature.references)


_ROLES = {
    "initiating": "starts a failure",
    "either": "starts a failure or follows from one",
    "collateral": "follows from another failure",
    "silent": "raises no error",
}


def _plain(template: str) -> str:
    """The text without the marks of what a match fills in: optional parts go, captured values keep their names."""
    text = re.sub(r"\[\[.+?\]\]", "", template, flags=re.DOTALL)
    return re.sub(r"\{(\w+)\}", r"<\1>", text).strip()
