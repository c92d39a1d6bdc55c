"""Every signature and prefix is proved by its own samples and near misses, read as a log would be."""

import ast
import re
import shutil
import subprocess
import time

import pytest

from firstfault import logs, patterns
from firstfault.diagnose.match import ENGINE_DECIDES, Occurrence, occurrences
from firstfault.library import Library, LibraryError, Prefix, Signature, fill, load
from firstfault.logs.lines import Cleaner
from firstfault.logs.source import from_text
from firstfault.signature_files import compile_library, pattern_faults

LIBRARY = load()
MATCHED = [each for each in LIBRARY.signatures.values() if each.id not in ENGINE_DECIDES]
PYTHON_PROGRAM = re.compile(r'python[\d.]*(?: -X \w+)* -c "((?:[^"\\]|\\.)*)"')
HOSTILE = ["a" * 36_000, "Error: " * 5_000, "1, " * 12_000, "[rank0]: " * 4_000, '"' * 36_000, " " * 36_000]


def found_in(text: str) -> list[Occurrence]:
    log = logs.read([from_text(text.strip("\n") + "\n", "sample")], LIBRARY.prefixes)
    return occurrences(log, LIBRARY)


@pytest.mark.parametrize("signature", MATCHED, ids=lambda each: each.id)
def test_no_wording_leaves_the_cause_without_words(signature: Signature) -> None:
    for entry in signature.matches:
        names = re.findall(r"\(\?P<(\w+)>", " ".join(filter(None, entry[1:5])))
        assert fill(signature.cause, dict.fromkeys(names, "x")).strip(), entry


@pytest.mark.parametrize("signature", MATCHED, ids=lambda each: each.id)
def test_each_sample_gives_its_class(signature: Signature) -> None:
    for sample in signature.samples:
        found = found_in(sample.text)
        own = [each for each in found if each.signature.id == signature.id]
        assert own, f"not found in: {sample.text}\nfound instead: {[each.signature.id for each in found]}"
        captures = {name: value for each in own for name, value in each.captures.items()}
        assert {**captures, **sample.captures} == captures


@pytest.mark.parametrize("signature", MATCHED, ids=lambda each: each.id)
def test_no_sample_gives_another_class_that_could_come_first(signature: Signature) -> None:
    siblings = {signature.id, *signature.narrows, *signature.related}
    for sample in signature.samples:
        others = {each.signature.id for each in found_in(sample.text) if each.signature.role != "collateral"}
        assert others <= siblings, sample.text


@pytest.mark.parametrize("signature", LIBRARY.signatures.values(), ids=lambda each: each.id)
def test_no_near_miss_gives_the_class(signature: Signature) -> None:
    for near_miss in signature.near_misses:
        found = {each.signature.id for each in found_in(near_miss.text)}
        assert signature.id not in found, near_miss.text
        if near_miss.is_ is not None:
            assert near_miss.is_ in found, near_miss.text


@pytest.mark.parametrize("signature", MATCHED, ids=lambda each: each.id)
def test_patterns_end_soon_on_hostile_lines(signature: Signature) -> None:
    """All patterns of a class together on all hostile lines take no longer than thousands of plain searches do."""
    wanted = [
        pattern
        for entry in signature.matches
        for pattern in (entry.message, entry.line, entry.text, entry.frame)
        if pattern is not None
    ]
    started = time.process_time()
    for text in HOSTILE:
        patterns.search("no such text 7f3a", text)
    baseline = time.process_time() - started
    started = time.process_time()
    for pattern in wanted:
        for text in HOSTILE:
            patterns.search(pattern, text)
    spent = time.process_time() - started
    assert spent < 200 * max(baseline, 0.0005) * max(len(wanted), 1)


@pytest.mark.parametrize("signature", LIBRARY.signatures.values(), ids=lambda each: each.id)
def test_words_need_only_what_the_patterns_can_capture(signature: Signature) -> None:
    """Every class has words to say even where no value at all was captured."""
    engine = {
        "rank": "3",
        "exception": "ValueError",
        "message": "boom",
        "file": "train.py",
        "line": "7",
        "function": "f",
    }
    row = {"exitcode": "1", "pid": "4242", "host": "node-1"}
    assert fill(signature.cause, {**engine, **row, **_all_captures(signature)}).strip()
    assert any(fill(fix, {**engine, **row, **_all_captures(signature)}) for fix in signature.fix)


@pytest.mark.skipif(shutil.which("bash") is None, reason="the snippets are for a POSIX shell")
@pytest.mark.parametrize("signature", LIBRARY.signatures.values(), ids=lambda each: each.id)
def test_commands_parse_as_printed(signature: Signature) -> None:
    """The shell reads every command, and Python every program handed to it with -c."""
    values = {"script": "train.py", "start": "python", **_all_captures(signature)}
    for command in filter(None, (signature.verify, *(each.how for each in signature.missing))):
        printed = fill(command, values)
        parsed = subprocess.run(["bash", "-n"], input=printed, text=True, capture_output=True, check=False)
        assert parsed.returncode == 0, parsed.stderr
        for program in PYTHON_PROGRAM.findall(printed):
            ast.parse(program.replace('\\"', '"'))


