"""A None that was used is a class of its own, and still no more than an exception of the script."""

from firstfault import logs
from firstfault.diagnose import diagnose
from firstfault.library import load
from firstfault.logs.source import from_text

NONE = "AttributeError: 'NoneType' object has no attribute 'close'"
CONFIG = "ValueError: lr must be positive"
NO_ROOM = "OSError: [Errno 28] No space left on device: '/data/run7/step_900.tmp'"
THEN = "\nDuring handling of the above exception, another exception occurred:\n\n"


def first(*exceptions: str) -> str:
    blocks = (
        f'Traceback (most recent call last):\n  File "/lab/train.py", line {at}, in main\n    step()\n{each}\n'
        for at, each in enumerate(exceptions, 1)
    )
    log = logs.read([from_text(THEN.join(blocks), "run.log")], load().prefixes)
    initiating = diagnose(log, load()).initiating
    assert initiating is not None
    return initiating.signature


def test_alone_it_is_told_as_such() -> None:
    assert first(NONE) == "attr-none"


def test_in_a_clean_up_it_does_not_hide_what_came_before() -> None:
    assert first(CONFIG, NONE) == "user-exception"
    assert first(NO_ROOM, NONE) == "disk-full"


def test_what_the_script_raises_after_it_says_more() -> None:
    assert first(NONE, CONFIG) == "user-exception"
    assert first(NONE, NO_ROOM) == "disk-full"
