"""Measures what a user waits for, each beside its baseline in the same run: start, keystroke, diagnosis.

    python scripts/bench.py [repetitions]

The two of a pair take turns, so that both see the same load; what counts is the ratio of their medians.
"""

import ast
import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

FIRSTFAULT = [sys.executable, "-m", "firstfault"]
# As an editor starts it: compiled files are kept, and nothing of the caller's Python settings gets in the way.
ENVIRONMENT = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
LINES = 2_000
# The parts of VS Code's capabilities that cost a server time: long lists, nested objects.
CAPABILITIES: dict[str, Any] = {
    "workspace": {
        "applyEdit": True,
        "workspaceEdit": {"documentChanges": True, "resourceOperations": ["create", "rename", "delete"]},
        "configuration": True,
        "didChangeConfiguration": {"dynamicRegistration": True},
        "didChangeWatchedFiles": {"dynamicRegistration": True, "relativePatternSupport": True},
        "symbol": {"symbolKind": {"valueSet": list(range(1, 27))}, "tagSupport": {"valueSet": [1]}},
        "workspaceFolders": True,
        "diagnostics": {"refreshSupport": True},
    },
    "textDocument": {
        "publishDiagnostics": {"relatedInformation": True, "versionSupport": True, "tagSupport": {"valueSet": [1, 2]}},
        "synchronization": {"dynamicRegistration": True, "willSave": True, "willSaveWaitUntil": True, "didSave": True},
        "completion": {
            "completionItem": {"snippetSupport": True, "documentationFormat": ["markdown", "plaintext"]},
            "completionItemKind": {"valueSet": list(range(1, 26))},
        },
        "hover": {"dynamicRegistration": True, "contentFormat": ["markdown", "plaintext"]},
        "codeAction": {
            "isPreferredSupport": True,
            "dataSupport": True,
            "resolveSupport": {"properties": ["edit"]},
            "codeActionLiteralSupport": {"codeActionKind": {"valueSet": ["", "quickfix", "refactor", "source"]}},
        },
        "diagnostic": {"dynamicRegistration": True, "relatedDocumentSupport": False},
    },
    "window": {"showMessage": {"messageActionItem": {"additionalPropertiesSupport": True}}, "workDoneProgress": True},
    "general": {"positionEncodings": ["utf-16"], "markdown": {"parser": "marked", "version": "1.1.0"}},
}


class Comparison(NamedTuple):
    what: str
    baseline: str
    goal: float
    measured: list[float]
    reference: list[float]
    quantile: float = 0.5  # of the measured; the reference is always its median

    @property
    def figure(self) -> float:
        return sorted(self.measured)[min(int(len(self.measured) * self.quantile), len(self.measured) - 1)]

    @property
    def ratio(self) -> float:
        return self.figure / statistics.median(self.reference)


def main(repetitions: int = 15) -> int:
    comparisons = [
        start(repetitions),
        *keystroke(repetitions * 4),
        *(whole_lint(lines, repetitions) for lines in (LINES, 5 * LINES)),
        loading(repetitions),
        diagnosis(repetitions),
    ]
    print(f"{'what':<56}{'took':>10}   {'baseline':<32}{'median':>10}{'ratio':>8}{'goal':>8}")
    for each in comparisons:
        reference = statistics.median(each.reference) * 1e3
        print(
            f"{each.what:<56}{each.figure * 1e3:>7.1f} ms   {each.baseline:<32}{reference:>7.1f} ms"
            f"{each.ratio:>7.2f}x{'<= ' + format(each.goal, 'g') + 'x':>8}"
        )
    print(f"\n{_load()}: other work shares this machine, so compare ratios, not milliseconds.")
    return 0


def start(repetitions: int) -> Comparison:
    def serve() -> float:
        began = time.perf_counter()
        server = Server()
        server.initialize()
        took = time.perf_counter() - began
        server.close()
        return took

    code = "import pygls.lsp.server"
    pair = _taking_turns(serve, lambda: _run([sys.executable, "-c", code]), repetitions)
    return Comparison("server start to initialize response", f"python -c '{code}'", 1.2, *pair)


