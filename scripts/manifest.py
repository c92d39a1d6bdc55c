"""The part of package.json that is printed: the rules, as choices of the setting that switches rules off."""

import json
import re

from firstfault.lint.rule import all_rules
from rule_pages import summary

SETTING = "firstfault.check.disabledRules"
# The items of the setting up to the end of its two lists; the lists hold no bracket inside of a string.
_CHOICES = re.compile(
    r'(?P<head>"' + re.escape(SETTING) + r'": \{.*?"items": \{\s*"type": "string",)'
    r'(?P<gap>\s*)"enum": \[[^\]]*\],\s*"(?:markdownE|e)numDescriptions": \[[^\]]*\]',
    re.DOTALL,
)


def with_rules(text: str) -> str:
    """package.json with the codes and summaries of today's rules. Raises ValueError where the setting is not there."""
    found = _CHOICES.search(text)
    if found is None:
        raise ValueError(f"package.json: {SETTING} needs items with type, enum and enumDescriptions, in this order")
    rules = all_rules()
    lists = {
        "enum": [rule.code for rule in rules],
        "enumDescriptions": [f"{rule.name}: {summary(rule)}" for rule in rules],
    }
    indent = found["gap"].split("\n")[-1]
    printed = ",".join(f'{found["gap"]}"{key}": {_list(key, values, indent)}' for key, values in lists.items())
    return text[: found.start()] + found["head"] + printed + text[found.end() :]


def _list(key: str, values: list[str], indent: str) -> str:
    """As the formatter of the extension's sources prints it: on one line where it fits."""
    items = [json.dumps(value.replace("[", "(").replace("]", ")"), ensure_ascii=False) for value in values]
    line = f"[{', '.join(items)}]"
    if len(f'{indent}"{key}": {line},') <= 120:
        return line
    return "[" + ",".join(f"\n{indent}  {item}" for item in items) + f"\n{indent}]"
