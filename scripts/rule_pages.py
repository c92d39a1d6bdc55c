"""The pages of the lint rules: each is the docstring of its module."""

import re

from firstfault.lint.rule import Rule, all_rules

NOTE = "<!-- Printed from {source} by scripts/generate.py: change it there. -->"


def pages() -> dict[str, str]:
    rules = all_rules()
    return {
        **{f"docs/rules/{rule.name}.md": _page(rule) for rule in rules},
        "docs/rules/README.md": _index(rules),
    }


def summary(rule: Rule) -> str:
    """The first sentence of the page, up to its colon."""
    paragraphs = (" ".join(each.split()) for each in rule.page.strip().split("\n\n"))
    first = next(each for each in paragraphs if not each.startswith("#"))
    return re.split(r"[.:] ", first)[0].rstrip(".") + "."


def _page(rule: Rule) -> str:
    source = f"pyserver/firstfault/lint/rules/{rule.name.replace('-', '_')}.py"
    text = rule.page.strip()
    title = "" if text.startswith("# ") else f"# {rule.code} {rule.name}\n\n"
    return f"{NOTE.format(source=source)}\n{title}{text}\n"


def _index(rules: tuple[Rule, ...]) -> str:
    rows = [f"| [{rule.code}]({rule.name}.md) | `{rule.name}` | {summary(rule)} |" for rule in rules]
    return "\n".join(
        [
            NOTE.format(source="pyserver/firstfault/lint/rules"),
            "# Rules",
            "",
            "`firstfault explain CODE` prints the same page in a terminal.",
            "",
            "| code | name | finds |",
            "| --- | --- | --- |",
            *rows,
            "",
        ]
    )