@pytest.mark.parametrize("signature", LIBRARY.signatures.values(), ids=lambda each: each.id)
def test_named_siblings_exist(signature: Signature) -> None:
    assert {*signature.narrows, *signature.related} <= set(LIBRARY.signatures)


def _all_captures(signature: Signature) -> dict[str, str]:
    names: set[str] = set()
    for entry in signature.matches:
        for pattern in (entry.message, entry.line, entry.text, entry.frame):
            names |= set(patterns.compiled(pattern).groupindex) if pattern else set()
    return dict.fromkeys(names, "7")


@pytest.mark.parametrize("prefix", LIBRARY.prefixes, ids=lambda each: each.id)
def test_prefixes(prefix: Prefix) -> None:
    for sample in prefix.samples:
        match = patterns.prefix_match(prefix.pattern, sample.text)
        assert match is not None and match.end() > 0, sample.text
        assert {**match.groupdict(), **sample.captures} == match.groupdict()
    for near_miss in prefix.near_misses:
        match = patterns.prefix_match(prefix.pattern, near_miss.text)
        assert match is None or match.end() == 0, near_miss.text


def test_prefixes_are_peeled_until_none_matches() -> None:
    cleaner = Cleaner(LIBRARY.prefixes)
    tags, text = cleaner.peel("trainer-1  | 2026-11-30T10:00:00.5Z [default1]:[rank5]: ValueError: boom")
    assert text == "ValueError: boom"
    assert (tags.rank, tags.local_rank, tags.time) == (5, 1, "2026-11-30T10:00:00.5Z")


def test_both_engines_give_the_same_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without ``regex`` the standard ``re`` serves; every sample must read the same."""
    pytest.importorskip("regex")
    texts = [sample.text for each in LIBRARY.signatures.values() for sample in each.samples]
    monkeypatch.setattr(patterns, "SHORT", 0)
    before = [_seen(text) for text in texts]
    patterns.compiled.cache_clear()
    monkeypatch.setattr(patterns, "_engine", lambda: re)
    after = [_seen(text) for text in texts]
    patterns.compiled.cache_clear()
    assert before == after


def _seen(text: str) -> list[tuple[str, dict[str, str]]]:
    return [(each.signature.id, each.captures) for each in found_in(text)]


def test_the_loader_refuses_a_file_without_a_near_miss(tmp_path) -> None:  # type: ignore[no-untyped-def]
    folder = tmp_path / "failures" / "memory"
    folder.mkdir(parents=True)
    (folder / "x.toml").write_text(
        'id = "x"\ntitle = "X"\ncategory = "memory"\nrole = "initiating"\nexplain = "x"\ncause = "x"\nfix = ["x"]\n'
        'limits = "x"\n[[match]]\nmessage = "boom"\nliteral = ["boom"]\n[[sample]]\ntext = "ValueError: boom"\n'
    )
    with pytest.raises(LibraryError, match=r"near_miss"):
        compile_library(str(tmp_path))


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("match = 3", "match"),
        ("title = 3", "title must be a text"),
        ('fix = "x"', "fix"),
        ("sample = [3]", "sample"),
        ('narrows = ["x", 3]', "narrows"),
    ],
)
def test_the_loader_names_the_file_and_the_key_of_a_wrong_shape(tmp_path, line: str, fault: str) -> None:  # type: ignore[no-untyped-def]
    folder = tmp_path / "failures" / "memory"
    folder.mkdir(parents=True)
    (folder / "x.toml").write_text(f'id = "x"\ncategory = "memory"\n{line}\n')
    with pytest.raises(LibraryError, match=rf"x\.toml: .*{fault}"):
        compile_library(str(tmp_path))


def test_an_editors_lock_file_is_no_signature(tmp_path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "failures").mkdir()
    (tmp_path / "failures" / ".#x.toml").symlink_to("nowhere")
    assert compile_library(str(tmp_path))["library.json"]["failures"] == []


@pytest.mark.parametrize(
    ("pattern", "fault"),
    [
        (".*Error", "leads with an unbounded repeat"),
        (r"(\w+\.)*Error", "repeats a repeat"),
        ("a.*b.*c", "more than one unbounded repeat"),
        ("(", "not a pattern"),
    ],
)
def test_the_loader_names_what_could_run_away(pattern: str, fault: str) -> None:
    assert any(fault in each for each in pattern_faults(pattern))


def test_bounded_patterns_pass() -> None:
    assert not list(
        pattern_faults(r"CUDA out of memory\. Tried to allocate (?P<wanted>[\d.]+ [KMG]i?B)[^\n]{0,200}free")
    )


def test_fill_drops_what_has_no_value() -> None:
    values = {"wanted": "2 GiB"}
    assert fill("It wanted {wanted}[[ of {total}]].", values) == "It wanted 2 GiB."
    assert fill("It wanted {wanted}. Rank {rank} asked.", values) == "It wanted 2 GiB."


def test_fill_reads_no_sentences_and_no_placeholders_in_values() -> None:
    values = {"message": "pair.cc:867] false. I stop at {step}"}
    assert fill("Go to {file}[[: {message}]]", values) == ""
    assert fill("It said {message}. Rank {rank} asked.", values) == "It said pair.cc:867] false. I stop at {step}."


def test_the_whole_library_loads() -> None:
    assert isinstance(LIBRARY, Library)
    assert len(LIBRARY.signatures) >= 40
