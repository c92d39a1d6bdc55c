from collections.abc import Iterator

import pytest

from lsp.client import Client, running


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """A server that has been told of a client like VS Code; the tests of a module share it, each with its own URIs."""
    with running() as client:
        client.initialize()
        yield client


@pytest.fixture
def fresh() -> Iterator[Client]:
    """A server that has heard nothing yet."""
    with running() as client:
        yield client
