"""Names: every group gets its own legal Kafka topics, and can be read back from them."""

from __future__ import annotations

import re

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from reconsume.delay_levels.errors import IllegalName
from reconsume.delay_levels.wire.names import (
    DLQ_PREFIX,
    MAX_TOPIC_LENGTH,
    RETRY_PREFIX,
    TopicNames,
    check_group,
    decode_name,
    encode_name,
)

NAMES = TopicNames()
RESERVED = ("DEFAULT_CONSUMER", "%SYS%")
"""Groups may not be called so; Hypothesis finds such constants in the code."""

any_name = st.text(min_size=1)
tricky_name = st.text(alphabet="._%ABF05a- ", min_size=1, max_size=12)
names = any_name | tricky_name
any_unicode = st.text(st.characters(exclude_categories=()))


def as_kafka_compares(topic: str) -> str:
    return topic.replace(".", "_")


@pytest.mark.parametrize(
    ("name", "encoded"),
    [
        ("departures", "departures"),
        ("Depart-ures_2", "Depart-ures_2"),
        ("a.b", "a.2Eb"),
        ("ns%group", "ns.25group"),
        ("a|b c", "a.7Cb.20c"),
        ("zürich", "z.C3.BCrich"),
        ("航班", ".E8.88.AA.E7.8F.AD"),
        ("a_5Fb", "a.5F5Fb"),
        ("a_5fb", "a_5fb"),
        ("a_2", "a_2"),
        ("a__AB", "a_.5FAB"),
        ("_", "_"),
        ("", ""),
    ],
)
def test_a_name_is_written_byte_by_byte(name: str, encoded: str) -> None:
    assert encode_name(name) == encoded
    assert decode_name(encoded) == name


@given(names)
@example("_5F")
@example("._%5F.5F_")
def test_the_code_is_reversible_and_legal_in_kafka(name: str) -> None:
    encoded = encode_name(name)
    assert decode_name(encoded) == name
    assert re.fullmatch(r"[A-Za-z0-9._-]+", encoded, re.ASCII)


def _neighbours(name: str) -> st.SearchStrategy[str]:
    """Names that a careless code would mix up with this one."""
    swapped = st.sampled_from(
        [
            name.replace(".", "_"),
            name.replace("_", "."),
            name.replace("%", ".25"),
            name.replace("_", "_5F"),
            name.replace("_", ".5F"),
            encode_name(name),
            as_kafka_compares(encode_name(name)),
            encode_name(encode_name(name)),
            name.upper(),
        ]
    )
    return swapped | names


@pytest.mark.rule("T-18")
@given(names.flatmap(lambda name: st.tuples(st.just(name), _neighbours(name))))
@example(("a_2Eb", "a.b"))
@example(("_5F", "_"))
@example((".", "_2E"))
def test_no_two_names_collide_not_even_as_kafka_compares_topics(pair: tuple[str, str]) -> None:
    one, other = pair
    assume(one != other)
    assert as_kafka_compares(encode_name(one)) != as_kafka_compares(encode_name(other))


@pytest.mark.rule("T-18")
@given(st.sets(tricky_name, min_size=2, max_size=30))
def test_no_collision_among_many_names_over_the_hardest_letters(many: set[str]) -> None:
    assert len({as_kafka_compares(encode_name(name)) for name in many}) == len(many)


@pytest.mark.parametrize("text", ["a.", ".2", ".2e", "a.b", "a b", "%", ".41", "_5F", ".FF", ".C3", "ü"])
def test_what_the_code_never_writes_is_refused(text: str) -> None:
    with pytest.raises(IllegalName, match=re.escape(repr(text))):
        decode_name(text)


@given(any_unicode | tricky_name)
@example("\ud800")
def test_any_text_is_decoded_or_refused_and_only_one_spelling_is_right(text: str) -> None:
    try:
        name = decode_name(text)
    except IllegalName:
        return
    assert encode_name(name) == text


@pytest.mark.rule("NM-01", "NM-02")
def test_people_see_rocketmqs_names() -> None:
    assert (RETRY_PREFIX, DLQ_PREFIX) == ("%RETRY%", "%DLQ%")
    assert NAMES.rocketmq_name("reconsume.RETRY.departures") == "%RETRY%departures"
    assert NAMES.rocketmq_name("reconsume.DLQ.departures") == "%DLQ%departures"
    assert NAMES.kafka_topic("%RETRY%departures") == NAMES.retry("departures") == "reconsume.RETRY.departures"
    assert NAMES.kafka_topic("%DLQ%departures") == NAMES.dead_letter("departures") == "reconsume.DLQ.departures"


