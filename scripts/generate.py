"""Prints what is printed from the source: the pages of docs/, the extension's protocol.ts, the rules in package.json.

`python scripts/generate.py` writes the files; with `--check` it only compares, and fails where a file is stale.
"""

import sys
from pathlib import Path

import failure_pages
import manifest
import protocol_ts
import rule_pages

ROOT = Path(__file__).resolve().parent.parent
COMMAND = "make docs"
GENERATED_FOLDERS = ("docs/rules", "docs/failures")


def main(arguments: list[str]) -> int:
    wanted = printed()
    stale = [path for path, text in wanted.items() if _current(path) != text]
    orphans = sorted(_existing() - wanted.keys())
    if "--check" in arguments:
        return _report(stale, orphans)
    for path in stale:
        (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / path).write_text(wanted[path], encoding="utf-8", newline="\n")
    for path in orphans:
        (ROOT / path).unlink()
    print(f"{len(wanted)} files are printed from the source; {len(stale)} written, {len(orphans)} removed.")
    return 0


def printed() -> dict[str, str]:
    """Every generated file, by its path in the repository."""
    return {
        **rule_pages.pages(),
        **failure_pages.pages(),
        "extension/src/protocol.ts": protocol_ts.module(),
        "package.json": manifest.with_rules((ROOT / "package.json").read_text(encoding="utf-8")),
    }


def _current(path: str) -> str | None:
    file = ROOT / path
    return file.read_text(encoding="utf-8") if file.is_file() else None


def _existing() -> set[str]:
    """Pages that lie in the generated folders: one whose source is gone must go, too."""
    return {
        path.relative_to(ROOT).as_posix() for folder in GENERATED_FOLDERS for path in (ROOT / folder).glob("**/*.md")
    }


def _report(stale: list[str], orphans: list[str]) -> int:
    for path in stale:
        print(f"{path} is stale")
    for path in orphans:
        print(f"{path} has no source any more")
    if not stale and not orphans:
        return 0
    print(f"Run: {COMMAND}")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
