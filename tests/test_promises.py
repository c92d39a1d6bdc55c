"""What the product promises, held: nothing leaves the machine, nothing heavy is loaded, nothing depends on luck."""

import ast
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "pyserver" / "firstfault"
LOGS, SCRIPT = ROOT / "examples" / "logs", ROOT / "examples" / "train.py"

NETWORK = {"socket", "ssl", "urllib.request", "http", "requests", "httpx", "aiohttp", "ftplib", "smtplib", "xmlrpc"}
UNSAFE = {"pickle", "cPickle", "_pickle", "marshal", "shelve", "dill", "joblib", "cloudpickle"}
HEAVY = {"pygls", "lsprotocol", "cattrs", "attr", "attrs", "torch", "numpy", "asyncio"}


def python(code, *arguments):
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8", cwd=ROOT)


# ------------------------------------------------------------------------------------------ nothing leaves the machine

FORBID_NETWORK = """
import sys
def forbid(event, arguments):
    if event in ("socket.connect", "socket.bind", "socket.getaddrinfo", "socket.sendto", "urllib.Request"):
        sys.stderr.write(f"network: {event} {arguments}")
        sys.stderr.flush()
        __import__("os")._exit(99)
sys.addaudithook(forbid)
"""


@pytest.mark.parametrize("module", sorted(PACKAGE.glob("**/*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_module_imports_the_network_or_unpickles(module):
    imported = imported_modules(ast.parse(module.read_text(encoding="utf-8")))
    # Flight Recorder dumps are pickles; that one room reads them with an unpickler that refuses every class.
    forbidden = NETWORK | (UNSAFE - {"pickle"} if module.name == "recorder.py" else UNSAFE)
    assert not [name for name in imported for each in forbidden if f"{name}.".startswith(f"{each}.")]


def imported_modules(tree):
    """Modules by their full name; from a package the names, too: ``from urllib import request``."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


@pytest.mark.parametrize("arguments", [("diagnose", LOGS), ("check", SCRIPT)], ids=["diagnose", "check"])
def test_a_command_opens_no_connection(arguments):
    run = "from firstfault.cli import main; raise SystemExit(main(sys.argv[1:]))"
    answer = python(FORBID_NETWORK + run, *arguments)
    assert answer.returncode == 1, answer.stderr
    assert answer.stdout and not answer.stderr


def test_the_audit_would_notice_a_connection():
    answer = python(FORBID_NETWORK + "import socket; socket.socket().connect(('127.0.0.1', 9))")
    assert answer.returncode == 99


def test_the_extension_speaks_to_no_host():
    network = re.compile(
        r"""from ["'](?:node:)?(?:https?|net|tls|dgram|http2)["']"""
        r"""|\bfetch\(|XMLHttpRequest|WebSocket|createTelemetryLogger"""
    )
    sources = [*(ROOT / "extension" / "src").glob("**/*.ts"), *(ROOT / "extension" / "src").glob("**/*.js")]
    assert sources
    assert not [str(path) for path in sources if network.search(path.read_text(encoding="utf-8"))]


# ------------------------------------------------------------------------------------------ nothing heavy is loaded


def test_a_diagnosis_loads_nothing_heavy():
    code = """
import sys
from firstfault.cli import main
status = main(["diagnose", sys.argv[1]])
sys.stdout.flush()
print("\\nMODULES", *{name.split(".")[0] for name in sys.modules})
"""
    answer = python(code, LOGS)
    assert "MODULES" in answer.stdout, answer.stderr
    loaded = set(answer.stdout.split("MODULES")[1].split())
    assert "firstfault" in loaded
    assert not loaded & HEAVY


def test_imports_keep_to_their_direction():
    lint_imports = shutil.which("lint-imports", path=str(Path(sys.executable).parent))
    assert lint_imports, "import-linter is not installed beside this Python"
    answer = subprocess.run([lint_imports, "--no-cache"], capture_output=True, text=True, cwd=ROOT)
    assert answer.returncode == 0, answer.stdout


# ------------------------------------------------------------------------------------------ the same answers everywhere

ANSWERS = """
import json, sys
if sys.argv[1] == "without":
    sys.modules["regex"] = None
from firstfault import library
from firstfault.diagnose import diagnose
from firstfault.diagnose.report import to_json
from firstfault.logs import read
from firstfault.logs.source import from_text

known = library.load()
answers = {}
for signature in known.signatures.values():
    for number, example in enumerate([*signature.samples, *signature.near_misses]):
        report = to_json(diagnose(read([from_text(example.text, "sample")], known.prefixes), known))
        del report["read"]["seconds"]
        answers[f"{signature.id} {number}"] = report
print(json.dumps(answers))
"""


def test_the_standard_re_gives_the_same_answers_as_regex():
    pytest.importorskip("regex")
    with_regex, without = (python(ANSWERS, each) for each in ("with", "without"))
    assert without.returncode == 0, without.stderr
    answers = json.loads(with_regex.stdout)
    assert answers
    assert json.loads(without.stdout) == answers


# ------------------------------------------------------------------------------------------ the repository


def test_no_tracked_file_names_a_private_path_or_a_registry():
    names = ["/work/" + "main", "/work/" + "shared", "/work/" + ".library", "bash" + "_jobs", "py" + "pi.org",
             "python" + "hosted", "registry." + "npmjs", "registry." + "yarnpkg", "download." + "pytorch"]  # fmt: skip
    found = [
        f"{path}: {name}" for path in tracked_files() for name in names if name.encode() in (ROOT / path).read_bytes()
    ]
    assert not found


def tracked_files():
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listed = subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT, text=True).split("\0")
    return [path for path in listed if path and (ROOT / path).is_file()]


def test_the_example_logs_point_at_lines_of_the_example_script():
    script = (ROOT / "examples" / "ddp_fault.py").read_text(encoding="utf-8").splitlines()
    frame = re.compile(r'File "[^"]*/ddp_fault\.py", line (\d+), in .*\n(?:\[\w+\]:)?(?:\[rank\d\]:)?\s*(.+)')
    texts = [(ROOT / "examples" / "run.log"), *LOGS.glob("**/*.log")]
    frames = [match for text in texts for match in frame.findall(text.read_text(encoding="utf-8"))]
    assert frames
    assert all(script[int(line) - 1].strip() == source for line, source in frames)
