"""What all tests share: the Kafka they run on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Final

import pytest

_SHORT_LIVED: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For every JVM of the tests: the second compiler takes more time here than it ever gives back."""
_LONG: Final = (
    "tests/chaos/test_five_minutes.py",
    "tests/spark/test_replay_runs.py",
    "tests/spark/test_released.py",
    "tests/spark/test_reconcile.py",
    "tests/spark/test_faults.py",
    "tests/spark/test_reconcile_stream.py",
    "tests/journeys/test_journeys.py",
    "tests/integration/test_sidecar_examples_faults.py",
    "tests/integration/test_subscriptions.py",
    "tests/integration/test_cli.py",
    "tests/integration/test_drop_in_consumer.py",
    "tests/integration/test_push_faults.py",
    "tests/integration/test_lost_offsets.py",
    "tests/integration/test_scheduler_faults.py",
    "tests/integration/test_sidecar_process.py",
    "tests/integration/test_push_consumer_orderly.py",
    "tests/integration/test_local_kafka.py",
    "tests/integration/test_rights.py",
    "tests/integration/test_drop_in_exactly_once.py",
    "tests/integration/test_doctor.py",
    "tests/integration/test_sidecar_examples.py",
    "tests/integration/test_table_changes.py",
    "tests/integration/test_scheduler_fairness.py",
    "tests/integration/test_secrets.py",
)
"""Of Kafka those that wait and those that work in turns."""
_MORE: Final = frozenset(
    {
        *(f"tests/spark/test_{part}.py" for part in ("clocks", "dialects", "expired", "open_transactions")),
        *(f"tests/spark/test_{part}.py" for part in ("reconcile_stream", "released", "replay_runs", "rights")),
        "tests/integration/test_broadcasting.py",
        "tests/integration/test_circuit_breaker.py",
        "tests/integration/test_cli.py",
        "tests/integration/test_deleted_topics.py",
        "tests/integration/test_docs.py",
        "tests/integration/test_doctor.py",
        "tests/integration/test_drop_in_broker_away.py",
        "tests/integration/test_examples.py",
        "tests/integration/test_groups_file.py",
        "tests/integration/test_hooks.py",
        "tests/integration/test_local_kafka.py",
        "tests/integration/test_lost_membership.py",
        "tests/integration/test_lost_offsets.py",
        "tests/integration/test_push_consumer_broker_away.py",
        "tests/integration/test_push_delivery.py",
        "tests/integration/test_push_examples.py",
        "tests/integration/test_push_faults.py",
        "tests/integration/test_push_poison.py",
        "tests/integration/test_rights.py",
        "tests/integration/test_scheduler_fairness.py",
        "tests/integration/test_secrets.py",
        "tests/integration/test_sidecar_examples.py",
        "tests/integration/test_sidecar_examples_faults.py",
        "tests/integration/test_sidecar_fuzzed.py",
        "tests/integration/test_sidecar_process.py",
        "tests/integration/test_subscriptions.py",
        "tests/integration/test_table_changes.py",
        "tests/packaging/test_spark_extra.py",
    }
)
"""For `make test-more`, with tests/deploy and tests/journeys, so that `make test` ends within 20 minutes on 2 cores."""
_NOTE: Final = pytest.StashKey[str]()
_NOTE_OF_WORKER: Final = "kafka_under_test"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The files that take longest first, so that no process is left with one of them at the end."""
    place = {file: number for number, file in enumerate(_LONG)}
    files = {item: item.path.relative_to(config.rootpath).as_posix() for item in items}
    items.sort(key=lambda item: place.get(files[item], len(place)))
    for item in items:
        if files[item] in _MORE or files[item].startswith(("tests/deploy/", "tests/journeys/")):
            item.add_marker("more")


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
    from tests.support.kafka import kafka_bootstrap  # noqa: PLC0415
    from tests.support.shared_kafka import shared_kafka  # noqa: PLC0415

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
