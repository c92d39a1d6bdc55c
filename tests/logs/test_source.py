"""Bad input: any encoding is read, what is no text is refused in a sentence, and nothing is held whole."""

import gzip
from pathlib import Path

import pytest

from firstfault import logs
from firstfault.library import load
from firstfault.logs import scan
from firstfault.logs.log import Log
from firstfault.logs.source import Unreadable, from_paths

TEXT = "step 1 loss 0.5\nValueError: naïve café\n"


def read(path: Path) -> Log:
    return logs.read(from_paths([str(path)]), load().prefixes)


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_two_bytes_a_character_without_their_mark(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "run.log").write_bytes(TEXT.encode(encoding))
    assert [line.text for line in read(tmp_path / "run.log").lines if line.text] == TEXT.splitlines()


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_encodings(tmp_path: Path, encoding: str) -> None:
    data = b"\xfe\xff" + TEXT.encode(encoding) if encoding == "utf-16-be" else TEXT.encode(encoding)
    (tmp_path / "run.log").write_bytes(data)
    log = read(tmp_path / "run.log")
    assert [line.text for line in log.lines if line.text] == TEXT.splitlines()
    assert log.files[0].lines == 2


def test_gzip(tmp_path: Path) -> None:
    (tmp_path / "run.log.gz").write_bytes(gzip.compress(TEXT.encode()))
    assert [each.blocks[0].type for each in read(tmp_path / "run.log.gz").raised] == ["ValueError"]


def test_broken_gzip_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "run.log.gz").write_bytes(gzip.compress(TEXT.encode() * 1000)[:12])
    with pytest.raises(Unreadable, match="could not be read"):
        read(tmp_path / "run.log.gz")


def test_a_packed_file_that_is_cut_is_read_up_to_there(tmp_path: Path) -> None:
    words = "".join(f"step {step} loss {step * 7919 % 9973}\n" for step in range(20_000))
    packed = gzip.compress(("ValueError: boom\n" + words).encode())
    (tmp_path / "run.log.gz").write_bytes(packed[: len(packed) // 2])
    log = read(tmp_path / "run.log.gz")
    assert [each.blocks[0].message for each in log.raised] == ["boom"]
    assert log.files[0].lines > 5_000
    assert len(log.problems) == 1 and "is cut" in log.problems[0] and f"{log.files[0].bytes:,} bytes" in log.problems[0]


def test_invalid_bytes_are_replaced(tmp_path: Path) -> None:
    (tmp_path / "run.log").write_bytes(b"caf\xe9\nValueError: boom\n")
    assert [each.blocks[0].message for each in read(tmp_path / "run.log").raised] == ["boom"]


def test_a_nul_where_a_worker_died_is_no_binary_file(tmp_path: Path) -> None:
    (tmp_path / "run.log").write_bytes(b"step 1\n\x00ValueError: boom\n" + b"step 2\n" * 50)
    assert [each.blocks[0].message for each in read(tmp_path / "run.log").raised] == ["boom"]


@pytest.mark.parametrize("data", [bytes(range(256)) * 40, b"\x7fELF\x02\x01\x01" + b"\x00" * 4000])
def test_binary_files_are_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "weights.log").write_bytes(data)
    with pytest.raises(Unreadable, match="binary"):
        read(tmp_path / "weights.log")


def test_empty_file(tmp_path: Path) -> None:
    (tmp_path / "empty.log").write_bytes(b"")
    assert read(tmp_path / "empty.log").lines == ()


def test_missing_path() -> None:
    with pytest.raises(Unreadable, match=r"There is no file or folder nowhere\.log"):
        from_paths(["nowhere.log"])


def test_a_folder_reads_its_logs_and_skips_what_is_none(tmp_path: Path) -> None:
    (tmp_path / "attempt_0" / "1").mkdir(parents=True)
    (tmp_path / "attempt_0" / "1" / "stderr.log").write_text("ValueError: boom\n")
    (tmp_path / "model.pt").write_bytes(b"\x80\x02")
    (tmp_path / "core.4242").write_bytes(b"\x7fELF" + b"\x00" * 4000)
    log = read(tmp_path)
    assert {Path(file.name).name for file in log.files} == {"stderr.log", "core.4242"}
    assert [each.local_rank for each in log.streams] == [1]
    assert len(log.problems) == 1 and "binary" in log.problems[0]


def test_rank_in_the_file_name(tmp_path: Path) -> None:
    (tmp_path / "rank3.log").write_text("ValueError: boom\n")
    assert [stream.rank for stream in read(tmp_path / "rank3.log").streams] == [3]


def test_a_folder_named_after_a_rank_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "bug-of-rank2").mkdir()
    (tmp_path / "bug-of-rank2" / "log.txt").write_text("ValueError: boom\n")
    assert [stream.rank for stream in read(tmp_path / "bug-of-rank2").streams] == [None]


def test_a_large_file_keeps_its_failure_and_few_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "SMALL", 20_000)
    body = [f"step {i} loss 0.{i % 97:02d} tokens {i * 7}\n" for i in range(40_000)]
    body[30_000:30_000] = [
        'Traceback (most recent call last):\n  File "train.py", line 3, in main\n',
        "KeyError: 'age'\n",
    ]
    (tmp_path / "run.log").write_text("".join(body))
    log = read(tmp_path / "run.log")
    assert [(each.blocks[0].type, each.blocks[0].at.number) for each in log.raised] == [("KeyError", 30_003)]
    assert log.files[0].lines == 40_003
    assert len(log.lines) < 30_000


def test_progress_bars_are_frames_of_one_line(tmp_path: Path) -> None:
    (tmp_path / "run.log").write_bytes(b" 10%|#    | 1/10\r 20%|##   | 2/10\rValueError: boom\nnext\n")
    log = read(tmp_path / "run.log")
    assert [(line.number, line.text) for line in log.lines][-2:] == [(1, "ValueError: boom"), (2, "next")]
