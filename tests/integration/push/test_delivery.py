"""Push on a real Kafka: apps that are away, hang or restart; orders; sockets; the end of a process."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from reconsume.cli.broker.ports import free_port
from reconsume.consumers.listener import NotNow
from reconsume.sidecar.push import delivery
from reconsume.sidecar.push.app_gate import Entry
from tests.integration.installation import Installation, installation
from tests.integration.push.push_app import App, Delivered, app, pushing
from tests.support.waiting import PATIENCE, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.more, pytest.mark.early(5)]

BODIES = [f"m{number}" for number in range(30)]


@pytest.fixture(scope="module")
def here(bootstrap_servers: str) -> Iterator[Installation]:
    with installation(bootstrap_servers) as one:
        yield one


def produced(here: Installation, name: str, *bodies: str, key: bytes | None = None) -> tuple[str, str]:
    """A group and a topic with these messages."""
    topic = here.topic(name)
    here.produce(topic, *(body.encode() for body in bodies), key=key)
    return here.name(f"{name}-group"), topic


def succeeds(_one: Delivered, _before: int) -> Mapping[str, Any]:
    return {}


def sent_back(here: Installation, group: str) -> int:
    """All copies that were ever sent back or dead-lettered."""
    return sum(len(here.waiting(delay_ms, group)) for delay_ms in (1_000, 2_000, 0))


def counts(one: App) -> set[int]:
    return {delivered.times for delivered in list(one.seen)}


@pytest.mark.parametrize("order", ["none", "key"])
def test_an_app_that_is_down_costs_its_messages_no_attempt(here: Installation, order: str) -> None:
    group, topic = produced(here, f"down-{order}", *BODIES)
    port = free_port()
    with pushing(here, group, topic, f"http://127.0.0.1:{port}", order=order, max_in_flight=4) as push:
        wait_until(lambda: push.pause_ms >= 800, "it was probed four times")
        assert (here.committed(group, topic) or 0) == 0
        with app(succeeds, port=port) as one:
            wait_until(lambda: len(one.seen) >= len(BODIES), "all were delivered")
            wait_until(lambda: here.committed(group, topic) == len(BODIES), "all are committed")
    assert sorted(delivered.value for delivered in one.seen) == sorted(BODIES), "each once"
    assert counts(one) == {0}
    assert sent_back(here, group) == 0


def test_an_app_that_restarts_again_and_again_costs_no_attempt(here: Installation) -> None:
    group, topic = produced(here, "restarts", *BODIES)
    port = free_port()
    seen: list[Delivered] = []

    def slowly(_one: Delivered, _before: int) -> Mapping[str, Any]:
        return {"sleep": 0.5}

    with pushing(here, group, topic, f"http://127.0.0.1:{port}", order="none", max_in_flight=2):
        for round_ in range(1, 4):
            with app(slowly, port=port) as one:
                wait_until(lambda: len(one.seen) >= 4, "some were delivered")
            seen += one.seen
            assert round_ == 3 or len(seen) < len(BODIES)
        with app(succeeds, port=port) as one:
            wait_until(lambda: here.committed(group, topic) == len(BODIES), "all are committed")
        seen += one.seen
    assert {delivered.value for delivered in seen} == set(BODIES)
    assert {delivered.times for delivered in seen} == {0}
    assert sent_back(here, group) == 0


def test_an_app_that_hangs_on_one_message_holds_up_no_other(here: Installation) -> None:
    group, topic = produced(here, "hangs", *BODIES[:5])

    def hangs(one: Delivered, before: int) -> Mapping[str, Any]:
        return {"sleep": 60} if one.value == "m0" and before == 0 else {}

    with app(hangs) as one, pushing(here, group, topic, one.url, order="none", consume_timeout_seconds=10):
        wait_until(lambda: one.times("m0") == [0, 1], "it came again after its time was over")
        assert one.times("m4") == [0]
    [waited] = here.waiting(1_000, group)
    assert waited["DELAY"] == "3"


def test_a_long_answer_is_not_read_to_its_end(here: Installation) -> None:
    group, topic = produced(here, "long", *BODIES[:3])
    with app(lambda _one, _before: {"body": "x" * 50_000_000}) as one, pushing(here, group, topic, one.url):
        wait_until(lambda: here.committed(group, topic) == 3, "all are committed")
    assert len(one.seen) == 3


@pytest.mark.parametrize("order", ["none", "key", "partition"])
def test_what_fails_while_the_process_quiesces_is_no_outcome(here: Installation, order: str) -> None:
    group, topic = produced(here, f"quiesce-{order}", *BODIES)
    go = threading.Event()

    def fails(one: Delivered, _before: int) -> Mapping[str, Any]:
        assert go.wait(PATIENCE)
        return {"status": {"m0": 500, "m1": 400, "m2": 200}.get(one.value, 500)}

    with app(fails) as one, pushing(here, group, topic, one.url, order=order, max_in_flight=3) as push:
        wait_until(lambda: push.life.in_flight == (1 if order == "partition" else 3), "it delivers")
        push.life.quiesce()
        go.set()
        assert push.life.wait_drained(30)
        begun = len(one.seen)
        threading.Event().wait(1)  # what is to be shown is that nothing begins
        assert len(one.seen) == begun
    assert sent_back(here, group) == 0
    assert (here.committed(group, topic) or 0) == 0
    with app(succeeds) as one, pushing(here, group, topic, one.url, order=order):
        wait_until(lambda: here.committed(group, topic) == len(BODIES), "all came again")
    assert counts(one) == {0}
    assert ("m2" in {delivered.value for delivered in one.seen}) == (order == "partition"), "what succeeded counts"


@pytest.mark.parametrize("order", ["none", "partition"])
def test_what_is_held_goes_to_the_next_member_uncounted(here: Installation, order: str) -> None:
    group, topic = produced(here, f"moves-{order}", *BODIES)
    port = free_port()
    with pushing(here, group, topic, f"http://127.0.0.1:{port}", order=order) as push:
        wait_until(lambda: push.pause_ms >= 200, "it was probed")
        with app(succeeds) as one, pushing(here, group, topic, one.url, order=order):
            pass  # the group rebalances twice meanwhile
    with app(succeeds) as after, pushing(here, group, topic, after.url, order=order):
        wait_until(lambda: here.committed(group, topic) == len(BODIES), "all are committed")
    assert {delivered.value for delivered in [*one.seen, *after.seen]} == set(BODIES)
    assert counts(one) | counts(after) == {0}
    assert sent_back(here, group) == 0


def test_closing_in_time_cuts_off_what_the_app_still_has(here: Installation) -> None:
    group, topic = produced(here, "cut-off", *BODIES[:3])
    with app(lambda _one, _before: {"sleep": 60}) as one, pushing(here, group, topic, one.url) as push:
        wait_until(lambda: push.life.in_flight > 0, "it delivers")
        began = time.monotonic()
        push.part.close(0.5)
        assert time.monotonic() - began < 20, "not the 30 s that the app has"
        assert push.life.in_flight == 0
    assert not here.committed(group, topic)
    assert sent_back(here, group) == 0


def test_in_an_order_a_send_back_lets_the_others_pass_and_a_suspension_does_not(here: Installation) -> None:
    group, topic = produced(here, "in-order", "back", "suspended", "last", key=b"same")

    def decide(one: Delivered, before: int) -> Mapping[str, Any]:
        if before:
            return {}
        if one.value == "suspended":
            return {"json": {"status": "SUSPEND_CURRENT_QUEUE_A_MOMENT", "suspendCurrentQueueTimeMillis": 300}}
        return {"status": 500} if one.value == "back" else {}

    with app(decide) as one, pushing(here, group, topic, one.url, order="key"):
        wait_until(lambda: one.times("back") == [0, 1], "it came back")
    order = [delivered.value for delivered in one.seen if delivered.times == 0 or delivered.value != "back"]
    assert order == ["back", "suspended", "suspended", "last"]
    assert one.times("suspended") == [0, 1]


def test_one_key_at_a_time_and_all_keys_at_once(here: Installation) -> None:
    group, topic = here.name("keys-group"), here.topic("keys")
    for number in range(3):
        for key in (b"a", b"b"):
            here.produce(topic, b"%s%d" % (key, number), key=key)
    begun: dict[str, list[float]] = {"a": [], "b": []}

    def decide(one: Delivered, _before: int) -> Mapping[str, Any]:
        begun[one.value[0]].append(time.monotonic())
        return {"sleep": 0.2}

    with app(decide) as one, pushing(here, group, topic, one.url, order="key"):
        wait_until(lambda: len(one.seen) == 6, "all were delivered")
    for name, times in begun.items():
        assert all(later - sooner > 0.19 for sooner, later in pairwise(times)), "after the last answer"
        assert [delivered.value for delivered in one.seen if delivered.value[0] == name] == [
            f"{name}{number}" for number in (0, 1, 2)
        ]
    assert any(abs(a - b) < 0.2 for a in begun["a"] for b in begun["b"]), "both keys at once"


def test_a_batch_succeeds_in_part(here: Installation) -> None:
    group, topic = produced(here, "batch", *BODIES[:8])

    def decide(one: Delivered, before: int) -> Mapping[str, Any]:
        return {"json": {"status": "CONSUME_SUCCESS", "ackIndex": 0}} if before == 0 and one.times == 0 else {}

    with (
        app(decide) as one,
        pushing(
            *(here, group, topic, one.url), profile="rocketmq-batch", order="none", consume_message_batch_max_size=4
        ),
    ):
        wait_until(lambda: here.committed(group, topic) == 8, "all are committed")
        wait_until(lambda: any(delivered.times == 1 for delivered in list(one.seen)), "some came back")
    assert max(one.batches) > 1


def test_while_the_probe_of_the_app_is_red_nothing_is_delivered(
    here: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "_PROBE_EVERY_SECONDS", 0.1)
    group, topic = produced(here, "red", "m0")
    with app(succeeds) as one, pushing(here, group, topic, one.url, probe_route="/healthz") as push:
        wait_until(lambda: one.times("m0") == [0], "it was delivered while the probe is green")
        one.healthy = False
        wait_until(lambda: push.pause_ms, "the probe is red")
        held, enter = [], push.gate.enter

        async def enters(message_id: str) -> Entry:
            try:
                return await enter(message_id)
            except NotNow as told:
                held.append(told)
                raise

        monkeypatch.setattr(push.gate, "enter", enters)
        here.produce(topic, b"m1")
        wait_until(lambda: held, "it is held")
        assert one.times("m1") == []
        one.healthy = True
        wait_until(lambda: one.times("m1") == [0], "it was delivered when the probe was green again")


@pytest.mark.rule("BP-01", "BP-02")
@pytest.mark.parametrize("order", ["none", "key"])
def test_broadcasting_delivers_all_to_each_app_once_and_goes_on_where_it_stopped(
    here: Installation, tmp_path: Path, order: str
) -> None:
    group, topic = produced(here, f"broadcast-{order}", *BODIES)
    more = {"order": order, "message_model": "BROADCASTING"}

    def fails_at_m7(one: Delivered, _before: int) -> Mapping[str, Any]:
        return {"status": 500} if one.value == "m7" else {}

    def values(one: App) -> list[str]:
        return sorted(delivered.value for delivered in list(one.seen))

    stores = [tmp_path / name for name in ("left", "right")]
    with app(fails_at_m7) as left, app(succeeds) as right:
        with (
            pushing(here, group, topic, left.url, offset_store=stores[0], **more),
            pushing(here, group, topic, right.url, offset_store=stores[1], **more),
        ):
            for one in (left, right):
                wait_until(lambda one=one: len(one.seen) == len(BODIES), "all came to each")  # type: ignore[misc]
            assert values(left) == values(right) == sorted(BODIES), "each once, the one that failed too"
        here.produce(topic, b"while it was away")
        with pushing(here, group, topic, left.url, offset_store=stores[0], **more):
            wait_until(lambda: len(left.seen) > len(BODIES), "it goes on")
        assert values(left) == sorted([*BODIES, "while it was away"])
    assert sent_back(here, group) == 0
    assert here.all_committed(group) == {}


def test_drop_may_discard(here: Installation) -> None:
    group, topic = produced(here, "discard", "m")
    with (
        app(lambda _one, _before: {"json": {"status": "DROP"}}) as one,
        pushing(here, group, topic, one.url, drop="discard"),
    ):
        wait_until(lambda: here.committed(group, topic) == 1, "it is committed")
    assert sent_back(here, group) == 0


def test_a_unix_socket(here: Installation, tmp_path: Path) -> None:
    group, topic = produced(here, "unix", *BODIES)
    path = tmp_path / "app"
    with app(succeeds, socket=path) as one, pushing(here, group, topic, "http://app", unix_socket=path):
        wait_until(lambda: here.committed(group, topic) == len(BODIES), "all are committed")
    assert {delivered.headers["host"] for delivered in one.seen} == {"app"}


def test_the_token_of_a_file_goes_with_each_request_and_a_new_one_is_read(here: Installation, tmp_path: Path) -> None:
    group, topic = produced(here, "token", "m0")
    token = tmp_path / "token"
    token.write_text("first\n", encoding="ascii")
    with app(succeeds) as one, pushing(here, group, topic, one.url, token_file=token):
        wait_until(lambda: one.times("m0"), "it was delivered")
        token.write_text("second-one\n", encoding="ascii")
        here.produce(topic, b"m1")
        wait_until(lambda: one.times("m1"), "it was delivered")
    assert [delivered.headers["authorization"] for delivered in one.seen] == ["Bearer first", "Bearer second-one"]


def test_the_trace_of_a_record_goes_on(here: Installation) -> None:
    topic, trace = here.topic("trace"), b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    here.produce(topic, b"m", headers=[("traceparent", trace)])
    group = here.name("trace-group")
    with app(lambda _one, before: {"status": 200 if before else 500}) as one, pushing(here, group, topic, one.url):
        wait_until(lambda: len(one.seen) == 2, "it came back")
    assert [delivered.headers["traceparent"] for delivered in one.seen] == [trace.decode()] * 2
