"""What is sent to the app: every profile, awkward keys and headers, CloudEvents that pass through."""

from __future__ import annotations

import base64
import json
from typing import Any
from urllib.parse import quote, unquote_to_bytes

import pytest
from cloudevents.core.bindings.http import HTTPMessage, from_http_event
from hypothesis import given
from hypothesis import strategies as st

from reconsume.consumers.message import Message
from reconsume.delay_levels.wire.properties import Header
from reconsume.sidecar.push.requests import cloud_events
from reconsume.sidecar.push.requests.cloud_events import decoded, header_name, header_value
from reconsume.sidecar.push.requests.requests import (
    AppRequest,
    BatchRequests,
    DaprRequests,
    DaprRoute,
    KnativeRequests,
    NativeRequests,
    ReconsumeHeaders,
    requests_of,
)
from reconsume.sidecar.push.settings import PushSettings
from tests.unit.consumers.doubles import APPENDED_MS, RETRY_TOPIC, message_at

OWN_HEADERS = ReconsumeHeaders("departures", lambda: 16, 30_000)
NATIVE = NativeRequests(OWN_HEADERS, lambda topic: f"/events/{topic}")
KNATIVE = KnativeRequests(OWN_HEADERS, lambda _topic: "")
BATCH = BatchRequests(OWN_HEADERS, lambda _topic: "/consumeMessage")
DAPR = DaprRequests(OWN_HEADERS, "pubsub", {}, lambda topic: f"/events/pubsub/{topic}")
RETRIED: list[Header] = [
    ("RETRY_TOPIC", b"flights"),
    ("ORIGIN_MESSAGE_ID", b"flights/3/42"),
    ("RECONSUME_TIME", b"2"),
    ("DELAY", b"4"),
    ("BORN_TIMESTAMP", b"1600000000000"),
    ("FIRST_FAILURE_TIMESTAMP", b"1600000060500"),
    ("tenant", b"acme"),
]
CLOUD_EVENT: list[Header] = [
    ("ce_specversion", b"1.0"),
    ("ce_id", b"1234"),
    ("ce_source", "/ünter wegs".encode()),
    ("ce_type", b"com.example.late"),
    ("ce_comexampleext", b"100%"),
    ("content-type", b"application/json; charset=utf-8"),
]


def headers(request: AppRequest) -> dict[str, str]:
    assert len(dict(request.headers)) == len(request.headers), "none stands twice"
    return dict(request.headers)


def native(message: Message) -> dict[str, str]:
    return headers(NATIVE.of([message], []))


def test_native_is_binary_and_the_value_is_untouched() -> None:
    request = NATIVE.of([message_at(7, body=b"\x00\xff", headers=[("content-type", b"image/png")])], [])
    assert (request.path, request.body) == ("/events/flights", b"\x00\xff")
    assert headers(request) == {
        "content-type": "image/png",
        "ce-specversion": "1.0",
        "ce-id": "flights/0/7",
        "ce-source": "/kafka/topics/flights",
        "ce-type": "reconsume.message",
        "ce-time": "2023-11-14T22:13:20.000Z",
        "ce-retrygroup": "departures",
        "ce-reconsumetimes": "0",
        "ce-partitionkey": "key",
        "reconsume-group": "departures",
        "reconsume-max-times": "16",
        "reconsume-deadline-ms": "30000",
        "reconsume-topic": "flights",
        "reconsume-times": "0",
        "reconsume-message-id": "flights/0/7",
        "kafka-header-content-type": "image/png",
    }


