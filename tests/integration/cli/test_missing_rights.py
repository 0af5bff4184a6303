"""Rights that are missing: what is told, and that the others go on."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from reconsume.bridge.kafka.admin import Commit
from reconsume.bridge.kafka.client_settings import consumer_settings
from reconsume.bridge.kafka.group_consumer import GroupConsumer
from reconsume.bridge.scheduler.delivery.writers import BatchAborted, TransactionalWriter
from reconsume.bridge.scheduler.targets.routing import Delivery
from tests.integration.consumers.test_delay_producer import allowing, orders
from tests.integration.installation import Installation, scheduler, settings_for, wait_for_coordinator
from tests.support.batches import batch_of
from tests.support.brokers.kafka import local_kafka
from tests.support.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def guarded() -> Iterator[Installation]:
    """A Kafka that asks for rights; a topic with a rule is closed but for what the rule allows."""
    authorizer = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    with local_kafka(properties=authorizer) as kafka:
        one = Installation(settings_for(kafka.bootstrap_servers))
        one.make_topics()
        one.write_groups()
        yield one


def deny(one: Installation, topic: str, operation: AclOperation) -> None:
    binding = AclBinding(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.LITERAL,
        "User:ANONYMOUS",
        "*",
        operation,
        AclPermissionType.DENY,
    )
    admin = AdminClient(one.settings.client_settings())
    for future in admin.create_acls([binding]).values():
        future.result()
    any_rule = AclBindingFilter(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.LITERAL,
        None,  # type: ignore[arg-type]  # any
        None,  # type: ignore[arg-type]
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    # The controller has answered; the broker hears of it a moment later.
    wait_until(
        lambda: binding in admin.describe_acls(any_rule).result(PATIENCE), f"the broker knows the rule for {topic}"
    )


def test_a_retry_topic_that_may_not_be_written_costs_only_its_own_records(guarded: Installation) -> None:
    names = guarded.settings.names
    locked, free = guarded.name("locked"), guarded.name("free")
    for group in (locked, free):
        guarded.admin.create(names.retry(group), 1, -1, {"message.timestamp.type": "LogAppendTime"})
    deny(guarded, names.retry(locked), AclOperation.WRITE)
    with scheduler(guarded.settings):
        for number in range(6):
            group = locked if number % 2 else free
            headers = [("REAL_TOPIC", f"%RETRY%{group}".encode())]
            guarded.produce(names.delay(0), b"%d" % number, headers=headers)
        wait_until(lambda: len(guarded.retries(free)) == 3, "the free group's records")
        kept = wait_until(lambda: (found := guarded.read(names.quarantine)) and len(found) == 3 and found, "three")
    assert {one.value for one in kept or []} == {b"1", b"3", b"5"}
    for one in kept or []:
        assert "no right to use the topic" in (one["QUARANTINE_REASON"] or "")


@pytest.mark.parametrize("operation", [AclOperation.DESCRIBE, AclOperation.READ, AclOperation.WRITE])
def test_without_rights_to_their_copy_of_cancel_workers_obey_it(guarded: Installation, operation: AclOperation) -> None:
    here = allowing(guarded.settings.bootstrap_servers)
    names, topic = here.settings.names, orders(here, "guarded")
    deny(here, names.withdrawn, operation)
    with scheduler(here.settings):
        here.produce(names.cancel, b"", headers=[("TIMER_DEL_UNIQKEY", b"withdrawn")])
        for key in (b"withdrawn", b"stays"):
            headers = [("REAL_TOPIC", topic.encode()), ("TIMER_DELAY_MS", b"1000"), ("UNIQ_KEY", key)]
            here.produce(names.send_back, key, headers=headers)
        wait_until(lambda: here.read(topic), "the message that stays")
        here.produce(names.send_back, b"last", headers=headers)
        wait_until(lambda: len(here.read(topic)) > 1, "the last message")
    assert [one.value for one in here.read(topic)] == [b"stays", b"last"]


@pytest.mark.parametrize("is_source", [True, False], ids=["of the source", "of the target"])
def test_a_record_is_to_blame_only_if_it_was_refused_itself(guarded: Installation, *, is_source: bool) -> None:
    """Offsets are refused too, where the right to read is missing."""
    source, target, group = guarded.topic("source"), guarded.topic("target"), guarded.name("moves")
    settings = guarded.settings.client_settings()
    writer = TransactionalWriter(settings, guarded.name("writer"), 10_000)
    writer.start()
    deny(guarded, source if is_source else target, AclOperation.READ if is_source else AclOperation.WRITE)
    consumer = GroupConsumer(consumer_settings(settings, "moves") | {"group.id": group})
    wait_for_coordinator(consumer, guarded.topic("other"))
    one = Delivery(target, 0, None, b"v", [], "delivered", "g")
    for count, passing in ((2, False), (1, is_source)):
        with pytest.raises(BatchAborted, match="no right to use the topic") as aborted:
            writer.write(batch_of([one] * count, {(source, 0): Commit(1, "")}), consumer)
        assert aborted.value.passing == passing
    consumer.close()
    writer.close()


def test_a_batch_with_a_record_that_was_refused_before_it_was_sent_is_not_tried_for_ever(guarded: Installation) -> None:
    """Librdkafka has only seen that the topic may not be written, and says that some records failed."""
    source, target, fine = guarded.topic("source"), guarded.topic("target"), guarded.topic("fine")
    settings = guarded.settings.client_settings()
    deny(guarded, target, AclOperation.WRITE)
    writer = TransactionalWriter(settings, guarded.name("writer"), 10_000)
    writer.start()
    consumer = GroupConsumer(consumer_settings(settings, "moves") | {"group.id": guarded.name("moves")})
    wait_for_coordinator(consumer, source)
    batch = [Delivery(topic, 0, None, b"v", [], "delivered", "g") for topic in (fine, target)]
    for _ in range(2):
        with pytest.raises(BatchAborted) as aborted:
            writer.write(batch_of(batch, {(source, 0): Commit(1, "")}), consumer)
        assert not aborted.value.passing, str(aborted.value)
    consumer.close()
    writer.close()


def test_a_command_without_the_right_says_which_one(guarded: Installation) -> None:
    names = guarded.settings.names
    topic = guarded.topic("orders")
    guarded.produce(topic, b"v")
    for target in (names.delay(1_000), names.send_back):
        deny(guarded, target, AclOperation.WRITE)
    settings = {"RECONSUME_TOPIC_PREFIX": guarded.settings.topic_prefix, "PATH": "/usr/bin:/bin"}
    refused = subprocess.run(
        [
            *(sys.executable, "-m", "reconsume", "send-back", "--group", "g", "--message", f"{topic}/0/0"),
            *("--bootstrap-servers", guarded.settings.bootstrap_servers, "-o", "json"),
        ],
        capture_output=True,
        text=True,
        check=False,
        env=settings,
        timeout=60,
    )
    assert refused.returncode == 2
    assert f"looking for topic {names.delay(1_000)}: no right to use the topic" in refused.stderr
    assert "grant it to this client's principal" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert json.loads(refused.stdout or "null") is None
