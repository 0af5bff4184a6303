"""Records of other clients go through the loop and come back byte for byte: they see nothing but plain Kafka."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from reconsume.bridge.groups.groups import SubscriptionGroupConfig
from reconsume.consumers import ConsumeConcurrentlyContext, ConsumeConcurrentlyStatus, Message
from reconsume.delay_levels.wire.properties import Header, user_headers
from tests.integration.installation import SUCCESS, Deliveries, Installation, installation
from tests.support.brokers.kafka_tools import console_produce
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kafka

PARTITIONS = 4


class Sent(NamedTuple):
    """A record as the client was told to write it."""

    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


HEADERS: tuple[Header, ...] = (("trace", b"1"), ("TAGS", b"late"), ("trace", b"2"), ("empty", b""), ("trace", b"1"))
KEYS = [b"UA1545", b"DL461", "Zürich".encode(), "航班".encode(), *(b"flight-%d" % number for number in range(8))]
TEXT = [
    *(Sent(key, b"late " + key, HEADERS) for key in KEYS),
    Sent(b"tombstone", None, HEADERS),
    Sent(b"bare", "ø".encode(), ()),
    Sent(None, b"no key", HEADERS),
]


def java(bootstrap_servers: str, topic: str, records: Sequence[Sent]) -> None:
    """The console producer writes what is text: header values end at the next mark, a line is a record."""

    def text(value: bytes | None) -> str:
        return "<null>" if value is None else value.decode()

    lines = [
        "\t".join(
            [
                ";".join(f"{name}={text(value)}" for name, value in record.headers) or "<null>",
                text(record.key),
                text(record.value),
            ]
        )
        for record in records
    ]
    reader = {
        "parse.key": "true",
        "parse.headers": "true",
        "headers.separator": ";",
        "headers.key.separator": "=",
        "null.marker": "<null>",
    }
    console_produce(bootstrap_servers, topic, "\n".join(lines) + "\n", reader)


def kcat(bootstrap_servers: str, topic: str, records: Sequence[Sent], folder: Path) -> None:
    """One run for each record, because its headers are options."""
    body = folder / "value"
    for record in records:
        headers = [b"-H%s=%s" % (name.encode(), value) for name, value in record.headers if value is not None]
        command: list[bytes] = [b"kcat", b"-P", b"-b", bootstrap_servers.encode(), b"-t", topic.encode(), *headers]
        if record.value is None:
            # An empty file is no record; a line that ends after its key is one.
            subprocess.run([*command, b"-Z", b"-K\t"], input=b"%s\t\n" % record.key, check=True, timeout=30)
        else:
            body.write_bytes(record.value)  # a file is one whole value, whatever it holds
            key = [] if record.key is None else [b"-k", record.key]
            subprocess.run([*command, *key, bytes(body)], check=True, timeout=30)


class Client(NamedTuple):
    name: str
    produce: Callable[[str, str, Sequence[Sent]], None]
    records: list[Sent]


@pytest.fixture(scope="module", params=["java", "kcat"])
def client(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Client:
    if request.param == "java":
        with_null = Sent(b"null header", b"v", (("none", None), *HEADERS))
        return Client("java", java, [*TEXT, with_null])
    if shutil.which("kcat") is None:
        pytest.skip("kcat is not on PATH")
    folder = tmp_path_factory.mktemp("kcat")
    binary = Sent(b"\xff\xfe", b"\x00\xff\n\t binary", (("binary", b"\xff\xfe\x01"), *HEADERS, ("binary", b"\xff")))
    return Client("kcat", partial(kcat, folder=folder), [*TEXT[-4:], TEXT[2], binary])


@pytest.fixture(scope="module")
def here(bootstrap_servers: str) -> Iterator[Installation]:
    with installation(bootstrap_servers) as one:
        yield one


def register(here: Installation, client: Client, what: str) -> str:
    """A group whose retry topic has as many partitions as the origin topic."""
    group = here.name(f"{what}-{client.name}")
    here.write_groups([SubscriptionGroupConfig(group_name=group, retry_queue_nums=PARTITIONS)])
    return group


def as_sent(messages: Sequence[Message]) -> list[Sent]:
    return sorted((Sent(one.key, one.body, tuple(one.headers)) for one in messages), key=repr)


def places(messages: Sequence[Message]) -> dict[bytes, int]:
    """The partition of each key."""
    return {one.key: one.kafka.partition for one in messages if one.key is not None}


def test_what_another_client_produced_goes_all_the_way_untouched(here: Installation, client: Client) -> None:
    group, topic = register(here, client, "loop"), here.topic(f"flights-{client.name}", PARTITIONS)
    client.produce(here.settings.bootstrap_servers, topic, client.records)

    def cannot(_messages: Sequence[Message], _context: ConsumeConcurrentlyContext) -> ConsumeConcurrentlyStatus:
        raise ValueError("no dep_time")

    listener, expected = Deliveries(cannot), len(client.records)
    with here.consumer(group, topic, listener, max_reconsume_times=1):
        wait_until(lambda: len(here.dead_letters(group)) >= expected, "all are dead letters")
    letters = here.dead_letters(group)
    first = [one for one in listener.messages if not one.is_retry]
    retries = [one for one in listener.messages if one.is_retry]
    assert as_sent(first) == as_sent(retries) == sorted(client.records, key=repr)
    dead = [Sent(one.key, one.value, tuple(user_headers(one.headers))) for one in letters]
    assert sorted(dead, key=repr) == sorted(client.records, key=repr)
    assert {one.topic for one in retries} == {topic}
    if client.name == "java":
        assert set(places(first).values()) == set(range(PARTITIONS)), "the keys are spread"
        assert places(retries) == places(first)


def test_what_another_client_puts_into_the_inbox_is_a_retry(here: Installation, client: Client) -> None:
    group, topic = register(here, client, "inbox"), here.topic(f"sent-back-{client.name}", PARTITIONS)
    ours: tuple[Header, ...] = (
        ("REAL_TOPIC", f"%RETRY%{group}".encode()),
        ("RETRY_TOPIC", topic.encode()),
        ("DELAY_LEVEL_WHEN_NEXT_CONSUME", b"1"),
    )
    failed = [record._replace(headers=(*ours, *record.headers)) for record in client.records]
    client.produce(here.settings.bootstrap_servers, here.settings.names.send_back, failed)
    client.produce(here.settings.bootstrap_servers, topic, client.records)
    listener = Deliveries(lambda _messages, _context: SUCCESS)
    with here.consumer(group, topic, listener):
        wait_until(lambda: len(listener.batches) >= 2 * len(failed), "the retries, and the first copies")
    first = [one for one in listener.messages if not one.is_retry]
    retries = [one for one in listener.messages if one.is_retry]
    assert as_sent(first) == as_sent(retries) == sorted(client.records, key=repr)
    assert {(one.topic, one.reconsume_times) for one in retries} == {(topic, 1)}
    if client.name == "java":
        assert places(retries) == places(first)
