"""Commands that write in transactions end when their broker is killed, or never answers, and go on later."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka import Producer

from reconsume.bridge.kafka.clients import Clients
from reconsume.bridge.librdkafka import transactional_calls
from reconsume.bridge.writing import exclusive_writer
from reconsume.bridge.writing import transactions as transactions_module
from reconsume.bridge.writing.exclusive_writer import ExclusiveWriter
from reconsume.cli.broker.kafka import LocalKafka
from reconsume.delay_levels.errors import KafkaNotReachable, ReconsumeError
from reconsume.delay_levels.wire.quarantine import quarantine_headers
from reconsume.delay_levels.wire.send_back_copy import Position
from reconsume.operations.dead_letter_states import state_name
from reconsume.operations.dead_letters import read_page
from reconsume.operations.doctor import inspection
from reconsume.operations.doctor.inspection import InspectedCluster
from reconsume.operations.doctor.report import Report
from reconsume.operations.doctor.rights_check import check_rights
from reconsume.operations.quarantine.changes import release
from reconsume.operations.quarantine.records import read_quarantine
from reconsume.operations.record_address import RecordAddress
from reconsume.operations.rights import Role, rights_of
from tests.integration.installation import Installation, settings_for
from tests.support.brokers.kafka import kafka_to_kill
from tests.support.consoles import console_settings, running_console
from tests.support.resends import planned, resend
from tests.support.waiting import PATIENCE, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.early(4)]

COUNT = 3


@pytest.fixture(scope="module")
def kafka() -> Iterator[LocalKafka]:
    with kafka_to_kill() as one:
        yield one


@pytest.fixture
def here(kafka: LocalKafka) -> Installation:
    one = Installation(settings_for(kafka.bootstrap_servers))
    one.make_topics()
    one.write_groups()
    return one


class Accident:
    """Happens once, before a step of the next transactional producer."""

    def __init__(self, kafka: LocalKafka, impatience: pytest.MonkeyPatch) -> None:
        self._kafka = kafka
        self._impatience = impatience
        self._end = threading.Event()
        self.happened = threading.Event()
        self.step, self.hangs = "", False

    def at(self, step: str) -> None:
        if step != self.step:
            return
        self.step = ""
        if self.hangs:
            # As librdkafka does at times when a broker was killed: no timeout ends it.
            self.happened.set()
            self._end.wait()
        else:
            self._kafka.kill()
            self.happened.set()

    def undo(self) -> None:
        """Have the broker back, and its clients as patient as they are."""
        self.step = ""
        self._end.set()
        self._impatience.undo()
        if not self._kafka.alive():
            self._kafka.start()


class Unlucky(Producer):
    """Meets the accident."""

    def __init__(self, settings: dict[str, Any], accident: Accident) -> None:
        super().__init__(settings)
        self._accident = accident

    def init_transactions(self, *given: Any) -> None:
        self._accident.at("start")
        super().init_transactions(*given)

    def produce(self, *given: Any, **more: Any) -> None:
        super().produce(*given, **more)
        self._accident.at("produce")

    def commit_transaction(self, *given: Any) -> None:
        self._accident.at("commit")
        super().commit_transaction(*given)


@pytest.fixture
def accident(kafka: LocalKafka, monkeypatch: pytest.MonkeyPatch) -> Iterator[Accident]:
    impatience = pytest.MonkeyPatch()
    one, ordinary = Accident(kafka, impatience), Clients.producer

    def producer(clients: Clients, settings: Any) -> Producer:
        return Unlucky(dict(settings), one) if "transactional.id" in settings else ordinary(clients, settings)

    monkeypatch.setattr(Clients, "producer", producer)
    impatience.setattr(transactions_module, "PATIENCE_SECONDS", 2.0)
    impatience.setattr(transactional_calls, "_LONGER_THAN_A_RECORD_SECONDS", 3.0)
    impatience.setattr(exclusive_writer, "TRANSACTION_SECONDS", 5.0)
    impatience.setattr(ExclusiveWriter.take_over, "__defaults__", (3.0,))
    impatience.setattr(inspection, "_TIMEOUT", 3.0)
    yield one
    one.undo()


def with_dead_letters(here: Installation) -> str:
    group = here.name("g")
    topic = here.settings.names.dead_letter(group)
    here.admin.create(topic, 1, -1, {"message.timestamp.type": "LogAppendTime"})
    for number in range(COUNT):
        origin = f"flights/0/{number}".encode()
        headers = [("RETRY_TOPIC", b"flights"), ("ORIGIN_MESSAGE_ID", origin), ("REAL_TOPIC", f"%DLQ%{group}".encode())]
        here.produce(topic, b"v", headers=headers, partition=0)
    return group


def assert_each_was_sent_once(here: Installation) -> None:
    lane = here.settings.names.delay(0)
    # Readers of committed records see a transaction a moment after it is committed.
    wait_until(lambda: len(here.read(lane)) >= COUNT, "all stand on the lane")
    found = [one["ORIGIN_MESSAGE_ID"] for one in here.read(lane)]
    assert Counter(found) == Counter(f"flights/0/{number}" for number in range(COUNT))


def until_it_works(act: Callable[[], object]) -> None:
    """A broker that has just started may not be ready for all."""
    errors: list[str] = []

    def works() -> bool:
        try:
            act()
        except ReconsumeError as error:
            errors.append(str(error))
            return False
        return True

    try:
        wait_until(works, "the same call works")
    except AssertionError:
        raise AssertionError(errors) from None


AFTER_A_RECORD = pytest.param("produce", False, id="killed after its first record")
BEFORE_THE_COMMIT = pytest.param("commit", False, id="killed before its commit")
NO_REGISTRATION = pytest.param("start", True, id="registration never answered")
NO_COMMIT = pytest.param("commit", True, id="commit never answered")


@pytest.mark.parametrize(("step", "hangs"), [AFTER_A_RECORD, BEFORE_THE_COMMIT, NO_REGISTRATION, NO_COMMIT])
def test_a_resend_goes_on_when_kafka_is_back(here: Installation, accident: Accident, step: str, hangs: bool) -> None:
    group, places = with_dead_letters(here), [RecordAddress(0, number) for number in range(COUNT)]
    accident.step, accident.hangs = step, hangs
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(resend, here.cluster, group, places)
        assert accident.happened.wait(PATIENCE)
        accident.undo()
        assert sent.result(PATIENCE)[1] == ["sent"] * COUNT
    assert_each_was_sent_once(here)
    assert planned(here.cluster, group, places) == ["replayed"] * COUNT


@pytest.mark.parametrize(("step", "hangs"), [AFTER_A_RECORD, BEFORE_THE_COMMIT])
def test_a_release_ends_and_the_next_one_releases_what_is_missing(
    here: Installation, accident: Accident, step: str, hangs: bool
) -> None:
    lane, group = here.settings.names.delay(0), here.name("g")
    for number in range(COUNT):
        headers = quarantine_headers([], "planted", Position(lane, 0, number), 5)
        here.produce(here.settings.names.quarantine, b"%d" % number, headers=headers, partition=0)
    accident.step, accident.hangs = step, hangs
    changes = {"REAL_TOPIC": f"%RETRY%{group}"}
    with pytest.raises(KafkaNotReachable):
        release(here.cluster, None, changes)
    assert accident.happened.is_set()
    accident.undo()
    until_it_works(lambda: release(here.cluster, None, changes))
    wait_until(lambda: all(one.state == "RELEASED" for one in read_quarantine(here.cluster)), "all are released")
    assert Counter(one.value for one in here.read(lane)) == Counter(b"%d" % number for number in range(COUNT))


@pytest.mark.parametrize("hangs", [False, True], ids=["broker killed", "never answered"])
def test_the_doctor_ends(here: Installation, accident: Accident, hangs: bool) -> None:
    cluster = InspectedCluster(here.settings)
    rights = [one for one in rights_of(Role.SCHEDULER, here.settings.names) if one.resource == "transactional-id"]
    accident.step, accident.hangs = "start", hangs
    with pytest.raises(KafkaNotReachable, match="registering the transactional id"):
        check_rights(cluster, "scheduler", rights, Report())
    assert accident.happened.is_set()
    accident.undo()
    report = Report()
    until_it_works(lambda: check_rights(cluster, "scheduler", rights, report))
    assert report.healthy


@pytest.mark.parametrize(("step", "hangs"), [BEFORE_THE_COMMIT, NO_REGISTRATION])
def test_a_request_of_the_console_is_answered(here: Installation, accident: Accident, step: str, hangs: bool) -> None:
    group = with_dead_letters(here)
    with running_console(console_settings(here.settings)) as browser:
        form = (
            browser.get(f"/groups/{group}/dead-letters").seen.form("/job")._replace(action=f"/groups/{group}/resolve")
        )
        fields = [("place", f"0/{number}") for number in range(COUNT)] + [("why", "known")]
        accident.step, accident.hangs = step, hangs
        assert browser.send(form, *fields).status == 503
        assert accident.happened.is_set()
        accident.undo()
        wait_until(lambda: browser.send(form, *fields).status == 200, "the same form works")
    assert [state_name(one.state) for one in read_page(here.cluster, group).records] == ["RESOLVED"] * COUNT
