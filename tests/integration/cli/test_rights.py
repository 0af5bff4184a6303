"""Each role on a Kafka with TLS, SCRAM and ACLs: it runs with the rights that are printed, and tells if one lacks."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest

from reconsume.bridge.groups.groups import SubscriptionGroupConfig
from reconsume.bridge.groups.groups_store import write_group
from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.kafka.errors import translate
from reconsume.bridge.process.settings import Settings, TopicSettings
from reconsume.bridge.scheduler.service import SchedulerService
from reconsume.cli.commands.topics import apply_plan, make_plan
from reconsume.consumers import (
    ConsumeConcurrentlyContext,
    ConsumeConcurrentlyStatus,
    Consumer,
    DelayProducer,
    Message,
    PushConsumer,
)
from reconsume.delay_levels.errors import ReconsumeError
from reconsume.delay_levels.wire.names import TopicNames
from reconsume.delay_levels.wire.quarantine import quarantine_headers
from reconsume.delay_levels.wire.send_back_copy import Position
from reconsume.delay_levels.wire.withdrawals import withdrawal_id
from reconsume.operations.dead_letters import read_page
from reconsume.operations.groups_file import change_group
from reconsume.operations.jobs.runner import JobRunner
from reconsume.operations.jobs.service import JobDraft, create
from reconsume.operations.lives.delayed_messages import cancel_delayed, deliver_now
from reconsume.operations.quarantine.changes import release
from reconsume.operations.quarantine.records import read_quarantine
from reconsume.operations.rights import Right, Role, rights_of
from reconsume.operations.status import collect_status
from tests.integration.installation import LATER, SUCCESS, Installation, scheduler, settings_for
from tests.integration.sidecars import running_sidecar, sidecar_settings
from tests.support.brokers.secure_kafka import SecureKafka, secure_kafka
from tests.support.waiting import PATIENCE, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.early(6), pytest.mark.more]

REFUSED = "no right to use"
NAMES = TopicNames("guarded.")


@pytest.fixture(scope="module")
def kafka() -> Iterator[SecureKafka]:
    with secure_kafka() as one:
        yield one


def installed(kafka: SecureKafka, prefix: str) -> Installation:
    """All topics but that of the longest level: what is sent there takes the inbox."""
    one = Installation(settings_for(kafka.bootstrap_servers, prefix))
    one.make_topics()
    one.write_groups()
    kafka.operator().delete_topics([one.settings.names.delay(2_000)])[one.settings.names.delay(2_000)].result(PATIENCE)
    return one


@pytest.fixture(scope="module")
def unattended(kafka: SecureKafka) -> Installation:
    """No scheduler works here."""
    return installed(kafka, NAMES.prefix)


@pytest.fixture(scope="module")
def attended(kafka: SecureKafka) -> Iterator[Installation]:
    """A scheduler that may everything works here; with a table of its own, or it would make the missing topic.

    Targets of delayed messages begin with `t-`.
    """
    one = installed(kafka, "attended.")
    more = {"message_delay_level": "1s 1s 1s", "allowed_real_topics": ["t-.*"]}
    with scheduler(one.settings.model_copy(update=more)):
        yield one


@dataclass(eq=False)
class Complaints(logging.Handler):
    """What a role says of rights: in its log, or by what it raises."""

    said: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(logging.WARNING)

    def emit(self, record: logging.LogRecord) -> None:
        self.note(record.getMessage())

    def note(self, text: object) -> None:
        if REFUSED in str(text):
            self.said.append(str(text))


@contextmanager
def listening() -> Iterator[Complaints]:
    complaints, logger = Complaints(), logging.getLogger("reconsume")
    logger.addHandler(complaints)
    try:
        yield complaints
    finally:
        logger.removeHandler(complaints)


@dataclass
class Case:
    """A user with rights, and what to run as him."""

    here: Installation
    settings: Settings
    group: str
    topic: str
    complaints: Complaints

    def runs(self, steps: Callable[[], bool]) -> bool:
        """Until somebody complains, or it is done."""
        return bool(wait_until(lambda: bool(self.complaints.said) or steps(), "a complaint, or done"))


def as_scheduler(case: Case) -> bool:
    here, names, group = case.here, case.here.settings.names, case.group
    back = [("REAL_TOPIC", f"%RETRY%{group}".encode()), ("RETRY_TOPIC", b"flights")]
    here.produce(names.send_back, b"again", headers=back)
    here.produce(names.delay(0), b"dead", headers=[("REAL_TOPIC", f"%DLQ%{group}".encode())])
    here.produce(names.delay(0), group.encode(), headers=[])
    here.produce(names.cancel, b"", headers=[("TIMER_DEL_UNIQKEY", group.encode())])
    held, lifted = f"held-{group}", f"lifted-{group}"
    write_group(here.cluster, SubscriptionGroupConfig(group_name=held, retry_paused=True))
    here.produce(names.delay(0), b"held", headers=[("REAL_TOPIC", f"%RETRY%{held}".encode())])
    here.admin.create(names.parked(lifted), 1, -1, {"message.timestamp.type": "LogAppendTime"})
    here.produce(names.parked(lifted), b"lifted", headers=[("REAL_TOPIC", f"%RETRY%{lifted}".encode())])
    # Not what an earlier case has published.
    settings, stop = case.settings.model_copy(update={"allowed_real_topics": [case.topic]}), threading.Event()

    def work() -> None:
        try:
            SchedulerService(settings).run(stop)
        except ReconsumeError as error:
            case.complaints.note(error)

    def done() -> bool:
        kept = [one.value for one in here.read(names.quarantine)]
        known = [one.key for one in here.read(names.withdrawn)]
        moved = here.retries(group) and here.dead_letters(group) and group.encode() in kept
        published = [one.value for one in here.read(names.groups) if case.topic.encode() in (one.value or b"")]
        parked = here.read(names.parked(held)) and here.retries(lifted)
        return bool(moved and parked and withdrawal_id(group) in known and published)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        case.runs(done)
    finally:
        stop.set()
        thread.join(PATIENCE)
    return not case.complaints.said and done()


def push(case: Case, *, exactly_once: bool) -> bool:
    seen: list[tuple[bytes | None, int]] = []

    def listener(messages: Sequence[Message], context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
        message = messages[0]
        seen.append((message.body, message.reconsume_times))
        if message.reconsume_times:
            return SUCCESS
        context.delay_level_when_next_consume = 4 if message.body == b"inbox" else 1
        return LATER

    settings = case.settings.client_settings()
    consumer = PushConsumer(
        case.group,
        bootstrap_servers=settings.pop("bootstrap.servers"),
        conf=settings | {"auto.offset.reset": "earliest", "heartbeat.interval.ms": 500},
        topic_prefix=case.settings.topic_prefix,
        exactly_once=exactly_once,
    )
    consumer.subscribe(case.topic).register_message_listener(listener)

    def done() -> bool:
        inbox = [one["REAL_TOPIC"] for one in case.here.read(case.settings.names.send_back)]
        return (b"direct", 1) in seen and (exactly_once or f"%RETRY%{case.group}" in inbox)

    case.here.produce(case.topic, *([b"direct"] if exactly_once else [b"direct", b"inbox"]))
    try:
        consumer.start()
        case.runs(done)
    except ReconsumeError as error:
        case.complaints.note(error)
    finally:
        consumer.shutdown()
    return not case.complaints.said and done()


def as_consumer(case: Case) -> bool:
    return push(case, exactly_once=False)


def as_exactly_once(case: Case) -> bool:
    return push(case, exactly_once=True)


def as_drop_in(case: Case) -> bool:
    case.here.produce(case.topic, b"direct", b"inbox")
    conf = {"group.id": case.group, "auto.offset.reset": "earliest", "heartbeat.interval.ms": 500}
    consumer = Consumer(case.settings.client_settings() | conf, topic_prefix=case.settings.topic_prefix)
    seen: list[bytes | None] = []

    def step() -> bool:
        message = consumer.poll(0.2)
        if message is None:
            return False
        error = message.error()
        if error is not None:
            case.complaints.note(translate(error, "polling"))
        elif message.topic() == case.topic and message.offset() == len(seen):
            level = 4 if message.value() == b"inbox" else 1
            consumer.send_message_back(message, delay_level=level)
            seen.append(message.value())
        return len(seen) == 2

    try:
        consumer.subscribe([case.topic])
        case.runs(step)
    except ReconsumeError as error:
        case.complaints.note(error)
    finally:
        consumer.close()
    return len(seen) == 2


def as_sidecar(case: Case) -> bool:
    case.here.produce(case.topic, b"direct", b"inbox")
    answers: list[int] = []
    with running_sidecar(sidecar_settings(case.settings, groups=[case.group]), ready=False) as running:
        if not case.runs(lambda: running.probe("/readyz").status == 200) or case.complaints.said:
            return False
        for offset, level in enumerate((1, 4)):
            record = {"topic": case.topic, "partition": 0, "offset": offset, "delayLevel": level}
            answers.append(running.send_back(case.group, record).status)
    return answers == [200, 200]


def as_producer(case: Case) -> bool:
    with (
        DelayProducer(
            bootstrap_servers=case.settings.bootstrap_servers,
            conf={key: one.get_secret_value() for key, one in case.settings.kafka.items()},
            topic_prefix=case.settings.topic_prefix,
        ) as producer,
        suppress_noted(case.complaints),
    ):
        producer.send(case.topic, b"v", delay_level=1)
        sent = producer.send(case.topic, b"v", delay=timedelta(hours=1))
        producer.cancel(sent.msg_id)
        return True
    return False


def as_console(case: Case) -> bool:
    here, topic = case.here, case.here.settings.names.dead_letter(case.group)
    here.admin.create(topic, 1, -1, {"message.timestamp.type": "LogAppendTime"})
    here.produce(topic, b"dead")
    here.produce(here.settings.names.retry(case.group), b"retry")
    with suppress_noted(case.complaints):
        cluster = Cluster(case.settings)
        return bool(collect_status(cluster).waiting and read_page(cluster, case.group).records)
    return False


def as_resender(case: Case) -> bool:
    here, topic = case.here, case.here.settings.names.dead_letter(case.group)
    here.admin.create(topic, 1, -1, {"message.timestamp.type": "LogAppendTime"})
    here.produce(topic, b"dead")
    lane = here.settings.names.delay(3_600_000)
    if not here.admin.partitions([lane]):
        here.admin.create(lane, 1, -1, {"message.timestamp.type": "LogAppendTime"})
    for key in (f"withdrawn-{case.group}", f"early-{case.group}"):
        here.produce(lane, b"v", headers=[("REAL_TOPIC", case.topic.encode()), ("UNIQ_KEY", key.encode())])
    names = here.settings.names
    held = [quarantine_headers([], case.group, Position(one, 0, 0), 0) for one in (names.delay(0), names.send_back)]
    for headers in held:
        here.produce(names.quarantine, b"held", headers=headers)
    with suppress_noted(case.complaints):
        cluster = Cluster(case.settings)
        waiting = [one.place for one in read_quarantine(cluster) if one.quarantined.reason == case.group]
        release(cluster, waiting, {"REAL_TOPIC": f"%RETRY%{case.group}"})
        end = here.admin.end_offsets([(lane, 0)])[lane, 0]
        cancel_delayed(cluster, [f"{lane}/0/{end - 2}"])
        deliver_now(cluster, [f"{lane}/0/{end - 1}"])
        change_group(cluster, f"held-{case.group}", {"retryPaused": True})
        job = create(cluster, JobDraft("resend", case.group), by="alice")
        ended = JobRunner(cluster).run_until_ended(job, threading.Event())
        return ended.progress.counts == {"sent": 1}
    return False


def as_admin(case: Case) -> bool:
    lane = case.settings.names.delay(0)
    one_more = TopicSettings(delay_partitions=1, bulk_partitions=case.here.admin.partitions([lane])[lane])
    cluster = Cluster(case.settings.model_copy(update={"topics": one_more}))
    with suppress_noted(case.complaints):
        change_group(cluster, case.group, {})
        apply_plan(cluster, make_plan(cluster), as_json=True)
        collect_status(cluster)
        return True
    return False


@contextmanager
def suppress_noted(complaints: Complaints) -> Iterator[None]:
    with suppress(ReconsumeError):
        try:
            yield
        except ReconsumeError as error:
            complaints.note(error)
            raise


ROLES: dict[str, tuple[Role, Callable[[Case], bool], bool]] = {
    "scheduler": (Role.SCHEDULER, as_scheduler, False),
    "consumer": (Role.CONSUMER, as_consumer, False),
    "exactly once": (Role.CONSUMER, as_exactly_once, True),
    "drop-in": (Role.CONSUMER, as_drop_in, False),
    "sidecar": (Role.SIDECAR, as_sidecar, False),
    "producer": (Role.PRODUCER, as_producer, False),
    "console": (Role.CONSOLE, as_console, False),
    "resender": (Role.RESENDER, as_resender, False),
    "admin": (Role.ADMIN, as_admin, False),
}
SELDOM = {("scheduler", NAMES.prefix + "PARKED.", "Delete")}
"""Used ten minutes after a start at the earliest: tests/unit/bridge/scheduler/delivery/test_delivered_parked.py."""
BEYOND = {"exactly once": "consumer", "drop-in": "consumer", "sidecar": "consumer", "resender": "console"}
"""Roles with all that another one has."""


def rights(name: str, names: TopicNames, group: str, topic: str) -> list[Right]:
    role, _, exactly_once = ROLES[name]
    return rights_of(role, names, group=group, topics=[topic], exactly_once=exactly_once)


def one_less() -> list[tuple[str, int, str]]:
    """Role, number of the right, operation: each that a role has, but for those that have more only what that is."""
    found = []
    for name in ROLES:
        ordinary = rights(BEYOND[name], NAMES, "g", "t") if name in BEYOND else []
        for number, right in enumerate(rights(name, NAMES, "g", "t")):
            if right not in ordinary:
                used = [one for one in right.operations if (name, right.name, one) not in SELDOM]
                found += [(name, number, operation) for operation in used]
    return found


@contextmanager
def case_of(
    kafka: SecureKafka, here: Installation, name: str, less: tuple[int, str] | None
) -> Iterator[tuple[Case, Callable[[Case], bool]]]:
    user = f"{name.replace(' ', '-')}-{uuid.uuid4().hex[:6]}"
    group, topic = f"g-{user}", f"t-{user}"
    here.admin.create(topic, 1, -1, {})
    names = here.settings.names
    if name not in ("scheduler", "admin"):
        here.admin.create(names.retry(group), 1, -1, {"message.timestamp.type": "LogAppendTime"})
    granted = rights(name, names, group, topic)
    if less is not None:
        number, operation = less
        left = tuple(one for one in granted[number].operations if one != operation)
        granted[number : number + 1] = [replace(granted[number], operations=left)] if left else []
    secret = Settings(kafka=kafka.user(user, f"secret-of-{user}")).kafka
    settings = here.settings.model_copy(
        update={"bootstrap_servers": kafka.secure_bootstrap_servers, "kafka": secret},
    )
    kafka.grant(user, granted)
    with listening() as complaints:
        yield Case(here, settings, group, topic, complaints), ROLES[name][1]


def place(name: str, request: pytest.FixtureRequest) -> Installation:
    found: Installation = request.getfixturevalue("unattended" if name in ("scheduler", "admin") else "attended")
    return found


@pytest.mark.parametrize("name", ROLES)
def test_a_role_runs_with_the_rights_that_are_printed(
    kafka: SecureKafka, request: pytest.FixtureRequest, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with case_of(kafka, place(name, request), name, None) as (case, run):
        assert run(case), caplog.text
        assert case.complaints.said == []
    assert "secret-of-" not in caplog.text


@pytest.mark.parametrize(("name", "number", "operation"), one_less())
def test_a_role_says_which_right_it_lacks(
    kafka: SecureKafka,
    request: pytest.FixtureRequest,
    name: str,
    number: int,
    operation: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    here = place(name, request)
    with case_of(kafka, here, name, (number, operation)) as (case, run):
        run(case)
        right = rights(name, here.settings.names, case.group, case.topic)[number]
        said = {"topic": "the topic", "group": "the consumer group", "cluster": "the cluster"}
        what = said.get(right.resource, "the transactional id")
        assert any(what in one for one in case.complaints.said), (right, case.complaints.said)
    assert "secret-of-" not in caplog.text