def keystroke(repetitions: int) -> list[Comparison]:
    """A line typed letter by letter in the middle of the script; each time until the diagnostics are here."""
    text = training_script(LINES)
    baseline = "ast.parse of the same text"
    whole = _typing(text, "# a remark that grows word by word ", repetitions)
    torn = _typing(text, "result = compute(model(words[0], mask=None", repetitions)  # no prefix of it but a name parses
    return [
        Comparison(f"keystroke to diagnostics, {LINES:,} lines, median", baseline, 5, *whole),
        Comparison("  the slowest of twenty (p95)", baseline, 6, *whole, quantile=0.95),
        Comparison("  where the line must be repaired, p95", baseline, 15, *torn, quantile=0.95),
    ]


def _typing(text: str, line: str, repetitions: int) -> tuple[list[float], list[float]]:
    server = Server()
    server.initialize()
    lines = text.splitlines()
    middle = next(n for n in range(len(lines) // 2, len(lines)) if lines[n].lstrip().startswith("return"))
    indent = " " * (len(lines[middle]) - len(lines[middle].lstrip()))
    server.open("\n".join([*lines[:middle], indent, *lines[middle:], ""]))
    versions = iter(range(2, 1_000_000))
    typed = ""

    def type_a_letter() -> float:
        nonlocal typed
        typed = typed + line[len(typed)] if len(typed) < len(line) else line[0]
        began = time.perf_counter()
        items = server.line_is(next(versions), middle, indent + typed)
        took = time.perf_counter() - began
        assert items, "the script holds a fault that must be found"
        return took

    pair = _taking_turns(type_a_letter, lambda: _parsing(text), repetitions)
    server.close()
    return pair


def whole_lint(lines: int, repetitions: int) -> Comparison:
    """The lint alone, without a server: what `check` does with a script."""
    from firstfault.lint import Workspace, lint

    text, workspace = training_script(lines), Workspace()
    gc.set_threshold(100_000, 20, 100)  # as `check` does: many small values and few cycles

    def check() -> float:
        began = time.perf_counter()
        assert lint(text, "train.py", workspace), "the script holds a fault that must be found"
        return time.perf_counter() - began

    pair = _taking_turns(check, lambda: _parsing(text), repetitions)
    return Comparison(f"lint of {lines:,} lines", "ast.parse of the same text", 4, *pair)


def _parsing(text: str) -> float:
    began = time.perf_counter()
    ast.parse(text)
    return time.perf_counter() - began


def loading(repetitions: int) -> Comparison:
    """The library of failures in a process of its own, from the compiled file: the call alone, without imports."""
    code = "import time; from firstfault import library; began = time.perf_counter(); found = library.load()"
    code += "; print(time.perf_counter() - began, len(found.signatures))"
    counts = []

    def load() -> float:
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, env=ENVIRONMENT)
        took, count = done.stdout.split()
        counts.append(int(count))
        return float(took)

    pair = _taking_turns(load, lambda: _run([sys.executable, "-c", "pass"]), repetitions)
    return Comparison(f"loading {counts[0]} failures", "python -c pass", 1, *pair)


def diagnosis(repetitions: int) -> Comparison:
    text = paste()
    command = [*FIRSTFAULT, "diagnose", "-"]
    pair = _taking_turns(
        lambda: _run(command, text, status=1), lambda: _run([sys.executable, "-c", "pass"]), repetitions
    )
    return Comparison(f"firstfault diagnose, {text.count(chr(10))} lines", "python -c pass", 4, *pair)


# ------------------------------------------------------------------------------------------ measuring


def _taking_turns(
    one: Callable[[], float], other: Callable[[], float], repetitions: int
) -> tuple[list[float], list[float]]:
    for _ in range(2):  # Compiled files and caches are warm from here on.
        one(), other()
    pairs = [(one(), other()) for _ in range(repetitions)]
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def _run(command: list[str], text: str = "", status: int = 0) -> float:
    began = time.perf_counter()
    done = subprocess.run(command, input=text.encode(), capture_output=True, env=ENVIRONMENT)
    took = time.perf_counter() - began
    if done.returncode != status:
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr.decode()}")
    return took


