"""Subscription groups as the GROUPS topic holds them."""

from __future__ import annotations

import json

import pytest

from reconsume.bridge.groups.groups import (
    Groups,
    SubscriptionGroupConfig,
    SystemConfig,
    parse_group_config,
    parse_system_config,
)
from reconsume.bridge.process.settings import TopicSettings
from reconsume.delay_levels.errors import IllegalSetting, SubscriptionGroupNotExist
from reconsume.delay_levels.rules.levels import DelayLevels
from reconsume.delay_levels.rules.retry_policies import exponential_policy


@pytest.mark.rule("GP-01")
def test_the_defaults_are_rocketmqs() -> None:
    config = SubscriptionGroupConfig(group_name="g")
    assert (config.retry_max_times, config.retry_queue_nums, config.consume_enable) == (16, 1, True)


def test_a_group_is_written_and_read_with_rocketmqs_names_and_keeps_what_it_does_not_know() -> None:
    text = '{"retryMaxTimes": 3, "retryQueueNums": 4, "brokerId": 0}'
    config = parse_group_config("g", text)
    assert json.loads(config.to_json()) == {
        "groupName": "g",
        "consumeEnable": True,
        "consumeBroadcastEnable": True,
        "retryMaxTimes": 3,
        "retryQueueNums": 4,
        "brokerId": 0,
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not JSON"),
        ("[]", "must be a JSON object"),
        ('{"retryMaxTimes": -1}', "retryMaxTimes.*greater than or equal to 0"),
        ('{"retryQueueNums": "many"}', "retryQueueNums"),
        ('{"groupRetryPolicy": {"type": "LINEAR"}}', "LINEAR.*CUSTOMIZED or EXPONENTIAL"),
        ('{"groupName": "other"}', "groupName is 'other'; it must be the key of the record"),
        ('{"groupName": null}', "groupName: Input should be a valid string"),
        ('{"retryMaxTimes": 1e999}', "retryMaxTimes: Input should be a finite number"),
        ('{"retryMaxTimes": 9223372036854775808}', "retryMaxTimes: Input should be less than or equal to"),
        ('{"maxWaiting": ' + "9" * 400 + "}", "maxWaiting: Input should be less than or equal to"),
    ],
)
def test_a_wrong_group_is_told_what_is_wrong(text: str, said: str) -> None:
    with pytest.raises(IllegalSetting, match=said):
        parse_group_config("g", text)


@pytest.mark.parametrize("value", ["[" * 900 + "]" * 900, '"\\ud800"'], ids=["deep", "half a pair"])
def test_what_could_not_be_written_again_is_not_read(value: str) -> None:
    """Unknown keys are kept, so `groups set` would fail for this group from then on."""
    groups = Groups().with_record(b"g", f'{{"later": {value}}}'.encode())
    assert list(groups.unreadable) == ["g"]
    assert groups.with_record(b"g", b"{}").by_name["g"].to_json()


