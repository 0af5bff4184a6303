"""What a worker makes of refusals: few trials, no wrong verdict, and other targets go on."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from confluent_kafka import Message

from reconsume.bridge.scheduler.delivery.refusals import Refusals
from reconsume.bridge.scheduler.delivery.writers import BatchAborted
from reconsume.bridge.scheduler.queues.partition_queues import PartitionQueue, Waits
from reconsume.bridge.scheduler.queues.read_ahead import DueRun
from reconsume.bridge.scheduler.targets.record_size import MessageSets, SizeSearch, record_batch_bytes
from reconsume.bridge.scheduler.targets.routing import Delivery
from reconsume.delay_levels.errors import KafkaNotReachable, KafkaRefused, ReconsumeError, RecordTooLarge

LANE = PartitionQueue("lane", 0, 0)
TOO_LARGE = BatchAborted(RecordTooLarge("too large"), passing=False, topic="bad")


@dataclass
class FakeTrials:
    """Brokers with a limit for a record alone."""

    limit: int
    tried: list[int] = field(default_factory=list)
    sets: dict[str, int | None] = field(default_factory=dict)
    answers: list[Exception] = field(default_factory=list)
    settings: dict[str, str] = field(default_factory=dict)

    def try_alone(self, delivery: Delivery) -> ReconsumeError | None:
        if self.answers:
            raise self.answers.pop(0)
        self.tried.append(record_batch_bytes(delivery))
        return RecordTooLarge("too large") if self.tried[-1] > self.limit else None

    def limit_sets(self, topic: str, max_bytes: int | None) -> None:
        self.sets[topic] = max_bytes


@dataclass
class ValidatingTrials(FakeTrials):
    """Brokers with a rule of their own: values of an odd size are refused."""

    def try_alone(self, delivery: Delivery) -> ReconsumeError | None:
        self.tried.append(len(delivery.value or b""))
        return KafkaRefused("no schema") if self.tried[-1] % 2 else None


class FakeRouter:
    def quarantine(self, message: Message, reason: str) -> Delivery:
        return to("quarantine", message.value())._replace(outcome="quarantined", headers=[("why", reason.encode())])


def to(topic: str, value: bytes | None) -> Delivery:
    return Delivery(topic, 0, None, value, [], "delivered", topic)


def refusals(trials: FakeTrials | None, **more: Any) -> Refusals:
    def settings_of(topic: str) -> Mapping[str, str]:
        assert topic == "bad"
        return {} if trials is None else trials.settings

    return Refusals(cast("Any", FakeRouter()), cast("Any", trials), settings_of=settings_of, **more)


def batch_of(*targets: tuple[str, int], first: int = 0) -> tuple[list[DueRun], list[Delivery]]:
    """Records of one partition, by target and size of their values."""
    records: list[Waits] = [
        (0, Message(topic="lane", partition=0, offset=first + number, value=b"x" * size))
        for number, (_, size) in enumerate(targets)
    ]
    return [DueRun(LANE, records)], [to(topic, b"x" * size) for topic, size in targets]


def settle(one: Refusals, now: float = 0.0) -> None:
    for _ in range(100):
        one.step(now)


def outcomes(deliveries: list[Delivery]) -> list[str]:
    return [delivery.outcome for delivery in deliveries]


@pytest.mark.parametrize(("settings", "most"), [({}, 11), ({"max.message.bytes": "20000"}, 1)])
@pytest.mark.parametrize("share", [1, 10, 50, 100])
def test_the_limit_of_a_target_is_found_with_few_trials_and_holds_for_all_larger_records(
    share: int, settings: dict[str, str], most: int
) -> None:
    trials = FakeTrials(20_000, settings=settings)
    one = refusals(trials)
    sizes = [20_000 + 37 * n % 9_000 if n % 100 < share else 500 + n for n in range(1_000)]
    runs, batch = batch_of(*(("bad", size) for size in sizes))
    assert one.learn(runs, batch, TOO_LARGE, 0)
    settle(one)
    assert len(trials.tried) <= most
    left_runs, left = one.overrule(runs, batch, 1_000)
    assert [len(run.records) for run in left_runs] == [1_000]
    assert [delivery.outcome == "quarantined" for delivery in left] == [
        record_batch_bytes(delivery) > trials.limit for delivery in batch
    ]


def test_while_a_limit_is_looked_for_records_in_front_of_that_target_go_on() -> None:
    one = refusals(FakeTrials(100))
    runs, batch = batch_of(("good", 1), ("good", 2), ("bad", 300), ("good", 3), ("bad", 1))
    one.learn(runs, batch, TOO_LARGE, 0)
    left_runs, left = one.overrule(runs, batch, 0)
    assert ([len(run.records) for run in left_runs], left) == ([2], batch[:2])
    settle(one)
    _, left = one.overrule(runs, batch, 0)
    assert outcomes(left) == ["delivered", "delivered", "quarantined", "delivered", "delivered"]


@pytest.mark.parametrize("steps", [0, 1])
def test_no_verdict_is_left_of_a_partition_that_went_away_during_a_search(steps: int) -> None:
    trials = FakeTrials(100)
    one = refusals(trials)
    runs, batch = batch_of(("bad", 300), ("bad", 1))
    one.learn(runs, batch, TOO_LARGE, 0)
    for _ in range(steps):
        one.step(0)
    one.revoke([("another lane", 0)])
    assert one, "another partition ends no search"
    one.revoke([("lane", 0)])
    settle(one)
    assert len(trials.tried) == steps
    assert not one


def test_a_refusal_holds_for_seconds_and_one_trial_finds_out_whether_it_still_does() -> None:
    trials = FakeTrials(200)
    one = refusals(trials)
    runs, batch = batch_of(("bad", 300))
    one.learn(runs, batch, TOO_LARGE, 0)
    settle(one)
    later, deliveries = batch_of(("bad", 400), ("bad", 500), first=1)
    assert outcomes(one.overrule(later, deliveries, 4_999)[1]) == ["quarantined"] * 2
    assert one.overrule(later, deliveries, 5_001) == ([], [])
    settle(one, 5_001)
    assert len(trials.tried) == 2
    assert outcomes(one.overrule(later, deliveries, 5_002)[1]) == ["quarantined"] * 2
    trials.limit = 10_000
    assert one.overrule(*batch_of(("bad", 400), first=3), 11_000) == ([], [])
    settle(one, 11_000)
    rest, deliveries = batch_of(("bad", 400), ("bad", 500), first=3)
    assert one.overrule(rest, deliveries, 11_001)[1] == deliveries
    assert trials.sets == {"bad": None}


def test_records_that_are_compressed_are_each_refused_alone() -> None:
    """A larger one may take less space."""
    trials = FakeTrials(200)
    one = refusals(trials, compresses=True)
    runs, batch = batch_of(("bad", 300), ("bad", 400), ("bad", 300))
    one.learn(runs, batch, TOO_LARGE, 0)
    for _ in range(20):
        one.overrule(runs, batch, 0)
        one.step(0)
    assert outcomes(one.overrule(runs, batch, 0)[1]) == ["quarantined"] * 3
    assert len(trials.tried) >= 3


def test_records_that_are_too_large_only_together_are_sent_in_smaller_requests_and_none_is_quarantined() -> None:
    trials = FakeTrials(20_000)
    one = refusals(trials)
    runs, batch = batch_of(*[("bad", 1_000)] * 100)
    largest = record_batch_bytes(batch[0])
    asked = 0
    while one.learn(runs, batch, TOO_LARGE, 0):
        settle(one)
        assert one.overrule(runs, batch, 0)[1] == batch
        asked += 1
        if (trials.sets["bad"] or 0) <= trials.limit:
            break
    assert asked <= 3
    assert largest <= (trials.sets["bad"] or 0)


def test_trials_without_a_verdict_leave_it_to_the_worker_to_halve() -> None:
    for error in (KafkaNotReachable("away"), KafkaRefused("no right to use the transactional id")):
        trials = FakeTrials(100, answers=[error] * 3)
        one = refusals(trials)
        runs, batch = batch_of(("bad", 300), ("bad", 1))
        assert one.learn(runs, batch, TOO_LARGE, 0)
        for now in range(0, 5_000, 500):
            one.step(now)
        assert one.overrule(runs, batch, 0)[1] == batch
        assert not one.learn(runs, batch, TOO_LARGE, 0)


def test_a_record_refused_alone_tells_of_larger_ones_also_without_trials() -> None:
    one = refusals(None)
    runs, batch = batch_of(("bad", 300), ("bad", 299), ("bad", 301), ("good", 301))
    assert not one.learn(runs, batch, TOO_LARGE, 0)
    one.refused_alone(("lane", 0, 0), batch[0], RecordTooLarge("too large"), 0)
    assert outcomes(one.overrule(runs, batch, 0)[1]) == ["quarantined", "delivered", "quarantined", "delivered"]
    assert outcomes(one.overrule(runs, batch, 6_000)[1]) == ["quarantined", "delivered", "delivered", "delivered"]


def test_a_target_without_the_right_to_write_is_asked_for_and_not_tried() -> None:
    denied, questions = {"bad": "no right"}, list[set[str]]()

    def unwritable(topics: Collection[str]) -> Mapping[str, str]:
        questions.append(set(topics))
        return {topic: why for topic, why in denied.items() if topic in topics}

    one = refusals(FakeTrials(100), unwritable=unwritable)
    runs, batch = batch_of(("good", 1), ("bad", 1))
    refused = BatchAborted(KafkaRefused("no right to use the topic"), passing=False)
    assert one.learn(runs, batch, refused, 0)
    assert outcomes(one.overrule(runs, batch, 4_000)[1]) == ["delivered", "quarantined"]
    for now in (5_001, 10_002):
        assert outcomes(one.overrule(runs, batch, now)[1]) == ["delivered"]
        one.step(now)
        assert outcomes(one.overrule(runs, batch, now)[1]) == ["delivered", "quarantined"]
    denied.clear()
    one.overrule(runs, batch, 20_000)
    one.step(20_000)
    assert one.overrule(runs, batch, 20_000)[1] == batch
    assert questions == [{"good", "bad"}, {"bad"}, {"bad"}, {"bad"}]
    assert not one.learn(runs, batch, refused, 20_000), "the source may be what is refused"


def test_a_compacted_target_that_refused_a_record_without_a_key_gets_only_records_with_keys() -> None:
    trials = FakeTrials(100, settings={"cleanup.policy": "delete,compact"})
    one = refusals(trials)
    runs, [refused, keyed, good] = batch_of(("bad", 1), ("bad", 1), ("good", 1))
    batch = [refused, keyed._replace(key=b"k"), good]
    one.refused_alone(("lane", 0, 7), refused, KafkaRefused("INVALID_RECORD"), 0)
    assert outcomes(one.overrule(runs, batch, 4_000)[1]) == ["quarantined", "delivered", "delivered"]
    assert one.overrule(runs, batch, 5_001)[1] == [], "whether it is still compacted is asked first"
    one.step(5_001)
    assert outcomes(one.overrule(runs, batch, 5_001)[1]) == ["quarantined", "delivered", "delivered"]
    trials.settings["cleanup.policy"] = "delete"
    one.overrule(runs, batch, 10_002)
    one.step(10_002)
    assert one.overrule(runs, batch, 10_002)[1] == batch


def test_a_record_with_a_key_or_for_another_target_says_nothing_of_records_without_keys() -> None:
    for policy, key in (("compact", b"k"), ("delete", None), ("", None)):
        one = refusals(FakeTrials(100, settings={"cleanup.policy": policy}))
        runs, [refused, other] = batch_of(("bad", 1), ("bad", 1))
        one.refused_alone(("lane", 0, 0), refused._replace(key=key), KafkaRefused("INVALID_RECORD"), 0)
        assert outcomes(one.overrule(runs, [refused, other], 0)[1]) == ["quarantined"], "the other one is tried"
        one.step(0)
        assert outcomes(one.overrule(runs, [refused, other], 0)[1]) == ["quarantined", "delivered"], policy


def test_a_record_refused_alone_for_a_missing_right_tells_of_all_records_of_its_target() -> None:
    trials = FakeTrials(100)
    one = refusals(trials, unwritable=lambda topics: dict.fromkeys(topics & {"bad"}, "no right"))
    runs, batch = batch_of(("bad", 1), ("good", 1), ("bad", 1))
    one.refused_alone(("lane", 0, 0), batch[0], KafkaRefused("no right"), 0)
    assert outcomes(one.overrule(runs, batch, 0)[1]) == ["quarantined", "delivered", "quarantined"]
    assert trials.tried == []


def test_after_a_refusal_for_any_other_reason_each_record_of_the_target_is_tried_alone() -> None:
    trials = ValidatingTrials(0)
    one = refusals(trials)
    runs, batch = batch_of(("bad", 1), ("bad", 2), ("good", 1), ("bad", 3), ("bad", 4))
    one.refused_alone(("lane", 0, 0), batch[0], KafkaRefused("no schema"), 0)
    assert outcomes(one.overrule(runs, batch, 0)[1]) == ["quarantined"], "the next one has to be tried"
    for now in (4_000, 8_000, 12_000):
        one.step(now)
        one.overrule(runs, batch, now)
    kept = one.overrule(runs, batch, 12_000)[1]
    assert outcomes(kept) == ["quarantined", "delivered", "delivered", "quarantined", "delivered"]
    assert dict(kept[3].headers)["why"] == b"no schema"
    assert trials.tried == [2, 3, 4]
    one.forget([("lane", 0, number) for number in range(5)])
    later, others = batch_of(("bad", 1), ("bad", 2), first=5)
    assert one.overrule(later, others, 12_000)[1] == [], "the last refusal was 4 s ago"
    one.revoke([("lane", 0)])
    assert one.overrule(later, others, 13_001)[1] == others
    assert not one


def test_a_target_is_forgotten_after_a_while() -> None:
    one = refusals(FakeTrials(100))
    runs, batch = batch_of(("bad", 300))
    one.learn(runs, batch, TOO_LARGE, 0)
    settle(one)
    one.forget([("lane", 0, 0)])
    assert one
    one.step(700_000)
    assert not one


@pytest.mark.parametrize("number", range(1, 40))
def test_the_search_finds_the_smallest_refused_size(number: int) -> None:
    sizes = list(range(10, 10 + number))
    for limit in range(9, 51):
        search, steps = SizeSearch(sizes), 0
        while (size := search.next_size) is not None:
            search.answer(refused=size > limit)
            steps += 1
        assert search.smallest_refused == next((size for size in sizes if size > limit), None)
        assert steps <= 1 + number.bit_length()


def test_a_hint_is_tried_and_a_wrong_one_misleads_no_verdict() -> None:
    trials = FakeTrials(400, settings={"max.message.bytes": "200"})
    one = refusals(trials)
    runs, batch = batch_of(*(("bad", size) for size in range(50, 600, 50)))
    one.learn(runs, batch, TOO_LARGE, 0)
    settle(one)
    found = [delivery.outcome == "quarantined" for delivery in one.overrule(runs, batch, 0)[1]]
    assert found == [record_batch_bytes(delivery) > trials.limit for delivery in batch]


def test_requests_for_a_limited_topic_are_cut() -> None:
    sets = MessageSets()
    sets.limit("bad", 2 * record_batch_bytes(to("bad", b"x" * 100)))
    sets.begin()
    assert [sets.has_room(to(topic, b"x" * 100)) for topic in ("bad", "good", "bad", "good", "bad", "bad", "bad")] == [
        *(True, True, True, True),
        *(False, True, False),
    ]
    assert not sets.has_room(to("bad", b"x" * 10_000)), "it goes in a request of its own"
    sets.limit("bad", None)
    assert not sets