@pytest.mark.rule("TN-10")
def test_a_namespace_stands_between_the_prefix_and_the_group() -> None:
    assert NAMES.kafka_topic("%RETRY%berlin%departures") == "reconsume.RETRY.berlin.25departures"
    assert NAMES.rocketmq_name("reconsume.RETRY.berlin.25departures") == "%RETRY%berlin%departures"
    assert NAMES.rocketmq_name(NAMES.dead_letter("berlin%departures")) == "%DLQ%berlin%departures"


@pytest.mark.rule("NM-02", "TN-10")
@given(names, st.sampled_from(["reconsume.", "a_", "x-", "RETRY.", "DLQ."]))
def test_retry_and_dead_letter_names_round_trip(group: str, prefix: str) -> None:
    assume(group.strip() and group not in RESERVED)
    of = TopicNames(prefix)
    assume(len(encode_name(group)) < 200)
    for name in (RETRY_PREFIX + group, DLQ_PREFIX + group):
        topic = of.kafka_topic(name)
        assert topic.startswith(prefix)
        assert of.rocketmq_name(topic) == name
    assert as_kafka_compares(of.retry(group)) != as_kafka_compares(of.dead_letter(group))


@given(st.from_regex(r"[A-Za-z0-9._-]{1,60}", fullmatch=True))
def test_an_ordinary_topic_is_its_own_name(topic: str) -> None:
    assume(topic not in (".", "..") and not topic.startswith(("reconsume.RETRY.", "reconsume.DLQ.")))
    assert NAMES.kafka_topic(topic) == NAMES.rocketmq_name(topic) == topic


@pytest.mark.parametrize("rest", ["my.group", ".ZZ", ".FF", "", "DEFAULT_CONSUMER"])
@pytest.mark.parametrize("kind", ["RETRY.", "DLQ."])
def test_a_topic_that_only_looks_like_one_of_a_group_is_shown_as_it_is(kind: str, rest: str) -> None:
    """Somebody has made it by hand."""
    topic = f"reconsume.{kind}{rest}"
    assert NAMES.rocketmq_name(topic) == topic


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a%b", "%RETRY", "ü", "t" * 250, "topic\n"])
def test_a_topic_that_kafka_cannot_hold_is_refused(name: str) -> None:
    with pytest.raises(IllegalName, match="illegal in Kafka; use at most 249 letters"):
        NAMES.kafka_topic(name)


@pytest.mark.rule("NM-03")
@pytest.mark.parametrize("group", ["departures", "de.parts", "a b", "ns%g", "a|b", "航班", "DEFAULT_CONSUMER2", "."])
def test_a_group_may_be_any_text_that_kafka_takes(group: str) -> None:
    assert check_group(group) == group


@pytest.mark.rule("NM-05")
@pytest.mark.parametrize("group", ["", " ", "\t\n", "DEFAULT_CONSUMER"])
@pytest.mark.parametrize("use", [check_group, NAMES.retry, NAMES.dead_letter, lambda g: NAMES.kafka_topic("%DLQ%" + g)])
def test_a_group_may_not_be_blank_nor_default_consumer(group: str, use: object) -> None:
    assert callable(use)
    with pytest.raises(
        IllegalName, match=r"consumer group (is blank; give it a name|name .* is reserved; choose another)"
    ):
        use(group)


def test_a_group_may_not_be_the_key_of_the_cluster_wide_settings() -> None:
    with pytest.raises(IllegalName, match="name '%SYS%' is reserved"):
        check_group("%SYS%")


def test_a_group_must_be_utf_8() -> None:
    with pytest.raises(IllegalName, match="cannot be encoded as UTF-8"):
        NAMES.retry("a\ud800")


@pytest.mark.rule("BR-26", "NM-04")
@pytest.mark.parametrize(
    ("group", "length"),
    [("g" * 234, 250), ("." * 78, 250), ("é" * 39, 250), ("g" * 5_000, 5_016)],
)
def test_a_group_that_gives_an_over_long_topic_is_refused_at_once(group: str, length: int) -> None:
    with pytest.raises(
        IllegalName, match=rf"with {length} characters; Kafka allows {MAX_TOPIC_LENGTH}; shorten the name"
    ):
        NAMES.retry(group)


@pytest.mark.rule("NM-04")
def test_a_topic_of_249_characters_is_fine() -> None:
    assert len(NAMES.retry("g" * 233)) == MAX_TOPIC_LENGTH == 249
    assert NAMES.kafka_topic("t" * 249) == "t" * 249


@pytest.mark.parametrize("length", [234, 235])
def test_a_group_without_a_legal_retry_topic_has_no_dead_letter_topic(length: int) -> None:
    """Its name would be legal, but whoever meets the topic also asks for the group's retry topic."""
    with pytest.raises(IllegalName, match=rf"with {length + 16} characters"):
        NAMES.kafka_topic("%DLQ%" + "g" * length)
    topic = "reconsume.DLQ." + "g" * length
    assert NAMES.rocketmq_name(topic) == topic, "somebody has made it by hand"


