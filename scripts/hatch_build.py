"""Compiles signatures/ into the wheel as firstfault/signatures/library.json; an editable install reads the TOML."""

import importlib.util
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).resolve().parent.parent


class SignatureHook(BuildHookInterface[Any]):
    folder: str | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        self.folder = tempfile.mkdtemp()
        compiled = Path(self.folder) / "library.json"
        compiled.write_text(json.dumps(_library().compile_library(str(ROOT / "signatures"))), encoding="utf-8")
        build_data["force_include"][str(compiled)] = "firstfault/signatures/library.json"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if self.folder is not None:
            shutil.rmtree(self.folder)


def _library() -> Any:
    path = ROOT / "pyserver" / "firstfault" / "library.py"
    spec = importlib.util.spec_from_file_location("firstfault_library", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
