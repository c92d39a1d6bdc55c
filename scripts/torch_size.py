"""Says in one line how much pip is about to download for torch, before it does: it can be 0.2 or 3 GB."""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import unquote, urlparse
from urllib.request import Request, urlopen

PYPROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"


def main() -> None:
    pinned = re.search(r'"(torch==[^"]+)"', PYPROJECT.read_text(encoding="utf-8"))
    if pinned is None:
        raise SystemExit("pyproject.toml pins no torch")
    print(_message(pinned[1]), flush=True)


def _message(requirement: str) -> str:
    try:
        packages = _plan(requirement)
        if not packages:
            return f"{requirement} is installed already."
        megabytes = sum(_size(url) for url in packages) / 1e6
    except (OSError, ValueError, subprocess.SubprocessError):
        return f"Installing {requirement} for the tests: about 200 MB for a CPU build, about 3 GB for a CUDA build."
    build = f"{len(packages)} packages, {_build(packages)}"
    return f"Installing {requirement} for the tests: {megabytes:,.0f} MB to download ({build})."


def _plan(requirement: str) -> list[str]:
    """Where pip would take torch and what it needs from; nothing is installed, only metadata is read."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--report", str(report), requirement]
        subprocess.run(command, check=True, capture_output=True, timeout=300)
        return [each["download_info"]["url"] for each in json.loads(report.read_bytes())["install"]]


def _size(url: str) -> int:
    parts = urlparse(url)
    if parts.scheme == "file":
        return Path(unquote(parts.path)).stat().st_size
    with urlopen(Request(url, method="HEAD"), timeout=30) as answer:
        return int(answer.headers["Content-Length"])


def _build(packages: list[str]) -> str:
    return "a CUDA build" if any("nvidia_" in url or "nvidia-" in url for url in packages) else "a CPU build"


if __name__ == "__main__":
    main()
