"""Bodies, problems, limits and settings of the API, without a socket."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from pydantic import TypeAdapter, ValidationError

from reconsume.bridge.http.listening import is_loopback
from reconsume.bridge.process.settings import Settings, load_settings
from reconsume.bridge.writing.send_back import _SendBack
from reconsume.delay_levels import errors
from reconsume.delay_levels.errors import IllegalSetting
from reconsume.delay_levels.wire.send_back_copy import Position, SendBackRequest, Stored
from reconsume.sidecar.api.models import Batch, Failure, NewMessage, RecordByValue, RecordToSendBack, SendBackBody
from reconsume.sidecar.guarding.callers import ANYBODY, Callers
from reconsume.sidecar.guarding.guard import Rate
from reconsume.sidecar.problems import Problem, of_several, problem_of
from reconsume.sidecar.settings import ProcessSettings

BODY: TypeAdapter[RecordToSendBack | RecordByValue | Batch] = TypeAdapter(SendBackBody)
PLACE = {"topic": "flights", "partition": 3, "offset": 42}
MESSAGE = {"topic": "flights", "value": ""}


@pytest.mark.parametrize(
    ("more", "kind"),
    [
        ({}, RecordToSendBack),
        ({"offset": 42.0}, RecordToSendBack),
        ({"value": None}, RecordByValue),
        ({"value": "", "key": None, "headers": [], "timestamp": None}, RecordByValue),
        ({"value": "", "timestamp": -1}, RecordByValue),
    ],
)
def test_a_record_by_reference_or_by_value(more: dict[str, Any], kind: type) -> None:
    record = BODY.validate_python(PLACE | more)
    assert type(record) is kind
    [listed] = BODY.validate_python({"records": [PLACE | more]}).records  # type: ignore[union-attr]
    assert type(listed) is kind


# Those with a number of the fuzzer's test case were found by it.
@pytest.mark.parametrize(
    "body",
    [
        PLACE | {"key": "YQ=="},
        PLACE | {"headers": []},
        PLACE | {"timestamp": 1},
        PLACE | {"value": "YQ"},
        PLACE | {"value": "=="},
        PLACE | {"value": "YQ==\n"},
        PLACE | {"value": 1},
        PLACE | {"value": "", "headers": [{"name": "a\x00b"}]},
        PLACE | {"partition": True},
        PLACE | {"partition": "3"},
        PLACE | {"offset": 9223372036854776000},  # EETN7z
        PLACE | {"offset": 0.5},
        PLACE | {"topic": "a b"},
        PLACE | {"unitMode": 1},
        PLACE | {"delayLevl": 1},
        PLACE | {"ackIndex": 1},
        {"records": [PLACE], "ackIndex": False},  # UZG1jL
        {"records": [PLACE], "ackIndex": -2},
        {"records": []},
        {"records": [{"records": [PLACE]}]},
        [PLACE],
        None,
    ],
)
def test_bodies_that_are_refused(body: Any) -> None:
    with pytest.raises(ValidationError):
        BODY.validate_python(body)


@pytest.mark.parametrize(
    ("more", "right"),
    [
        ({}, True),
        ({"delayLevel": 3}, True),
        ({"deliverAt": "2026-11-21T08:00:00Z"}, True),
        ({"deliverAt": "2026-11-21 08:00:00.5+01:00"}, True),
        ({"deliverAt": "2026-11-21T08:00:00"}, False),
        ({"deliverAt": 0}, False),  # xinVkq
        ({"deliverAt": "0"}, False),
        ({"delayLevel": 0}, False),
        ({"delayLevel": 1, "deliverAt": "2026-11-21T08:00:00Z"}, False),
    ],
)
def test_delays_of_a_new_message(more: dict[str, Any], right: bool) -> None:
    if right:
        NewMessage.model_validate(MESSAGE | more)
    else:
        with pytest.raises(ValidationError):
            NewMessage.model_validate(MESSAGE | more)


@pytest.mark.parametrize("text", [{}, {"message": None}])
def test_an_error_may_have_no_text(text: dict[str, Any]) -> None:
    """As in Java, and as what JavaScript throws."""
    record = BODY.validate_python(PLACE | {"error": {"type": "java.lang.NullPointerException"} | text})
    assert record.error == Failure(type="java.lang.NullPointerException", message=None)  # type: ignore[union-attr]


def test_every_error_of_ours_has_a_status() -> None:
    found = {name: problem_of(getattr(errors, name)("why")).status for name in errors.__all__}
    assert {name for name, status in found.items() if status == 503} == {
        "KafkaLoginFailed",
        "KafkaNotReachable",
        "SendBackFailed",
    }
    assert {name for name, status in found.items() if status == 404} == {
        "RecordNotFound",
        "SubscriptionGroupNotExist",
        "TopicNotReady",
    }
    assert min(found.values()) >= 400


RIGHTS, LARGE, AWAY = (kind("why") for kind in (errors.KafkaRefused, errors.RecordTooLarge, errors.KafkaNotReachable))


@pytest.mark.parametrize(
    ("first", "second", "status"),
    [
        (RIGHTS, RIGHTS, 502),
        (RIGHTS, LARGE, 502),
        (LARGE, RIGHTS, 502),
        (LARGE, LARGE, 413),
        (RIGHTS, AWAY, 503),
        (AWAY, RIGHTS, 503),
        (LARGE, AWAY, 503),
        (AWAY, LARGE, 503),
    ],
)
def test_a_call_is_made_again_unless_both_ways_refuse_it(
    first: errors.ReconsumeError, second: errors.ReconsumeError, status: int
) -> None:
    """Callers end on a 502, and would otherwise make the call for ever without a word."""
    failed: list[Any] = []
    request = SendBackRequest("departures", [], Stored.first_copy(Position("flights", 3, 42), 0))
    one = _SendBack(cast("Any", None), request, b"key", b"value", failed.append, lambda *_: None)
    one.first = first
    one.take_next_way(second)
    assert problem_of(failed[0]).status == status


def test_of_several_one_that_may_be_tried_again_decides() -> None:
    gone = Problem("record-not-found", "gone")
    away = Problem("kafka-away", "away")
    whole = of_several([{"outcome": "DELAYED"}, gone, away])
    assert (whole.status, whole.retry_after) == (503, 5)
    assert [part.get("status") for part in whole.body["records"]] == [None, 404, 503]
    assert (of_several([gone]).status, of_several([gone]).retry_after) == (404, None)
    full = problem_of(errors.GroupIsFull("full"))
    assert (of_several([gone, full]).status, of_several([gone, full]).retry_after) == (429, 5)
    assert of_several([full, away]).status == 503


def test_a_rate_lets_a_second_of_calls_through_and_then_one_at_a_time() -> None:
    rate = Rate(2)
    assert [rate.wait_seconds(0), rate.wait_seconds(0), rate.wait_seconds(0)] == [0, 0, 0.5]
    assert (rate.wait_seconds(499) > 0, rate.wait_seconds(500)) == (True, 0)
    assert rate.wait_seconds(400) > 0, "a clock that was set back gives nothing away"


@pytest.mark.parametrize(
    ("shown", "right"),
    [
        (b"Bearer secret-token", True),
        (b"bearer  secret-token", True),
        (b"", False),
        (b"secret-token", False),
        (b"Bearer", False),
        (b"Bearer secret-toke", False),
        (b"Basic secret-token", False),
        ("Bearer secret-tokén".encode("latin-1"), False),
    ],
)
def test_the_token(shown: bytes, right: bool) -> None:
    assert (Callers({"secret-token": ANYBODY}).of(shown) is ANYBODY) == right


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("[::1]", True), ("localhost", True)]
    + [(host, False) for host in ("0.0.0.0", "::", "10.0.0.1", "example", "127.0.0.1.example")],
)
def test_what_only_this_machine_can_reach(host: str, loopback: bool) -> None:
    assert is_loopback(host) == loopback


def test_settings_come_from_yaml_and_the_environment(tmp_path: Path) -> None:
    file, secret = tmp_path / "sidecar.yaml", tmp_path / "token"
    file.write_text("bootstrap_servers: kafka:9092\nsidecar:\n  listen: {port: 9}\n  limits: {body_mib: 1}\n")
    secret.write_text("0123456789abcdef\n")
    environment = {"RECONSUME_SIDECAR__TOKEN_FILE": str(secret), "RECONSUME_SIDECAR__GROUPS": "a b"}
    settings = load_settings(ProcessSettings, file, environment, {"sidecar": {"listen": {"port": None}}})
    assert (settings.sidecar.listen.port, settings.sidecar.groups) == (9, ["a", "b"])
    assert settings.sidecar.read_token() == "0123456789abcdef"
    assert "0123456789abcdef" not in repr(settings)
    assert load_settings(Settings, file, environment).bootstrap_servers == "kafka:9092", "one file serves all processes"


def test_types_that_are_not_worth_a_retry_are_json_in_the_environment() -> None:
    environment = {"RECONSUME_SIDECAR__DEAD_LETTER_ON": '{"Departures": ["ParseError"]}'}
    sidecar = load_settings(ProcessSettings, None, environment, {}).sidecar
    assert sidecar.dead_letter_on == {"Departures": ("ParseError",)}
    of_one_pod = environment | {"RECONSUME_SIDECAR__GROUPS": "arrivals"}
    assert load_settings(ProcessSettings, None, of_one_pod, {}).sidecar.dead_letter_on == sidecar.dead_letter_on
    with pytest.raises(IllegalSetting, match=r"this text is not JSON .*; write a table such as"):
        load_settings(ProcessSettings, None, {"RECONSUME_SIDECAR__DEAD_LETTER_ON": "ParseError"}, {})
    with pytest.raises(IllegalSetting, match=r"this text is not JSON .*; write a table such as"):
        load_settings(ProcessSettings, None, {"RECONSUME_SIDECAR__DEAD_LETTER_ON": "[" * 100_000}, {})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sidecar: {listn: 1}", r"setting sidecar\.listn \(file .*\): unknown setting; known here: .*listen"),
        ("sidecar: {listen: {port: 70000}}", r"setting sidecar\.listen\.port"),
        ("sidecar: {token: abc, token_file: /x}", "token and token_file are both set"),
        ("sidecar: {dead_letter_on: {' ': [ValueError]}}", "the consumer group is blank"),
        ("sidecar: {dead_letter_on: {a: ValueError}}", r"setting sidecar\.dead_letter_on\.a"),
        ("sidecar: {limits: {body_mib: .inf}}", r"limits\.body_mib .* less than or equal to 1048576"),
        ("sidecar: {limits: {memory_mib: 1.0e+20}}", r"limits\.memory_mib .* less than or equal to 1048576"),
        ("sidecar: {drain_seconds: 1.0e+10}", r"drain_seconds .* less than or equal to 86400"),
        ("subscriptions: {group: a, topics: [x]}", r"subscriptions are a list; write \[\[subscriptions\]\] in TOML"),
        ("subscriptions: [{group: a, topics: flights}]", r"topics are a list or a table; write \['flights'\]"),
        ("sidecar: {groups: ['']}", "the consumer group is blank"),
        ("- a", "must hold settings by name"),
        ("a: [", "is not YAML"),
    ],
)
def test_wrong_settings_are_told(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "sidecar.yml"
    file.write_text(text)
    with pytest.raises(IllegalSetting, match=said):
        load_settings(ProcessSettings, file, {}, {})
