"""The quarantine: read, and give records back to the schedulers, each once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from reconsume.bridge.admin import KafkaAdmin
from reconsume.bridge.clients import discard_producer, make_producer
from reconsume.bridge.fatal_errors import wait_for_reports
from reconsume.bridge.kafka import headers_of, transactional_settings, translate
from reconsume.bridge.place import Place
from reconsume.bridge.settings import Settings
from reconsume.bridge.spans import SpanReader
from reconsume.delay_levels.errors import IllegalSetting, MalformedProperty
from reconsume.delay_levels.quarantine import Quarantined, release_marker, released_offset
from reconsume.delay_levels.send_back import Position

__all__ = ["QuarantineRecord", "read_quarantine", "release"]

_SECONDS: Final = 30.0
_TRANSACTION_MS: Final = 15_000
_TOGETHER: Final = 500
"""Records of one transaction."""


@dataclass(frozen=True, slots=True)
class QuarantineRecord:
    """One of them.

    Attributes:
        stored_ms: when it came to the quarantine.
        is_released: whether it was given back.
    """

    place: Place
    key: bytes | None
    value: bytes | None
    quarantined: Quarantined
    stored_ms: int
    is_released: bool


def read_quarantine(settings: Settings, *, to_the_last: bool = False) -> list[QuarantineRecord]:
    """All that was ever put there, in order; what no scheduler has written is left out.

    Args:
        settings: of the installation.
        to_the_last: wait for transactions that are open now: what was committed behind the first of them is not seen
            before its end.

    Raises:
        KafkaNotReachable: the topic was not read to its end within 30 s without news.
        KafkaRefused: rights are missing.
    """
    released: set[Place] = set()
    found: list[tuple[Place, Message, Quarantined]] = []
    for message in _messages(settings, to_the_last=to_the_last):
        place, headers = Place(message.partition() or 0, message.offset() or 0), headers_of(message)
        if (offset := released_offset(headers)) is not None:
            released.add(Place(place.partition, offset))
            continue
        try:
            found.append((place, message, Quarantined.of(headers)))
        except MalformedProperty:
            continue
    return [
        QuarantineRecord(place, one.key(), one.value(), quarantined, one.timestamp()[1], place in released)
        for place, one, quarantined in found
    ]


def _messages(settings: Settings, *, to_the_last: bool) -> Iterator[Message]:
    """All committed records as of now."""
    base, topic = settings.client_settings(), settings.names.quarantine
    admin = KafkaAdmin(base)
    partitions = [(topic, one) for one in range(admin.partitions([topic]).get(topic, 0))]
    starts, ends = admin.end_offsets(partitions, earliest=True), admin.end_offsets(partitions, uncommitted=to_the_last)
    with SpanReader(base, "reconsume-quarantine") as reader:
        yield from reader.read({where: (starts[where], ends[where]) for where in partitions})


def release(settings: Settings, chosen: Collection[Place] | None, changes: Mapping[str, str]) -> list[QuarantineRecord]:
    """Give records back to the schedulers, in transactions that also mark them as released.

    Whoever releases at the same time is fenced, and what was released before is refused, so each goes once.

    Args:
        settings: of the installation.
        chosen: where they stand; None takes all that are not released.
        changes: headers to set anew on each.

    Raises:
        IllegalSetting: one of the chosen is not there, or was released before; nothing was released.
        KafkaNotReachable: an answer did not come; the same call goes on, or refuses what is done.
    """
    base, names = settings.client_settings(), settings.names
    producer = make_producer(transactional_settings(base, f"{names.prefix}quarantine-release", _TRANSACTION_MS))
    try:
        # First: from here on nobody else's release can be committed any more, so what is read is the last word.
        _call(lambda: producer.init_transactions(_SECONDS), "registering the transactional id")
        records = _choose(read_quarantine(settings, to_the_last=True), chosen)
        for start in range(0, len(records), _TOGETHER):
            part = records[start : start + _TOGETHER]
            _call(partial(_transaction, producer, settings, part, changes), "releasing")
    finally:
        discard_producer(producer)
    return records


def _choose(records: Sequence[QuarantineRecord], chosen: Collection[Place] | None) -> list[QuarantineRecord]:
    if chosen is None:
        return [one for one in records if not one.is_released]
    known = {one.place: one for one in records}
    for place in chosen:
        if place not in known:
            raise IllegalSetting(f"{place}: there is no such record; `reconsume quarantine list` shows them")
        if known[place].is_released:
            raise IllegalSetting(f"{place}: it was released before, and none is released twice")
    return [known[place] for place in sorted(set(chosen))]


def _transaction(
    producer: Producer, settings: Settings, records: Sequence[QuarantineRecord], changes: Mapping[str, str]
) -> None:
    producer.begin_transaction()
    stored: dict[Place, Position] = {}
    failed: list[KafkaError] = []
    for one in records:
        topic, headers = one.quarantined.back(settings.names, changes)
        told = partial(_tell, stored, failed, one.place)
        producer.produce(topic, one.value, one.key, headers=headers, on_delivery=told)  # type: ignore[arg-type]
    wait_for_reports(producer, _SECONDS)
    if len(stored) < len(records):
        producer.abort_transaction(_SECONDS)  # it says so if this producer is fenced
        raise KafkaException(failed[0] if failed else KafkaError(KafkaError._TIMED_OUT))
    for one in records:
        # A mark says where the record went, so that a reader of both topics knows the two for one.
        mark, value = release_marker(one.place.offset), str(stored[one.place]).encode()
        producer.produce(settings.names.quarantine, value, partition=one.place.partition, headers=mark)  # type: ignore[arg-type]
    producer.commit_transaction(_SECONDS)


def _tell(
    stored: dict[Place, Position], failed: list[KafkaError], place: Place, error: KafkaError | None, message: Message
) -> None:
    """Called by the producer for each record."""
    if error is not None:
        failed.append(error)
        return
    stored[place] = Position(message.topic() or "", message.partition() or 0, message.offset() or 0)


def _call(act: Callable[[], object], doing: str) -> None:
    try:
        act()
    except KafkaException as error:
        raise translate(error, f"{doing} from the quarantine") from error