@given(st.text(min_size=1, max_size=300) | st.text(alphabet=" .g", min_size=60, max_size=300))
def test_a_retry_topic_is_legal_in_kafka_or_refused(group: str) -> None:
    assume(group not in RESERVED)
    try:
        topic = NAMES.retry(group)
    except IllegalName:
        assert not group.strip() or len("reconsume.RETRY." + encode_name(group)) > MAX_TOPIC_LENGTH
        return
    assert re.fullmatch(r"[A-Za-z0-9._-]{1,249}", topic, re.ASCII)


@pytest.mark.parametrize("prefix", ["", "%", "a b", "ü.", "x/", "reconsume.\n"])
def test_an_illegal_prefix_is_refused(prefix: str) -> None:
    with pytest.raises(IllegalName, match=r"topic_prefix .* is illegal in Kafka.*such as 'reconsume\.'"):
        TopicNames(prefix)


def test_an_over_long_prefix_is_named_as_the_cause() -> None:
    with pytest.raises(IllegalName, match=r"topic_prefix 'p+' gives the topic p{40}… with 255 characters"):
        _ = TopicNames("p" * 249).groups


def test_the_fixed_topics() -> None:
    of = TopicNames("test_")
    assert (of.send_back, of.quarantine, of.groups) == ("test_SEND_BACK", "test_QUARANTINE", "test_GROUPS")


@pytest.mark.rule("DP-02")
@pytest.mark.parametrize(
    ("delay_ms", "topic"),
    [
        (0, "reconsume.DELAY.0s"),
        (10_000, "reconsume.DELAY.10s"),
        (60_000, "reconsume.DELAY.1m"),
        (7_200_000, "reconsume.DELAY.2h"),
        (1_500, "reconsume.DELAY.1500ms"),
    ],
)
def test_a_delay_topic_is_named_after_its_duration(delay_ms: int, topic: str) -> None:
    assert NAMES.delay(delay_ms) == topic
    assert NAMES.delay_ms(topic) == delay_ms


def test_the_inbox_is_due_at_once() -> None:
    assert NAMES.delay_ms(NAMES.send_back) == 0


@pytest.mark.parametrize("rest", ["", "60s", "1", "01m", "1M", "soon", "1m.", "1m "])
def test_a_delay_topic_of_any_other_name_is_refused(rest: str) -> None:
    with pytest.raises(IllegalName, match="must be followed by a duration in its shortest form, such as 10s or 2h"):
        NAMES.delay_ms("reconsume.DELAY." + rest)


@pytest.mark.parametrize("duration", ["367d", "999999999999ms", "999999999999d"])
def test_a_delay_topic_of_an_over_long_duration_is_no_delay_topic(duration: str) -> None:
    with pytest.raises(IllegalName, match=f"topic 'reconsume.DELAY.{duration}' is not a delay topic"):
        NAMES.delay_ms("reconsume.DELAY." + duration)


@given(st.text() | st.from_regex(r"[0-9]{1,12}(ms|s|m|h|d)", fullmatch=True))
def test_any_topic_under_the_delay_prefix_has_a_duration_or_an_illegal_name(rest: str) -> None:
    topic = "reconsume.DELAY." + rest
    try:
        delay_ms = NAMES.delay_ms(topic)
    except IllegalName:
        return
    assert NAMES.delay(delay_ms) == topic


@pytest.mark.parametrize(
    "topic", ["orders", "10s", "DELAY.10s", "other.DELAY.10s", "reconsume.RETRY.g", "reconsume.GROUPS"]
)
def test_other_topics_are_not_the_schedulers(topic: str) -> None:
    assert not NAMES.is_scheduled(topic)
    assert re.match(NAMES.scheduled_pattern, topic) is None
    with pytest.raises(IllegalName, match="is not a delay topic"):
        NAMES.delay_ms(topic)


@given(st.sampled_from(["reconsume.", "a.b-c_"]), st.sampled_from(["", "x", "z."]), st.integers(0, 10**9))
def test_the_pattern_finds_exactly_the_scheduled_topics(prefix: str, before: str, delay_ms: int) -> None:
    of = TopicNames(prefix)
    for topic in (of.delay(delay_ms), of.send_back, of.retry("g"), of.dead_letter("g"), of.quarantine, of.groups):
        assert bool(re.match(of.scheduled_pattern, before + topic)) == of.is_scheduled(before + topic)
        assert of.is_scheduled(before + topic) == (not before and topic in (of.delay(delay_ms), of.send_back))
