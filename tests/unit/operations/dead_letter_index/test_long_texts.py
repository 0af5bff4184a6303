"""Texts of foreign records have no limit of their own, so the index and its rules have one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.process.settings import Settings
from reconsume.bridge.reading.range_reader import ReadRecord
from reconsume.delay_levels.wire.dead_letter_states import DeadLetterKey, DeadLetterState
from reconsume.delay_levels.wire.jobs.job_records import DeadLetterFilter
from reconsume.delay_levels.wire.properties import ORIGIN_MESSAGE_ID, RETRY_TOPIC, Header
from reconsume.operations.dead_letter_index.causes import CauseLabels
from reconsume.operations.dead_letter_index.follower import DeadLetterIndex
from reconsume.operations.dead_letter_index.letters import IndexedLetter, LetterFilter, Progress
from reconsume.operations.dead_letter_index.pages import indexed_page
from reconsume.operations.dead_letter_index.store import DeadLetterStore
from reconsume.operations.dead_letters import matches, record_of

TOPIC = "reconsume.DLQ.departures"
LONG = "A" * 900_000


def letter(offset: int, message_id: str, **more: object) -> IndexedLetter:
    key = DeadLetterKey(TOPIC, 0, offset, 1_000 + offset)
    one = IndexedLetter(key, "departures", message_id, None, "flights", None, "x", None, None, 1, 0, 300, {})
    return replace(one, **more)  # type: ignore[arg-type]


def test_a_rule_reads_the_beginning_of_a_class() -> None:
    r"""A harmless rule, such as `\w+TimeoutException`, takes quadratic time, and no other thread runs meanwhile."""
    labels = CauseLabels({"A{501}": "whole", "A{500}: no": "beginning"})
    assert labels.label(LONG, "no answer") == "beginning"
    assert CauseLabels().label(LONG, None) == "A" * 120


def test_letters_with_long_texts_fit_into_the_index() -> None:
    store = DeadLetterStore(None, 16)
    letters = [
        letter(at, f"{LONG}{at}", exception_class=LONG, cause=LONG, origin_topic=LONG, record_key=LONG.encode())
        for at in range(40)
    ]
    store.add(letters, {}, {(TOPIC, 0): Progress("id", 40)})
    page = indexed_page(store, "departures", TOPIC, DeadLetterFilter(), None, 500)
    assert len(page.records) == 40
    for one in page.records:
        shown = one.letter
        assert {len(shown.exception_class or ""), len(shown.cause or "")} == {2_000}
        assert {len(shown.origin_message_id), len(shown.origin_topic or "")} == {512}


def test_a_state_with_long_texts_fits_into_the_index() -> None:
    store = DeadLetterStore(None, 16)
    letters = [letter(at, str(at)) for at in range(40)]
    store.add(letters, {}, {(TOPIC, 0): Progress("id", 40)})
    store.add((), {one.key: DeadLetterState("RESOLVED", 5_000, LONG, LONG, LONG, LONG) for one in letters}, {})
    assert store.count(LetterFilter(state="RESOLVED")) == 40


def test_long_ids_and_topics_are_found_and_told_apart() -> None:
    store = DeadLetterStore()
    former, other, newer = letter(0, LONG + "a"), letter(1, LONG + "b"), letter(2, LONG + "a", origin_topic=LONG)
    store.add([former, other, newer], {}, {(TOPIC, 0): Progress("id", 3)})
    assert [one.key.offset for one in store.find(LetterFilter(message_id=LONG + "a"))] == [2, 0]
    assert [one.key.offset for one in store.find(LetterFilter(origin_topic=LONG))] == [2]
    assert [one.key.offset for one in store.find(LetterFilter(state="OPEN"))] == [2, 1]
    [shown] = store.find(LetterFilter(message_id=LONG + "b"))
    assert store.find(LetterFilter(message_id=shown.message_id)) == [shown]


@pytest.mark.parametrize("long", [LONG, "航班" * 400, "x" + "航班" * 400, "xx" + "航班" * 400], ids=len)
@pytest.mark.parametrize("field", ["message_id", "origin_topic", "key"])
def test_a_filter_by_what_a_list_shows_takes_the_same_letters_from_kafka(field: str, long: str) -> None:
    """A list may come from the index, and a job reads its letters from Kafka."""
    store, in_kafka, texts = DeadLetterStore(), [], [long + "a", long + "b", "a"]
    for at, text in enumerate(texts):
        headers = [(name, text.encode()) for name in (ORIGIN_MESSAGE_ID, RETRY_TOPIC)]
        in_kafka.append(record_of("departures", ReadRecord(TOPIC, 0, at, text.encode(), b"v", headers, 1_000 + at)))
        store.add([letter(at, text, origin_topic=text, record_key=text.encode())], {}, {})
    page = indexed_page(store, "departures", TOPIC, DeadLetterFilter(), None, 500)
    for shown, text in zip(page.records[::-1], texts, strict=True):
        about, key = shown.letter, (shown.key or b"").decode()
        forms = {"message_id": about.origin_message_id, "origin_topic": about.origin_topic, "key": key}
        for said in (text, forms[field]):
            asked: dict[str, Any] = {field: said}
            wanted = DeadLetterFilter(**asked)
            assert [one.place for one in in_kafka if matches(wanted, one)] == [shown.place]
            found = indexed_page(store, "departures", TOPIC, wanted, None, 500).records
            assert [one.place for one in found] == [shown.place]


@pytest.mark.parametrize(
    ("headers", "said", "is_found"),
    [
        ([("tenant", b"acme")], "tenant=acme", True),
        ([("tenant", b"globex"), ("tenant", b"acme")], "tenant=acme", True),
        ([("tenant", b"acme"), ("tenant", None)], "tenant=acme", False),
        ([("tenant", b"\xff")], "tenant=\ufffd", True),
        ([(RETRY_TOPIC, b"flights")], "RETRY_TOPIC=flights", False),
    ],
)
def test_a_filter_by_a_header_takes_the_same_letters_from_the_index_and_from_kafka(
    headers: list[Header], said: str, *, is_found: bool
) -> None:
    read = ReadRecord(TOPIC, 0, 0, b"k", b"v", headers, 1_000)
    store, wanted = DeadLetterStore(), DeadLetterFilter(header=said)
    index = DeadLetterIndex(Cluster(Settings()), store, CauseLabels())
    store.add([index._letter("departures", read)], {}, {})
    assert len(indexed_page(store, "departures", TOPIC, wanted, None, 500).records) == is_found
    assert matches(wanted, record_of("departures", read)) == is_found
