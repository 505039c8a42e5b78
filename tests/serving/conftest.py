"""A server that many test files share."""

import pytest

from tests.support.served import served


@pytest.fixture(scope="module")
def server():
    with served() as server:
        yield server
