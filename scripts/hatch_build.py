"""Compiles signatures/ into the wheel as firstfault/signatures/*.json; an editable install reads the TOML."""

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "pyserver"))  # The package is not installed where it is being built.

from firstfault.library import to_text  # noqa: E402
from firstfault.signature_files import compile_library  # noqa: E402


class SignatureHook(BuildHookInterface[Any]):
    folder: str | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        self.folder = tempfile.mkdtemp()
        for name, plain in compile_library(str(ROOT / "signatures")).items():
            compiled = Path(self.folder) / name
            compiled.write_text(to_text(plain), encoding="utf-8")
            build_data["force_include"][str(compiled)] = f"firstfault/signatures/{name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if self.folder is not None:
            shutil.rmtree(self.folder)
