"""What all tests share: the Kafka they run on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

_NOTE = pytest.StashKey[str]()


@pytest.fixture(scope="session")
def bootstrap_servers(pytestconfig: pytest.Config) -> Iterator[str]:
    """The bootstrap address of a real Kafka, started once for the whole run."""
    # Imported here so that the unit tests collect without Kafka's clients.
    from tests.support.kafka import kafka_bootstrap  # noqa: PLC0415

    with kafka_bootstrap() as kafka:
        pytestconfig.stash[_NOTE] = f"{kafka.bootstrap_servers}: {kafka.note}"
        yield kafka.bootstrap_servers


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say which Kafka the tests ran on, and why that one."""
    if (note := config.stash.get(_NOTE, None)) is not None:
        terminalreporter.write_line(f"Kafka under test: {note}")