def test_a_retry_keeps_id_source_and_time_and_tells_its_past() -> None:
    retry = message_at(5, topic=RETRY_TOPIC, headers=RETRIED)
    found = native(retry)
    assert (found["ce-id"], found["ce-source"]) == ("flights/3/42", "/kafka/topics/flights")
    assert found["ce-time"] == "2020-09-13T12:26:40.000Z"
    assert (found["reconsume-times"], found["ce-reconsumetimes"], found["reconsume-delay-level"]) == ("2", "2", "4")
    assert found["reconsume-due-time"] == "2023-11-14T22:13:20.000Z"
    assert found["reconsume-first-failure-time"] == "2020-09-13T12:27:40.500Z"
    assert found["reconsume-topic"] == "flights"
    assert found["kafka-header-tenant"] == "acme"
    assert not any("RETRY_TOPIC" in name for name in found)


def test_a_first_delivery_names_no_level() -> None:
    found = native(message_at(0, headers=[("DELAY", b"3")]))
    assert "reconsume-delay-level" not in found
    assert "reconsume-due-time" not in found
    assert "reconsume-first-failure-time" not in found


def test_what_an_earlier_version_sent_back_first_has_no_moment() -> None:
    earlier = [one for one in RETRIED if one[0] != "FIRST_FAILURE_TIMESTAMP"]
    assert "reconsume-first-failure-time" not in native(message_at(5, topic=RETRY_TOPIC, headers=earlier))


def test_every_request_has_the_headers_of_the_contract() -> None:
    """In all profiles, over all their ways to say them (in a batch: attributes of the events)."""
    always = {"group", "topic", "times", "max-times", "deadline-ms", "message-id"}
    on_retries = {"delay-level", "due-time", "first-failure-time"}
    for requests in (NATIVE, KNATIVE, BATCH, DAPR):
        for message, wanted in (
            (message_at(0), always),
            (message_at(0, body=None), always | {"tombstone"}),
            (message_at(5, topic=RETRY_TOPIC, headers=RETRIED), always | on_retries),
        ):
            found = headers(requests.of([message], []))
            assert {name.removeprefix("reconsume-") for name in found if name.startswith("reconsume-")} == wanted
    [event] = json.loads(BATCH.of([message_at(5, topic=RETRY_TOPIC, headers=RETRIED)], []).body)
    in_event = {"topic", "times", "messageid", "delaylevel", "duetime", "firstfailuretime"}
    assert {name.removeprefix("reconsume") for name in event if name.startswith("reconsume")} == in_event


def test_a_tombstone_is_an_empty_body_that_says_so() -> None:
    request = NATIVE.of([message_at(0, body=None)], [])
    assert (request.body, headers(request)["reconsume-tombstone"]) == (b"", "true")
    assert "reconsume-tombstone" not in native(message_at(0, body=b""))


def test_key_and_headers_survive_whatever_they_hold() -> None:
    key = bytes(range(256))
    awkward: list[Header] = [
        ("ä_b c:\r\n", b"x\r\ny: z"),
        ("empty", b""),
        ("null", None),
        ("twice", b"1"),
        ("twice", b"2"),
    ]
    request = NATIVE.of([message_at(0, key=key, headers=awkward)], [])
    for name, value in request.headers:
        assert all("!" <= one <= "~" for one in name + value), (name, value)
        assert ":" not in name
        assert "_" not in name
    found = dict(request.headers)
    assert unquote_to_bytes(found["ce-partitionkey"]) == key
    assert found["kafka-header-%C3%A4%5Fb%20c%3A%0D%0A"] == "x%0D%0Ay:%20z"
    assert (found["kafka-header-empty"], found["kafka-header-null"]) == ("", "")
    assert [value for name, value in request.headers if name == "kafka-header-twice"] == ["1", "2"]


@given(st.text())
def test_header_values_follow_the_cloudevents_binding(text: str) -> None:
    encodable = text.encode(errors="replace").decode()
    assert decoded(header_value(encodable)) == encodable
    assert header_value("Euro € 😀") == "Euro%20%E2%82%AC%20%F0%9F%98%80"


@given(st.binary())
def test_bytes_come_back_from_a_header(data: bytes) -> None:
    assert unquote_to_bytes(header_value(data)) == data
    assert "_" not in header_name(data.decode(errors="surrogateescape"))


