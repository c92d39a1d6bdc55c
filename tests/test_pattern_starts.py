"""What a pattern can begin with, held against what it really matches."""

import re

import pytest

from firstfault.library import load
from firstfault.pattern_starts import ASCII, first_characters


@pytest.mark.parametrize(
    ("pattern", "starts"),
    [
        (r"\[rank\d\]", "["),
        (r"(?P<level>[IW])(?P<time>\d{4})", "IW"),
        (r"(?:\| )?\d", "0123456789|"),
        (r"(?=abc)\d", "0123456789"),
        (r"(?!x)(?:a|b{0,2}c)", "abc"),
        (r"[^\x01-\x7f]", "\x00"),
        (r" {0,3}", ""),
        (r"(?:a|)b?", ""),
        (r".x", ""),
    ],
)
def test_first_characters(pattern: str, starts: str) -> None:
    assert first_characters(pattern) == starts


@pytest.mark.parametrize("prefix", load().prefixes, ids=lambda each: each.id)
def test_a_prefix_is_never_ruled_out_where_it_matches(prefix) -> None:
    for sample in prefix.samples:
        assert not prefix.starts or sample.text[0] in prefix.starts
    pattern = re.compile(prefix.pattern)
    tails = {sample.text[1:] for sample in prefix.samples}
    matching = {character for character in ASCII for tail in tails if pattern.match(character + tail)}
    assert not prefix.starts or matching <= set(prefix.starts)
