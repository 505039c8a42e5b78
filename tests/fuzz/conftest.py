"""Fuzzing: a property for each kind of file or text that is read. `FUZZ_SECONDS=600` gives each ten CPU minutes."""

import pytest

from tests.support import fuzzing

_DONE = pytest.StashKey[list]()


def pytest_configure(config):
    config.stash[_DONE] = []


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.parent.name == "fuzz" and "fuzz" in item.fixturenames:
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.timeout(10 * fuzzing.SECONDS + 300))


@pytest.fixture
def fuzz(request):
    """Drive a body with values of a strategy, and keep how often."""

    def run(strategy, body):
        executions, cpu_s = fuzzing.drive(strategy, body)
        request.config.stash[_DONE].append(
            f"{request.node.name}: {executions:,} executions in {cpu_s:,.0f} s of CPU time"
        )

    return run


def pytest_terminal_summary(terminalreporter, config):
    if config.stash[_DONE]:
        terminalreporter.section("fuzzing")
        for line in config.stash[_DONE]:
            terminalreporter.line(line)