def test_a_wrong_policy_is_shown_in_few_words() -> None:
    policy = {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": ["x" * 100_000]}}
    with pytest.raises(IllegalSetting) as refusal:
        parse_group_config("g", {"groupRetryPolicy": policy})
    assert len(str(refusal.value)) < 400


@pytest.mark.parametrize("name", ["delayPartitions", "bulkPartitions", "replicationFactor"])
def test_published_settings_that_no_kafka_takes_are_told(name: str) -> None:
    """Creating a topic with such a number raises OverflowError, which would end a worker."""
    groups = Groups().with_record(b"%SYS%", f'{{"topicSettings": {{"{name}": {2**70}}}}}'.encode())
    assert f"topicSettings.{name}: Input should be less than or equal to 10000" in groups.unreadable["%SYS%"]


def test_a_wrong_level_table_is_refused() -> None:
    with pytest.raises(IllegalSetting, match=r"messageDelayLevel.*1x"):
        parse_system_config('{"messageDelayLevel": "1s 1x"}')


@pytest.mark.rule("GP-02", "GP-03", "GP-04")
def test_a_group_may_have_a_policy_of_its_own() -> None:
    table = DelayLevels.parse("1s 2s 3s")
    assert SubscriptionGroupConfig(group_name="g").policy(table) is table
    policy = {"type": "EXPONENTIAL", "exponentialRetryPolicy": {"initial": 1000, "max": 8000, "multiplier": 2}}
    config = SubscriptionGroupConfig(group_name="g", group_retry_policy=policy)
    assert config.policy(table) == exponential_policy(1000, 8000, 2)


@pytest.mark.rule("BR-01", "BR-02")
def test_an_unknown_group_is_served_with_defaults_unless_that_is_off() -> None:
    assert Groups().find("new").retry_max_times == 16
    off = Groups().with_record(b"%SYS%", b'{"autoCreateSubscriptionGroup": false}')
    with pytest.raises(SubscriptionGroupNotExist, match=r"SUBSCRIPTION_GROUP_NOT_EXIST.*reconsume groups set new"):
        off.find("new")
    assert Groups(off.system, own_auto_create=True).find("new").group_name == "new"


def test_the_topic_is_followed_record_by_record(caplog: pytest.LogCaptureFixture) -> None:
    groups = Groups().with_record(b"g", b'{"retryMaxTimes": 3}').with_record(b"%SYS%", b'{"messageDelayLevel": "7s"}')
    assert groups.find("g").retry_max_times == 3
    assert str(groups.table) == "7s"
    assert groups.with_record(b"g", None).find("g").retry_max_times == 16
    assert str(groups.with_record(b"%SYS%", None).table).startswith("1s 5s 10s")
    spoilt = groups.with_record(b"g", b"garbage").with_record(None, b"{}")
    assert (spoilt.system, spoilt.by_name) == (groups.system, groups.by_name)
    assert "GROUPS record ignored" in caplog.text
    assert spoilt.unreadable.keys() == {"g", ""}
    assert "not JSON" in spoilt.unreadable["g"]
    mended = spoilt.with_record(b"g", b"{}").with_record(b"", None)
    assert not mended.unreadable


def test_an_explicit_table_of_the_process_wins() -> None:
    own = Groups(own_table=DelayLevels.parse("9s")).with_record(b"%SYS%", b'{"messageDelayLevel": "7s"}')
    assert str(own.table) == "9s"


def test_topic_settings_are_published_as_they_were_given_and_others_stay() -> None:
    assert "topicSettings" not in SystemConfig().to_json()
    assert SystemConfig().publishing(TopicSettings()) == SystemConfig()
    first = SystemConfig().publishing(TopicSettings(max_message_bytes=6_000_000))
    assert json.loads(first.to_json())["topicSettings"] == {"maxMessageBytes": 6_000_000}
    second = parse_system_config(first.to_json()).publishing(TopicSettings(retention_days=30))
    assert json.loads(second.to_json())["topicSettings"] == {"maxMessageBytes": 6_000_000, "retentionDays": 30.0}
    assert second.publishing(TopicSettings()) is second
    default = second.publishing(TopicSettings(max_message_bytes=None))
    assert json.loads(default.to_json())["topicSettings"] == {"maxMessageBytes": None, "retentionDays": 30.0}


def test_what_another_version_publishes_is_kept() -> None:
    """Rolling upgrades: a version changes the record that another one, which knows more or less, has written."""
    settings = '{"retentionDays": 3, "bulkPartitions": 2}'
    newer = f'{{"messageDelayLevel": "1s", "topicSettings": {settings}, "allowedTopics": ["a"]}}'
    changed = parse_system_config(parse_system_config(newer).model_dump(by_alias=True) | {"messageDelayLevel": "2s"})
    published = json.loads(changed.publishing(TopicSettings(retention_days=9)).to_json())
    assert published["messageDelayLevel"] == "2s"
    assert published["topicSettings"] == {"retentionDays": 9.0, "bulkPartitions": 2}
    assert published["allowedTopics"] == ["a"]


def test_a_published_setting_that_cannot_be_is_told_with_its_name() -> None:
    with pytest.raises(IllegalSetting, match=r"topicSettings\.maxMessageBytes: .*65536"):
        parse_system_config('{"topicSettings": {"maxMessageBytes": 6}}')


@pytest.mark.parametrize(
    ("fields", "waits"),
    [
        ({}, "3s ×16"),
        ({"retryMaxTimes": 0}, "none: a failed message is a dead letter"),
        ({"retryQueueNums": 0}, "none: failed messages are dropped"),
        ({"retryMaxTimes": 2, "groupRetryPolicy": {"type": "EXPONENTIAL", "exponentialRetryPolicy": {}}}, "5s 10s"),
    ],
)
def test_the_waits_are_the_groups_own(fields: dict[str, object], waits: str) -> None:
    config = parse_group_config("g", json.dumps(fields))
    assert config.waits(DelayLevels.parse("1s 2s 3s")) == waits
