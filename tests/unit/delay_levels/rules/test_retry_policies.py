"""Retry policies of a group: RocketMQ 5's JSON, RocketMQ 5's delays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconsume.delay_levels.errors import IllegalDelayLevels
from reconsume.delay_levels.rules.durations import LONGEST_MS
from reconsume.delay_levels.rules.levels import DEFAULT_LEVEL_TABLE, DelayLevels
from reconsume.delay_levels.rules.retry_policies import (
    RetryPolicy,
    exponential_policy,
    parse_retry_policy,
    spell_waits,
)
from reconsume.delay_levels.rules.send_back import Delayed, decide_send_back
from reconsume.delay_levels.wire.names import TopicNames

DEFAULT = DelayLevels.parse(DEFAULT_LEVEL_TABLE)


def automatic_seconds(policy: RetryPolicy, sent_back: int) -> float:
    return policy.delay_ms(policy.automatic_level(sent_back)) / 1_000


def customized(*next_ms: object) -> dict[str, object]:
    return {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": list(next_ms)}}


def exponential(**parameters: object) -> dict[str, object]:
    return {"type": "EXPONENTIAL", "exponentialRetryPolicy": parameters}


@pytest.mark.rule("GP-02", "GP-06")
@pytest.mark.parametrize(
    "policy",
    [
        {},
        {"type": None},
        {"type": "CUSTOMIZED"},
        {"type": "EXPONENTIAL"},
        {"type": "EXPONENTIAL", "exponentialRetryPolicy": None},
        {"type": "EXPONENTIAL", "customizedRetryPolicy": {"next": [1]}},
        {"customizedRetryPolicy": {"next": [1]}},
    ],
    ids=str,
)
def test_no_type_or_no_parameters_is_the_default_table(policy: Mapping[str, object]) -> None:
    assert parse_retry_policy(policy) == DEFAULT


@pytest.mark.rule("GP-03")
@pytest.mark.parametrize(("sent_back", "seconds"), [(-1, 10), (0, 10), (1, 30), (10, 540), (15, 7200), (100, 7200)])
def test_customized_takes_the_third_entry_first(sent_back: int, seconds: int) -> None:
    policy = parse_retry_policy(customized(*DEFAULT.delays_ms))
    assert automatic_seconds(policy, sent_back) == seconds


@pytest.mark.rule("GP-03")
@pytest.mark.parametrize(("next_ms", "seconds"), [([7_000], 7), ([7_000, 9_000], 9), ([9_000, 7_000, 500], 0.5)])
@pytest.mark.parametrize("sent_back", [0, 1, 99])
def test_a_customized_list_of_at_most_three_always_gives_its_last(
    next_ms: list[int], seconds: float, sent_back: int
) -> None:
    assert automatic_seconds(parse_retry_policy(customized(*next_ms)), sent_back) == seconds


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=30), st.integers(-5, 60))
def test_customized_is_rocketmqs_formula(next_ms: list[int], sent_back: int) -> None:
    policy = parse_retry_policy(customized(*next_ms))
    expected = next_ms[min(max(sent_back, 0) + 2, len(next_ms) - 1)]
    assert policy.delay_ms(policy.automatic_level(sent_back)) == expected


@pytest.mark.rule("GP-04")
@pytest.mark.parametrize(
    ("sent_back", "seconds"), [(-1, 5), (0, 5), (1, 10), (2, 20), (9, 2560), (10, 5120), (11, 7200), (100, 7200)]
)
def test_exponential_doubles_from_5_seconds_to_2_hours(sent_back: int, seconds: int) -> None:
    assert automatic_seconds(parse_retry_policy(exponential()), sent_back) == seconds
    assert automatic_seconds(exponential_policy(), sent_back) == seconds


@pytest.mark.rule("GP-04", "GP-05")
@given(st.integers(1, 10**9), st.integers(0, 10**9), st.integers(1, 10**6), st.integers(-5, 200))
def test_exponential_is_rocketmqs_formula_without_its_overflow(
    initial: int, more: int, multiplier: int, sent_back: int
) -> None:
    policy = parse_retry_policy(exponential(initial=initial, max=initial + more, multiplier=multiplier))
    level = policy.automatic_level(sent_back)
    assert 1 <= level <= policy.max_level
    assert policy.delay_ms(level) == min(initial + more, initial * multiplier ** min(max(sent_back, 0), 32))
    assert policy.delay_ms(level) > 0
    assert policy.delay_ms(level) in policy.distinct_delays_ms()


@pytest.mark.rule("GP-05")
def test_a_huge_multiplier_waits_the_maximum_from_the_second_retry_on() -> None:
    policy = exponential_policy(initial_ms=5_000, max_ms=7_200_000, multiplier=2**31 - 1)
    assert [automatic_seconds(policy, sent_back) for sent_back in (0, 1, 2, 3, 32)] == [5, 7200, 7200, 7200, 7200]


def test_exponential_levels_stand_for_the_retries() -> None:
    policy = exponential_policy()
    assert [policy.delay_ms(level) for level in (1, 2, 3)] == [5_000, 10_000, 20_000]
    assert policy.capped(999) == policy.max_level == 33
    assert policy.distinct_delays_ms()[0] == 5_000
    assert policy.distinct_delays_ms()[-1] == 7_200_000
    assert len(policy.distinct_delays_ms()) == 12
    assert str(policy) == "exponential: 5s × 2^n, at most 2h"


@pytest.mark.parametrize("level", [-1, 0, 34])
def test_an_exponential_policy_has_no_other_levels(level: int) -> None:
    with pytest.raises(IllegalDelayLevels, match=f"delay level {level}: an exponential policy has levels 1 to 33"):
        exponential_policy().delay_ms(level)


@pytest.mark.rule("GP-07")
@pytest.mark.parametrize(
    ("policy", "delays_ms"),
    [(customized(1, 2, 3, 4), [3, 4, 4]), (exponential(initial=100, multiplier=3), [100, 300, 900])],
    ids=["customized", "exponential"],
)
def test_the_send_back_rule_uses_the_groups_policy(policy: Mapping[str, object], delays_ms: list[int]) -> None:
    outcomes = [decide_send_back(n, 0, 16, parse_retry_policy(policy)) for n in range(3)]
    assert [outcome.delay_ms for outcome in outcomes if isinstance(outcome, Delayed)] == delays_ms


@pytest.mark.parametrize(
    ("policy", "why"),
    [
        ({"type": "LINEAR"}, "type 'LINEAR' is unknown; use CUSTOMIZED or EXPONENTIAL"),
        ({"type": "customized"}, "type 'customized' is unknown"),
        ({"type": 1}, "type 1 is unknown"),
        ({"Type": "CUSTOMIZED"}, r"unknown keys \['Type'\]; it knows \['customizedRetryPolicy'"),
        ({1: 2, "b": 3}, r"unknown keys \['b', 1\]"),
        ({"type": "CUSTOMIZED", "customizedRetryPolicy": {1: 2, None: 3}}, r"unknown keys \[1, None\]"),
        ({"type": "CUSTOMIZED", "customizedRetryPolicy": [1]}, "customizedRetryPolicy must be a JSON object"),
        ({"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": 5}}, "next must be a list of milliseconds, not 5"),
        (customized(1, "2"), "next must be a list of milliseconds"),
        (customized(1, True), "next must be a list of milliseconds"),
        (customized(1, 2.5), "next must be a list of milliseconds"),
        (customized(), "the level table is empty"),
        (customized(1, -1), "a delay of -1 ms is out of range; use 0 to 366 days"),
        (customized(1, LONGEST_MS + 1), "is out of range; use 0 to 366 days"),
        (exponential(max=LONGEST_MS + 1), "366 days"),
        (exponential(initial=LONGEST_MS + 1, max=LONGEST_MS + 1), "366 days"),
        (exponential(initial="5s"), "initial must be a whole number, not '5s'"),
        (exponential(multiplier=1.5), r"multiplier must be a whole number, not 1\.5"),
        (exponential(max=True), "max must be a whole number, not True"),
        (exponential(max=None), "max must be a whole number, not None"),
        (exponential(initial=0), "initial must be at least 1"),
        (exponential(initial=10, max=9), "max at least initial"),
        (exponential(multiplier=0), "multiplier at least 1"),
        ({"type": "EXPONENTIAL", "exponentialRetryPolicy": 7}, "exponentialRetryPolicy must be a JSON object, not 7"),
        (exponential(inital=1_000), "inital"),
        ({"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": [1], "nxt": [2]}}, "nxt"),
    ],
    ids=str,
)
def test_a_policy_that_cannot_be_is_refused(policy: Mapping[Any, object], why: str) -> None:
    with pytest.raises(IllegalDelayLevels, match=why):
        parse_retry_policy(policy)


lengths_ms = st.integers(1, 10**9) | st.integers(LONGEST_MS - 2, LONGEST_MS + 2)


@given(
    st.builds(customized, lengths_ms, lengths_ms, lengths_ms)
    | st.builds(lambda a, b, c: exponential(initial=a, max=b, multiplier=c), lengths_ms, lengths_ms, st.integers(1, 9)),
    st.integers(0, 40),
)
def test_every_wait_of_a_policy_that_was_accepted_has_a_delay_topic(policy: dict[str, object], sent_back: int) -> None:
    try:
        accepted = parse_retry_policy(policy)
    except IllegalDelayLevels:
        return
    names = TopicNames()
    delay_ms = accepted.delay_ms(accepted.automatic_level(sent_back))
    assert names.delay_ms(names.delay(delay_ms)) == delay_ms
    assert str(accepted)


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
# TOML, YAML and Python give keys that JSON cannot.
keys = scalars | st.binary(max_size=3) | st.tuples(st.integers())
json_values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=6,
)
parameters = st.dictionaries(st.sampled_from(["next", "initial", "max", "multiplier"]) | keys, json_values, max_size=4)
policies = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["CUSTOMIZED", "EXPONENTIAL"]) | json_values,
        "customizedRetryPolicy": parameters | json_values,
        "exponentialRetryPolicy": parameters | json_values,
    },
)


@given(policies | st.dictionaries(keys, json_values, max_size=3), st.integers(0, 50))
def test_anything_is_a_policy_or_refused(policy: dict[Any, object], sent_back: int) -> None:
    try:
        parsed = parse_retry_policy(policy)
    except IllegalDelayLevels:
        return
    assert parsed.delay_ms(parsed.automatic_level(sent_back)) >= 0


@pytest.mark.parametrize(
    ("policy", "max_times", "waits"),
    [
        (DEFAULT, 16, "10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"),
        (DEFAULT, 3, "10s 30s 1m"),
        (DEFAULT, 20, "10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h ×5"),
        (DEFAULT, 0, ""),
        (DelayLevels.parse("1s"), 2**31, "1s ×2,147,483,648"),
        (DelayLevels.parse("9s 9s 1s 1s 5s 5s"), 5, "1s ×2 5s ×3"),
        (exponential_policy(1_000, 4_000, 2), 100, "1s 2s 4s ×98"),
    ],
)
def test_the_waits_of_a_group_are_spelled(policy: RetryPolicy, max_times: int, waits: str) -> None:
    assert spell_waits(policy, max_times) == waits


@given(max_times=st.integers(0, 60), table=st.lists(st.integers(0, 5), min_size=1, max_size=6))
def test_the_waits_that_are_spelled_are_those_of_the_rule(max_times: int, table: list[int]) -> None:
    policy = DelayLevels(tuple(1_000 * seconds for seconds in table))
    spelled: list[int] = []
    for word in spell_waits(policy, max_times).split():
        spelled.extend([spelled[-1]] * (int(word[1:]) - 1) if word.startswith("×") else [int(word[:-1])])
    outcomes = [decide_send_back(times, 0, max_times, policy) for times in range(max_times)]
    assert spelled == [one.delay_ms // 1_000 for one in outcomes if isinstance(one, Delayed)]
