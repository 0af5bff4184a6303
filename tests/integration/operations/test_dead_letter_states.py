"""What became of dead letters, on a real Kafka: written with the resend itself, kept as long as the dead letters."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from reconsume.bridge.reading.range_reader import RangeReader
from reconsume.cli.commands.dlq import list_letters, reopen_letters, resend_letters, resolve_letters, show_letter
from reconsume.cli.common import Here
from reconsume.delay_levels.errors import TopicNotReady
from reconsume.delay_levels.wire.dead_letter_states import DeadLetterKey, decode_state, encode_state
from reconsume.delay_levels.wire.jobs.job_records import DeadLetterFilter
from reconsume.operations.dead_letter_states import StatesReader
from reconsume.operations.dead_letters import read_one, read_page
from reconsume.operations.record_address import RecordAddress
from reconsume.operations.resolve import reopen, resolve
from tests.integration.installation import Installation, installation
from tests.integration.operations.test_dlq import with_dead_letters
from tests.support.resends import planned, resend
from tests.support.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.kafka

FIRST, SECOND, THIRD = (RecordAddress(0, number) for number in range(3))


@pytest.fixture(scope="module")
def here(bootstrap_servers: str) -> Iterator[Installation]:
    with installation(bootstrap_servers) as one:
        yield one


def states(here: Installation, group: str) -> list[tuple[str, str | None]]:
    """Place and state of each dead letter, newest first."""
    return [(str(one.place), one.state.state if one.state else None) for one in read_page(here.cluster, group).records]


def forget_what_was_sent(here: Installation) -> None:
    """As retention does on day 8: all records of `DELAY.0s` are gone."""
    lane = here.settings.names.delay(0)
    partitions = [(lane, one) for one in range(here.admin.partitions([lane])[lane])]
    ends = here.admin.end_offsets(partitions)
    wanted = [TopicPartition(*where, end) for where, end in ends.items()]
    client = AdminClient(here.settings.client_settings())  # its answers never come once it is forgotten
    for deletion in client.delete_records(wanted).values():
        deletion.result(PATIENCE)
    wait_until(lambda: here.admin.end_offsets(partitions, earliest=True) == ends, "the records are gone")


def test_what_was_sent_again_on_day_1_is_not_sent_again_on_day_9(here: Installation) -> None:
    group = with_dead_letters(here, 3)
    day_1, outcomes = resend(here.cluster, group, [FIRST, SECOND])
    assert outcomes == ["sent", "sent"]
    wait_until(lambda: len(here.retries(group)) == 2, "they arrive")
    forget_what_was_sent(here)
    assert resend(here.cluster, group, [FIRST, SECOND, THIRD], by="bob")[1] == ["replayed", "replayed", "sent"]
    wait_until(lambda: len(here.retries(group)) == 3, "the third arrives")
    first = read_one(here.cluster, group, FIRST).state
    assert first is not None
    assert (first.state, first.by, first.job) == ("RESENT", "alice", day_1)
    assert abs(first.at_ms - time.time() * 1_000) < 600_000
    assert states(here, group) == [("0/2", "RESENT"), ("0/1", "RESENT"), ("0/0", "RESENT")]


def test_a_state_is_found_though_the_brokers_clock_was_set_back_after_its_letter(here: Installation) -> None:
    """By the append times, the state is older than its letter."""
    group = with_dead_letters(here, 1)
    resolve(here.cluster, group, [FIRST], by="alice", why="too old")
    where = DeadLetterKey(here.settings.names.dead_letter(group), 0, 17, int(time.time() * 1_000) + 3_000_000)
    before = read_one(here.cluster, group, FIRST).state
    assert before is not None
    here.produce(here.settings.names.dead_letter_states, encode_state(before).encode(), key=str(where).encode())
    state = StatesReader(here.cluster).of(where)
    assert state is not None
    assert state.why == "too old"


def test_states_are_committed_with_the_resend(here: Installation) -> None:
    """One record for each dead letter, and none of a plan that sends nothing."""
    group = with_dead_letters(here, 3)
    where = here.settings.names.dead_letter_states, 0
    before = here.admin.end_offsets([where])[where]
    planned(here.cluster, group, [FIRST, SECOND])
    assert here.admin.end_offsets([where])[where] == before
    once, _ = resend(here.cluster, group, [FIRST, SECOND])
    resend(here.cluster, group, [FIRST, SECOND])
    end = here.admin.end_offsets([where])[where]
    with RangeReader(here.cluster.base, "states") as reader:
        found = [(message.key(), message.value()) for message in reader.read({where: (before, end)})]
    assert [str(key).count(f"DLQ.{group}/0/") for key, _ in found] == [1, 1]
    assert [decode_state(value or b"").job for _, value in found] == [once, once]


def test_a_resolved_one_is_sent_by_nobody_until_it_is_opened_again(here: Installation) -> None:
    group = with_dead_letters(here, 3)
    [done] = resolve(here.cluster, group, [FIRST], by="carol", why="the flight was cancelled")
    assert (done.before, done.is_changed) == ("OPEN", True)
    [again] = resolve(here.cluster, group, [FIRST], by="dave", why="another reason")
    assert (again.before, again.is_changed) == ("RESOLVED", False)
    state = read_one(here.cluster, group, FIRST).state
    assert state is not None
    assert (state.by, state.why) == ("carol", "the flight was cancelled")
    assert planned(here.cluster, group, [FIRST, SECOND]) == ["resolved", "send"]
    assert [one.place for one in read_page(here.cluster, group, DeadLetterFilter(state="RESOLVED")).records] == [FIRST]
    assert [one.place for one in read_page(here.cluster, group, DeadLetterFilter(state="OPEN")).records] == [
        THIRD,
        SECOND,
    ]
    assert [one.is_changed for one in reopen(here.cluster, group, [FIRST, SECOND])] == [True, False]
    assert resend(here.cluster, group, [FIRST])[1] == ["sent"]
    [late] = resolve(here.cluster, group, [FIRST], by="carol", why="too late")
    assert (late.before, late.is_changed) == ("RESENT", False)


def test_a_topic_that_was_made_again_has_open_letters(here: Installation) -> None:
    group = with_dead_letters(here, 1)
    resolve(here.cluster, group, [FIRST], by="carol", why="x")
    topic = here.settings.names.dead_letter(group)
    here.delete(topic)
    here.admin.create(topic, 1, -1, {"message.timestamp.type": "LogAppendTime"})
    here.produce(topic, b"another one", headers=[("ORIGIN_MESSAGE_ID", b"flights/0/99")])
    assert states(here, group) == [("0/0", None)]


def test_the_commands_say_what_became_of_each(here: Installation, capsys: pytest.CaptureFixture[str]) -> None:
    group = with_dead_letters(here, 4)
    table, document = Here(here.cluster, as_json=False), Here(here.cluster, as_json=True)
    resolve_letters(table, DeadLetterFilter(), group, "no such flight", ["0/0"], yes=True)
    assert capsys.readouterr().out.split() == ["1", "resolved"]
    resend_letters(table, DeadLetterFilter(), group, ["0/1"], yes=True)
    capsys.readouterr()
    list_letters(document, DeadLetterFilter(), group)
    told = {one["record"]: one["state"] for one in json.loads(capsys.readouterr().out)["records"]}
    assert told == {"0/0": "RESOLVED", "0/1": "RESENT", "0/2": "OPEN", "0/3": "OPEN"}
    list_letters(document, DeadLetterFilter(state="OPEN"), group)
    assert [one["record"] for one in json.loads(capsys.readouterr().out)["records"]] == ["0/3", "0/2"]
    show_letter(document, group, "0/0")
    shown = json.loads(capsys.readouterr().out)
    assert (shown["state"], shown["state_why"]) == ("RESOLVED", "no such flight")
    resolve_letters(document, DeadLetterFilter(), group, "rest", all_of_them=True, yes=True)
    changed = json.loads(capsys.readouterr().out)["records"]
    assert [(one["record"], one["changed"]) for one in changed] == [("0/2", True), ("0/3", True)]
    reopen_letters(table, group, ["0/0", "0/1"])
    assert capsys.readouterr().out.split("\n")[:2] == ["       1  opened", "       1  left as they were: resent"]


def test_without_the_topic_of_states_letters_are_listed_and_nothing_is_sent(bootstrap_servers: str) -> None:
    """As with an installation of an earlier version, until `reconsume topics apply`."""
    with installation(bootstrap_servers) as earlier:
        topic = earlier.settings.names.dead_letter_states
        earlier.delete(topic)
        group = with_dead_letters(earlier, 1)
        assert states(earlier, group) == [("0/0", None)]
        for act in (
            lambda: resend(earlier.cluster, group, [FIRST]),
            lambda: resolve(earlier.cluster, group, [FIRST], by="a", why="x"),
        ):
            with pytest.raises(TopicNotReady, match="reconsume topics apply"):
                act()


def test_of_two_people_who_resolve_at_once_the_first_ones_reason_stays(
    here: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = with_dead_letters(here, 2)

    catch_up = StatesReader.catch_up

    def meanwhile(states: StatesReader) -> None:
        monkeypatch.setattr(StatesReader, "catch_up", catch_up)
        states.catch_up()
        resolve(here.cluster, group, [FIRST], by="bob", why="sent by hand")

    monkeypatch.setattr(StatesReader, "catch_up", meanwhile)
    done = resolve(here.cluster, group, [FIRST, SECOND], by="alice", why="too old")
    assert [(one.before, one.is_changed) for one in done] == [("RESOLVED", False), ("OPEN", True)]
    found = [one.state for one in read_page(here.cluster, group).records]
    assert [(one.by, one.why) for one in found if one] == [("alice", "too old"), ("bob", "sent by hand")]