@pytest.mark.parametrize("text", [b"text/\xff", b"a\r\nb: c", b" ", b""])
def test_a_content_type_that_http_cannot_carry_is_left_out(text: bytes) -> None:
    assert native(message_at(0, headers=[("content-type", text)]))["content-type"] == "application/octet-stream"


def test_a_record_that_is_a_cloud_event_passes_unchanged() -> None:
    found = native(message_at(0, headers=CLOUD_EVENT))
    attributes = {name: value for name, value in found.items() if name.startswith("ce-")}
    assert attributes == {
        "ce-specversion": "1.0",
        "ce-id": "1234",
        "ce-source": "/%C3%BCnter%20wegs",
        "ce-type": "com.example.late",
        "ce-comexampleext": "100%25",
    }
    assert found["content-type"] == "application/json; charset=utf-8"
    assert not any(name.startswith("kafka-header-ce") for name in found)
    assert found["reconsume-message-id"] == "flights/0/0"


def test_a_record_that_lacks_an_attribute_is_no_cloud_event() -> None:
    found = native(message_at(0, headers=CLOUD_EVENT[1:]))
    assert found["ce-id"] == "flights/0/0"


LATE: Header = ("ce_type", b"late")
WHOLE_BODY = b'{"specversion": "1.0", "id": "7", "source": "s", "type": "t"}'
STRUCTURED: Header = ("content-type", b"application/cloudevents+json")


@pytest.mark.parametrize(
    ("given", "body", "left"),
    [
        ([LATE], b"{}", [LATE]),
        (CLOUD_EVENT[1:5], b"{}", CLOUD_EVENT[1:5]),
        (CLOUD_EVENT[:5], b"{}", []),
        ([*CLOUD_EVENT[:5], ("ce_my_tenant", b"acme")], b"{}", [("ce_my_tenant", b"acme")]),
        ([*CLOUD_EVENT[:5], ("ce_Foo", b"1"), ("ce_", b"2")], b"{}", [("ce_Foo", b"1"), ("ce_", b"2")]),
        ([*CLOUD_EVENT[:5], ("ce_subject", None)], b"{}", [("ce_subject", None)]),
        ([LATE, *CLOUD_EVENT[:5]], b"{}", [LATE]),
        (
            [*CLOUD_EVENT[:5], ("ce_data", b"x"), ("ce_datacontenttype", b"y")],
            b"{}",
            [("ce_data", b"x"), ("ce_datacontenttype", b"y")],
        ),
        ([*CLOUD_EVENT[:5], STRUCTURED], WHOLE_BODY, CLOUD_EVENT[:5]),
    ],
)
def test_ce_headers_that_the_event_does_not_carry_reach_the_app(
    given: list[Header], body: bytes, left: list[Header]
) -> None:
    message = message_at(7, body=body, headers=[*given, ("tenant", b"x")])
    expected = [
        (f"kafka-header-{header_name(name)}", header_value(value or b"")) for name, value in [*left, ("tenant", b"x")]
    ]
    for requests in (NATIVE, KNATIVE, DAPR):
        sent = requests.of([message], []).headers
        found = [one for one in sent if one[0].startswith("kafka-header-") and one[0] != "kafka-header-content-type"]
        assert found == expected
    [event] = json.loads(BATCH.of([message], []).body)
    pairs = [pair.partition("=")[0] for pair in event["kafkaheaders"].split("&")]
    assert [name for name in pairs if name != "content-type"] == [quote(name) for name, _ in [*left, ("tenant", b"x")]]


def test_raw_payload_passes_the_attributes_that_its_event_lacks() -> None:
    raw = DaprRequests(OWN_HEADERS, "pubsub", {"flights": DaprRoute("flights", "/x", True)}, lambda _topic: "/other")
    event, found = of_dapr(message_at(0, headers=CLOUD_EVENT), raw)
    assert (event["id"], found["kafka-header-ce%5Fid"]) == ("flights/0/0", "1234")


