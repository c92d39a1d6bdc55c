"""What a rule is: a function from the facts of one script to findings, in a module of its own.

A rule's module lies in ``lint/rules/``. Its docstring is its page, its file name (with dashes) its name, and
``@rule("GA101")`` gives its code. No list names it: ``all_rules`` looks into the folder.
"""

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Literal, NamedTuple

from firstfault.text import Edit, Span

if TYPE_CHECKING:
    from firstfault.lint.script import Script
    from firstfault.lint.workspace import Workspace

Severity = Literal["error", "warning", "hint"]
Applicability = Literal["safe", "unsafe", "partial"]
State = Literal["suspected", "proven", "refuted"]
DOCS_URL = "https://github.com/firstfault/firstfault/blob/main/docs/rules/{name}.md"


class Related(NamedTuple):
    """A place that the finding rests on: the accumulation setting, the BatchNorm constructor, the collator."""

    file: str
    line: int
    message: str
    cell: int | None = None  # in a notebook: the line counts within this cell


class Fix(NamedTuple):
    title: str
    applicability: Applicability
    edits: tuple[Edit, ...]


class Finding(NamedTuple):
    code: str
    name: str
    file: str
    span: Span
    severity: Severity
    message: str
    url: str
    related: tuple[Related, ...] = ()
    fixes: tuple[Fix, ...] = ()
    cell: int | None = None
    state: State = "suspected"


class Hit(NamedTuple):
    """What a rule yields; code, name, file and link are added around it."""

    span: Span
    severity: Severity
    message: str
    related: tuple[Related, ...] = ()
    fixes: tuple[Fix, ...] = ()


Check = Callable[["Script", "Workspace"], Iterable[Hit]]


class Rule(NamedTuple):
    code: str
    name: str
    page: str
    check: Check

    @property
    def url(self) -> str:
        return DOCS_URL.format(name=self.name)

    def findings(self, script: "Script", workspace: "Workspace") -> Iterator[Finding]:
        for hit in self.check(script, workspace):
            yield Finding(
                self.code, self.name, script.path, hit.span, hit.severity, hit.message, self.url, hit.related, hit.fixes
            )


def rule(code: str) -> Callable[[Check], Check]:
    """Mark the function of a rule's module that finds the fault."""

    def mark(check: Check) -> Check:
        check.rule_code = code  # type: ignore[attr-defined]
        return check

    return mark


@cache
def all_rules() -> tuple[Rule, ...]:
    """Every rule of the folder, by code. Raises TypeError for a module without page or exactly one ``@rule``."""
    from firstfault.lint import rules

    found = [_load(module.name) for module in pkgutil.iter_modules(rules.__path__)]
    return tuple(sorted(found, key=lambda each: each.code))


def _load(module_name: str) -> Rule:
    module = importlib.import_module(f"firstfault.lint.rules.{module_name}")
    checks = [each for each in vars(module).values() if hasattr(each, "rule_code")]
    if len(checks) != 1 or not module.__doc__:
        raise TypeError(f"lint/rules/{module_name}.py needs a docstring and exactly one @rule")
    return Rule(checks[0].rule_code, module_name.replace("_", "-"), module.__doc__, checks[0])
