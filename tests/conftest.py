"""What all tests share: the Kafka they run on."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.pytest_loggers import let_threads_make_loggers

_SHORT_LIVED: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For the JVMs of the tests: in most the second compiler takes more time than it ever gives back."""
_NOTE: Final = pytest.StashKey[str]()
_NOTE_OF_WORKER: Final = "kafka_under_test"


def pytest_configure() -> None:
    """Before the first test, whose threads may make loggers."""
    let_threads_make_loggers()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Files that take longest first, so that no process is left with one of them at the end."""
    items.sort(key=lambda item: -_minutes(item))
    for item in items:
        if {"deploy", "journeys"} & set(item.path.relative_to(config.rootpath).parts):
            item.add_marker("more")


def pytest_collection_finish() -> None:
    """Thousands of tests live until the end; the collector need not look at them again and again."""
    gc.freeze()


def _minutes(item: pytest.Item) -> int:
    marker = item.get_closest_marker("early")
    return 0 if marker is None else int(marker.args[0])


@pytest.fixture(scope="session", autouse=True)
def short_lived_java() -> Iterator[None]:
    """What java itself reads from the environment, so also in the processes that tests start."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JDK_JAVA_OPTIONS", " ".join(filter(None, [os.environ.get("JDK_JAVA_OPTIONS"), _SHORT_LIVED])))
        yield


@pytest.fixture(scope="session", autouse=True)
def state_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Identities of the processes of tests are not kept in the home folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="session")
def bootstrap_servers(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The bootstrap address of a real Kafka, started once for the whole run, whatever the number of its processes."""
    # Imported here so that the unit tests collect without Kafka's clients.
    from tests.support.brokers.kafka import kafka_bootstrap  # noqa: PLC0415
    from tests.support.brokers.shared_kafka import shared_kafka  # noqa: PLC0415

    # Each worker of pytest-xdist has a folder of its own in that of the run. A pytest that a test starts is no worker,
    # though it has a worker's environment.
    alone = not hasattr(pytestconfig, "workerinput")
    with kafka_bootstrap() if alone else shared_kafka(tmp_path_factory.getbasetemp().parent) as kafka:
        pytestconfig.stash[_NOTE] = note = f"{kafka.bootstrap_servers}: {kafka.note}"
        if not alone:
            pytestconfig.workeroutput[_NOTE_OF_WORKER] = note  # type: ignore[attr-defined]  # pytest-xdist's
        yield kafka.bootstrap_servers


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take a worker's word on which Kafka it was."""
    if (note := getattr(node, "workeroutput", {}).get(_NOTE_OF_WORKER)) is not None:
        node.config.stash[_NOTE] = note


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say which Kafka the tests ran on, and why that one."""
    if (note := config.stash.get(_NOTE, None)) is not None:
        terminalreporter.write_line(f"Kafka under test: {note}")