def test_a_structured_cloud_event_passes_unchanged() -> None:
    body = b'{"specversion": "1.0", "id": "7"}'
    of_type: list[Header] = [("Content-Type", b"application/CloudEvents+json; charset=UTF-8")]
    for requests in (NATIVE, KNATIVE):
        request = requests.of([message_at(0, body=body, headers=of_type)], [])
        found = headers(request)
        assert (request.body, found["content-type"]) == (body, "application/CloudEvents+json; charset=UTF-8")
        assert not any(name.startswith("ce-") for name in found)


def test_the_python_sdk_of_cloudevents_reads_what_we_send() -> None:
    message = message_at(1, key="schlüssel".encode(), body=b'{"n": 1}', headers=[("content-type", b"application/json")])
    request = NATIVE.of([message], [])
    event = from_http_event(HTTPMessage(headers=dict(request.headers), body=request.body))
    assert (event.get_id(), event.get_data()) == ("flights/0/1", {"n": 1})
    assert event.get_extension("partitionkey") == "schlüssel"


def test_the_trace_of_the_record_goes_on_unless_there_is_a_span() -> None:
    of_record: list[Header] = [("traceparent", b"00-aa-bb-01"), ("tracestate", b"x=1")]
    message = message_at(0, headers=of_record)
    assert native(message)["traceparent"] == "00-aa-bb-01"
    assert native(message)["tracestate"] == "x=1"
    assert headers(NATIVE.of([message], [("traceparent", "00-cc-dd-01")]))["traceparent"] == "00-cc-dd-01"


def test_knative_maps_as_its_kafka_source_does() -> None:
    message = message_at(7, headers=[("Ten-ant_1", b"acme"), ("Content-Type", b"Text/Plain"), ("none", None)])
    request = KNATIVE.of([message], [])
    found = headers(request)
    assert request.path == ""
    assert {name: value for name, value in found.items() if name.startswith("ce-")} == {
        "ce-specversion": "1.0",
        "ce-id": "partition:0/offset:7",
        "ce-time": "2023-11-14T22:13:20.000Z",
        "ce-type": "dev.knative.kafka.event",
        "ce-source": "/apis/v1/namespaces/default/kafkasources/departures#flights",
        "ce-subject": "partition:0#7",
        "ce-key": "key",
        "ce-partitionkey": "key",
        "ce-kafkaheadertenant1": "acme",
    }
    assert found["content-type"] == "text/plain"
    assert "prefer" not in found
    retry = headers(KNATIVE.of([message_at(5, topic=RETRY_TOPIC, headers=RETRIED)], []))
    assert (retry["ce-id"], retry["ce-subject"]) == ("partition:3/offset:42", "partition:3#42")


def of_dapr(message: Message, requests: DaprRequests = DAPR) -> tuple[dict[str, Any], dict[str, str]]:
    request = requests.of([message], [])
    return json.loads(request.body), headers(request)


BODIES: list[tuple[bytes | None, bytes | None, dict[str, Any]]] = [
    # value, content type, data in the event
    (b'{"n": 1}', None, {"data": {"n": 1}, "datacontenttype": "application/json"}),
    (b"[1]", b"application/problem+json", {"data": [1], "datacontenttype": "application/problem+json"}),
    (b"1.0", b"application/json; x=y", {"data": 1.0, "datacontenttype": "application/json; x=y"}),
    (b"late", None, {"data": "late", "datacontenttype": "text/plain"}),
    (b"<a/>", b"text/xml", {"data": "<a/>", "datacontenttype": "text/xml"}),
    (b"{late", b"application/json", {"data": "{late", "datacontenttype": "application/json"}),
    (b"[NaN]", b"application/json", {"data": "[NaN]", "datacontenttype": "application/json"}),
    (b"late", b"image/png", {"data_base64": "bGF0ZQ==", "datacontenttype": "image/png"}),
    (b"\xff", b"text/plain", {"data_base64": "/w==", "datacontenttype": "text/plain"}),
    (b"\xff", None, {"data_base64": "/w==", "datacontenttype": "application/octet-stream"}),
    (b"", None, {"data": "", "datacontenttype": "text/plain"}),
    (None, None, {"data": None}),
]