def _load() -> str:
    cores = f"{os.cpu_count()} cores"
    return f"Load average {os.getloadavg()[0]:.1f} on {cores}" if hasattr(os, "getloadavg") else f"On {cores}"


class Server:
    """A server process and the few messages that are measured."""

    uri = "untitled:train.py"

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [*FIRSTFAULT, "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=ENVIRONMENT
        )
        self.last = 0

    def initialize(self) -> None:
        self.request("initialize", {"processId": os.getpid(), "rootUri": None, "capabilities": CAPABILITIES})

    def open(self, text: str) -> None:
        self.send({"method": "initialized", "params": {}})
        item = {"uri": self.uri, "languageId": "python", "version": 1, "text": text}
        self.send({"method": "textDocument/didOpen", "params": {"textDocument": item}})

    def line_is(self, version: int, line: int, text: str) -> list[Any]:
        """A line gets a new text, as an editor tells it; the diagnostics that then hold."""
        start, end = {"line": line, "character": 0}, {"line": line, "character": 1_000_000}
        change = {"range": {"start": start, "end": end}, "text": text}
        document = {"uri": self.uri, "version": version}
        self.send(
            {"method": "textDocument/didChange", "params": {"textDocument": document, "contentChanges": [change]}}
        )
        items: list[Any] = self.request("textDocument/diagnostic", {"textDocument": {"uri": self.uri}})["items"]
        return items

    def request(self, method: str, params: Any) -> Any:
        self.last += 1
        self.send({"id": self.last, "method": method, "params": params})
        while True:
            message = self._message()
            if "method" not in message and message["id"] == self.last:
                return message["result"]
            if "id" in message:
                settings = message["method"] == "workspace/configuration"
                self.send({"id": message["id"], "result": [None] if settings else None})

    def send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self.process.stdin.flush()

    def close(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait()

    def _message(self) -> Any:
        assert self.process.stdout
        header = self.process.stdout.readline()
        if not header:
            raise SystemExit("The server ended.")
        while self.process.stdout.readline().strip():
            pass
        return json.loads(self.process.stdout.read(int(header.split(b":")[1])))


# ------------------------------------------------------------------------------------------ what is measured on


def training_script(lines: int) -> str:
    """A training script of the given length: imports, blocks of a model, data sets, metrics, and a faulty loop."""
    parts = [HEAD]
    count, number = HEAD.count("\n") + LOOP.count("\n"), 0
    while count < lines:
        part = PARTS[number % len(PARTS)].replace("NUMBER", str(number))
        parts.append(part)
        count += part.count("\n")
        number += 1
    return "".join([*parts, LOOP])


def paste() -> str:
    """What one copies from a terminal: some steps, then a traceback."""
    steps = "".join(f"epoch 0 step {n:>3} loss {3.2 - n / 40:.4f} lr 3.0e-04 tokens/s 18{n:02}\n" for n in range(34))
    return steps + TRACEBACK


HEAD = '''"""Trains a labeller of word sequences; everything is in one file, as in a first version."""

import argparse
import json
import math
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

PADDING = -100

'''
BLOCK = '''
class BlockNUMBER(nn.Module):
    """Attention over the words and a feed-forward part, each with its own norm."""

    def __init__(self, width: int = 256, heads: int = 4, dropout: float = 0.1):
        super().__init__()
        self.norm_in = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, heads, dropout=dropout, batch_first=True)
        self.norm_out = nn.LayerNorm(width)
        self.inner = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.dropout = nn.Dropout(dropout)

    def forward(self, words, mask=None):
        normed = self.norm_in(words)
        mixed, _ = self.attention(normed, normed, normed, key_padding_mask=mask, need_weights=False)
        words = words + self.dropout(mixed)
        return words + self.dropout(self.inner(self.norm_out(words)))  # the residual path stays clean

'''
DATA = """
@dataclass
class OptionsNUMBER:
    folder: Path
    limit: int | None = None
    lower: bool = True


class SentencesNUMBER(Dataset):
    def __init__(self, options: OptionsNUMBER):
        self.rows = []
        for file in sorted(options.folder.glob("*.jsonl")):
            with file.open(encoding="utf-8") as lines:
                for line in lines:
                    row = json.loads(line)
                    if not row.get("words") or len(row["words"]) != len(row["tags"]):
                        continue
                    self.rows.append((row["words"], row["tags"]))
                    if options.limit is not None and len(self.rows) >= options.limit:
                        return

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        words, tags = self.rows[index]
        return torch.tensor(words), torch.tensor(tags)

"""
METRIC = '''
def measure_NUMBER(model, loader, device, top=5):
    """Accuracy over the words that have a tag, and the mean rank of the right one."""
    model.eval()
    right, seen, ranks = 0, 0, 0.0
    with torch.no_grad():
        for words, tags in loader:
            scores = model(words.to(device))
            kept = tags.to(device) != PADDING
            best = scores.argmax(-1)
            right += int((best[kept] == tags.to(device)[kept]).sum())
            seen += int(kept.sum())
            order = scores[kept].argsort(-1, descending=True)[:, :top]
            ranks += float((order == tags.to(device)[kept].unsqueeze(-1)).float().argmax(-1).sum())
    model.train()
    if seen == 0:
        return {"accuracy": math.nan, "rank": math.nan, "seen": 0}
    return {"accuracy": right / seen, "rank": ranks / seen, "seen": seen}

'''
PARTS = [BLOCK, DATA, METRIC]
LOOP = """
def collate(rows):
    words = nn.utils.rnn.pad_sequence([row[0] for row in rows], batch_first=True)
    tags = nn.utils.rnn.pad_sequence([row[1] for row in rows], batch_first=True, padding_value=PADDING)
    return words, tags


def train(model, options, device, epochs=3, accumulation_steps=8):
    loader = DataLoader(Sentences1(options), batch_size=8, shuffle=True, collate_fn=collate)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    for epoch in range(epochs):
        optimizer.zero_grad()
        for step, (words, tags) in enumerate(loader):
            scores = model(words.to(device))
            loss = F.cross_entropy(scores.flatten(0, 1), tags.to(device).flatten(), ignore_index=PADDING)
            loss = loss / accumulation_steps
            loss.backward()
            if (step + 1) % accumulation_steps == 0:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
        print(f"epoch {epoch}: {measure_2(model, loader, device)}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    train(Block0(), Options1(parser.parse_args().folder), torch.device("cpu"))
"""
TRACEBACK = """\
Traceback (most recent call last):
  File "/home/ada/labeller/train.py", line 212, in <module>
    train(model, options, torch.device("cuda"))
  File "/home/ada/labeller/train.py", line 188, in train
    scores = model(words.to(device))
             ^^^^^^^^^^^^^^^^^^^^^^^
  File "/home/ada/env/lib/python3.11/site-packages/torch/nn/modules/module.py", line 1773, in _wrapped_call_impl
    return self._call_impl(*args, **kwargs)
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/home/ada/env/lib/python3.11/site-packages/torch/nn/modules/module.py", line 1784, in _call_impl
    return forward_call(*args, **kwargs)
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/home/ada/labeller/train.py", line 41, in forward
    return self.head(self.blocks(words))
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
RuntimeError: mat1 and mat2 shapes cannot be multiplied (64x256 and 128x12)
"""


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
