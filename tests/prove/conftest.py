"""One process that has imported torch, for all tests that measure a script in a fork of it."""

from collections.abc import Iterator

import pytest
from measuring import Warm, warm


@pytest.fixture(scope="session")
def process() -> Iterator[Warm]:
    with warm("accelerate") as started:
        yield started