@pytest.mark.parametrize(("body", "content_type", "expected"), BODIES)
def test_dapr_gets_a_structured_event(body: bytes | None, content_type: bytes | None, expected: dict[str, Any]) -> None:
    given: list[Header] = [] if content_type is None else [("content-type", content_type)]
    event, found = of_dapr(message_at(7, body=body, headers=given))
    assert event == expected | {
        "specversion": "1.0",
        "id": "flights/0/7",
        "source": "Dapr",
        "type": "com.dapr.event.sent",
        "time": "2023-11-14T22:13:20.000Z",
        "retrygroup": "departures",
        "reconsumetimes": "0",
        "partitionkey": "key",
        "topic": "flights",
        "pubsubname": "pubsub",
    }
    assert found["content-type"] == "application/cloudevents+json"
    assert [found[f"__{name}"] for name in ("key", "topic", "partition", "offset", "timestamp")] == [
        *("key", "flights", "0", "7", str(APPENDED_MS))
    ]


def test_json_data_stands_in_an_event_byte_for_byte() -> None:
    request = DAPR.of([message_at(0, body=b'{"n":12345678901234567890.10, "n":2}')], [])
    assert b'"data": {"n":12345678901234567890.10, "n":2}}' in request.body


def test_dapr_honours_raw_payload_and_the_routes_of_the_app() -> None:
    raw = DaprRequests(
        OWN_HEADERS, "pubsub", {"flights": DaprRoute("flights", "/on-flight", True)}, lambda _topic: "/other"
    )
    event, _ = of_dapr(message_at(0, body=b'{"n": 1}'), raw)
    assert base64.b64decode(event["data_base64"]) == b'{"n": 1}'
    assert event["datacontenttype"] == "application/octet-stream"
    assert raw.of([message_at(0)], []).path == "/on-flight"
    assert raw.of([message_at(0, topic="others")], []).path == "/other"


def test_dapr_takes_an_event_that_was_published_as_one() -> None:
    published = {"specversion": "1.0", "id": "1", "source": "s", "type": "t", "data": {"n": 1}, "topic": "old"}
    event, _ = of_dapr(message_at(0, body=json.dumps(published).encode()))
    assert event == published | {"topic": "flights", "pubsubname": "pubsub"}
    also: list[Header] = [("ce_data", b"x"), ("ce_datacontenttype", b"x")]
    binary, _ = of_dapr(message_at(0, headers=[*CLOUD_EVENT, *also], body=b'{"n": 1}'))
    assert (binary["id"], binary["source"], binary["data"]) == ("1234", "/ünter wegs", {"n": 1})


def test_dapr_gets_the_trace_in_event_and_headers() -> None:
    event, found = of_dapr(message_at(0, headers=[("traceparent", b"00-aa-bb-01")]))
    assert event["traceparent"] == found["traceparent"] == "00-aa-bb-01"


def test_a_batch_keeps_the_order_and_tells_each_message_apart() -> None:
    awkward: list[Header] = [("a&b=c", b"\xff="), ("none", None), ("a&b=c", b"2")]
    given = [message_at(1, headers=awkward), message_at(2, body=None), message_at(3, body=b"\xff", key=b"\xff")]
    request = BATCH.of(given, [])
    events = json.loads(request.body)
    assert [event["id"] for event in events] == ["flights/0/1", "flights/0/2", "flights/0/3"]
    assert events[0]["kafkaheaders"] == "a%26b%3Dc=%FF%3D&none&a%26b%3Dc=2"
    assert (events[1]["data"], events[1]["reconsumetombstone"]) == (None, "true")
    assert (events[2]["data_base64"], events[2]["partitionkey"]) == ("/w==", "%FF")
    assert all(name.isascii() and name.isalnum() for event in events for name in event if name != "data_base64")
    found = headers(request)
    assert found["content-type"] == "application/cloudevents-batch+json"
    assert found["reconsume-max-times"] == "16"
    assert "reconsume-times" not in found


def test_a_batch_passes_cloud_events_through() -> None:
    body = json.dumps({"specversion": "1.0", "id": "7", "source": "s", "type": "t"}).encode()
    structured = message_at(0, body=body, headers=[("content-type", b"application/cloudevents+json")])
    first, second = json.loads(BATCH.of([structured, message_at(1, headers=CLOUD_EVENT)], []).body)
    assert (first["id"], first["reconsumetopic"]) == ("7", "flights")
    assert (second["id"], second["comexampleext"]) == ("1234", "100%")


@pytest.mark.parametrize("requests", [DAPR, BATCH])
def test_numbers_of_a_cloud_event_keep_their_digits(requests: Any) -> None:
    """A float has 17 digits, an amount of money may have more."""
    numbers = b'{"amount":12345678901234567.89,"price":1.10}'
    event = b'{"id": "1", "source": "s", "type": "t", "specversion": "1.0", "data": %s}\n' % numbers
    message = message_at(0, body=event, headers=[("content-type", b"application/cloudevents+json")])
    sent = requests.of([message], []).body
    assert numbers in sent
    [found] = parsed if isinstance(parsed := json.loads(sent), list) else [parsed]
    assert found["id"] == "1"
    assert "flights" in (found.get("reconsumetopic"), found.get("topic"))
    named = event.replace(b'"id"', b'"topic": "mine", "reconsumetopic": "mine", "id"')
    members: list[tuple[str, Any]] = []
    json.loads(
        requests.of([message_at(0, body=named, headers=message.headers)], []).body, object_pairs_hook=members.extend
    )
    names = [name for name, _ in members]
    assert len(names) == len(set(names)), "no name twice"
    assert "flights" in dict(members).values(), "of two with one name reconsume's counts"


def test_a_born_timestamp_that_no_calendar_has_does_not_stop_a_message() -> None:
    headers_of_it = [one for one in RETRIED if one[0] != "BORN_TIMESTAMP"] + [("BORN_TIMESTAMP", b"9" * 18)]
    found = native(message_at(5, topic=RETRY_TOPIC, headers=headers_of_it))
    assert found["ce-time"].startswith("9999-12-31")


def test_made_up_origin_topics_take_no_memory() -> None:
    native: Any = requests_of(PushSettings(group="departures", topics={"flights": "*"}), lambda: 16, {})
    for number in range(1_100):
        made_up: list[Header] = [("RETRY_TOPIC", b"made-up-%d" % number), *RETRIED[1:]]
        [(_, source)] = [
            one
            for one in native.of([message_at(0, topic=RETRY_TOPIC, headers=made_up)], []).headers
            if one[0] == "ce-source"
        ]
        assert source == f"/kafka/topics/made-up-{number}"
    assert native.route.cache_info().currsize == 1_000
    assert cloud_events._source.cache_info().currsize == 1_000


@pytest.mark.parametrize("number", ["1e999", "-1e999"])
@pytest.mark.parametrize("requests", [DAPR, BATCH])
def test_a_number_that_no_float_holds_leaves_the_event_valid_json(number: str, requests: Any) -> None:
    event = b'{"id": "1", "source": "s", "type": "t", "specversion": "1.0", "data": %s}' % number.encode()
    message = message_at(0, body=event, headers=[("content-type", b"application/cloudevents+json")])

    def not_json(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    sent = json.loads(requests.of([message], []).body, parse_constant=not_json)
    [found] = sent if isinstance(sent, list) else [sent]
    assert abs(found["data"]) > 1e308
    assert (found["data"] < 0) is number.startswith("-")
