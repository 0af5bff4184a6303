"""The guard in front of the API: what bodies take of the memory, and who is let in."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
from collections.abc import MutableMapping, Sequence
from contextlib import closing
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from reconsume.bridge.http.uvicorn_thread import UvicornThread
from reconsume.sidecar.guarding.callers import Caller, Callers
from reconsume.sidecar.guarding.guard import ApiGuard
from reconsume.sidecar.guarding.shares import BODY_TIMES, Held, Shares
from reconsume.sidecar.metrics import SidecarMetrics
from tests.support.waiting import PATIENCE

Message = MutableMapping[str, Any]

BODY = 1_000
PATH = "/v1/groups/departures/send-back"


class App:
    """Reads the body, then answers when it may."""

    def __init__(self) -> None:
        self.may_answer = asyncio.Event()
        self.read: list[bytes] = []
        self.callers: list[Caller] = []

    async def __call__(self, scope: Message, receive: Any, send: Any) -> None:
        self.callers.append(scope["caller"])
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message["body"], message.get("more_body", False)
        self.read.append(body)
        await self.may_answer.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})


class Asked:
    """One request and what it was answered."""

    def __init__(self, chunks: Sequence[bytes], *, declared: bool, path: str = PATH, token: str = "") -> None:
        headers = [(b"authorization", b"Bearer " + token.encode())] if token else []
        headers += [(b"content-length", str(sum(map(len, chunks))).encode())] if declared else []
        self.scope: Message = {"type": "http", "path": path, "headers": headers}
        self.left = list(chunks)
        self.sent: list[Message] = []

    async def receive(self) -> Message:
        chunk = self.left.pop(0)
        return {"type": "http.request", "body": chunk, "more_body": bool(self.left)}

    async def send(self, message: Message) -> None:
        self.sent.append(message)

    @property
    def status(self) -> int | None:
        return self.sent[0]["status"] if self.sent else None

    @property
    def told(self) -> Any:
        return json.loads(self.sent[1]["body"])


async def until_all_wait() -> None:
    """Nothing here waits for anything but turns of the loop."""
    for _ in range(200):
        await asyncio.sleep(0)


def guarded(app: App, memory: Shares, callers: Callers | None = None) -> ApiGuard:
    return ApiGuard(
        app,
        callers=callers or Callers({}),
        body_bytes=BODY,
        memory=memory,
        rate=None,
        clock=lambda: 0.0,
        metrics=SidecarMetrics(CollectorRegistry()),
    )


@pytest.mark.parametrize("declared", [True, False])
def test_bodies_in_hand_take_memory_until_they_are_answered(declared: bool) -> None:
    async def run() -> None:
        app, memory = App(), Shares(2 * BODY_TIMES * BODY, has_one_owner=True)
        guard, chunks = guarded(app, memory), [b"x" * 600, b"x" * 400]
        first = [Asked(chunks, declared=declared) for _ in range(2)]
        tasks = [asyncio.ensure_future(guard(one.scope, one.receive, one.send)) for one in first]
        await until_all_wait()
        assert len(app.read) == 2
        assert not Held(memory, "another").take(1)
        third = Asked(chunks, declared=declared)
        await guard(third.scope, third.receive, third.send)
        assert (third.status, third.told["type"]) == (503, "urn:reconsume:problem:too-many-waiting")
        assert (b"retry-after", b"5") in third.sent[0]["headers"]
        assert "sidecar.limits.memory_mib" in third.told["detail"]
        app.may_answer.set()
        await asyncio.gather(*tasks)
        assert [one.status for one in first] == [200, 200]
        everything = Held(memory, "another")
        assert everything.take(2 * BODY_TIMES * BODY)
        everything.give_back()
        again = Asked(chunks, declared=declared)
        await guard(again.scope, again.receive, again.send)
        assert again.status == 200

    asyncio.run(run())


def test_one_group_leaves_memory_for_others() -> None:
    async def run() -> list[int | None]:
        app, memory = App(), Shares(16 * BODY_TIMES * BODY)
        guard = guarded(app, memory)
        slow = [Asked([b"x" * BODY], declared=True) for _ in range(50)]
        tasks = [asyncio.ensure_future(guard(one.scope, one.receive, one.send)) for one in slow]
        await until_all_wait()
        other = Asked([b"x" * BODY], declared=True, path="/v1/groups/arrivals/send-back")
        tasks.append(asyncio.ensure_future(guard(other.scope, other.receive, other.send)))
        await until_all_wait()
        app.may_answer.set()
        await asyncio.gather(*tasks)
        return [one.status for one in (*slow, other)]

    statuses = asyncio.run(asyncio.wait_for(run(), 60))
    assert (statuses.count(503), statuses[-1]) == (38, 200)


def test_a_token_tells_who_calls_and_a_wrong_one_reaches_nothing() -> None:
    async def run() -> tuple[list[Caller], list[int | None]]:
        app, shop = App(), Caller("shop", ["departures"], ["b"])
        app.may_answer.set()
        guard = guarded(app, Shares(1_000_000), Callers({"0123456789abcdef": shop}))
        asked = [Asked([b"{}"], declared=True, token=token) for token in ("0123456789abcdef", "0123456789abcdeX", "")]
        for one in asked:
            await guard(one.scope, one.receive, one.send)
        return app.callers, [one.status for one in asked]

    callers, statuses = asyncio.run(run())
    assert ([one.name for one in callers], statuses) == (["shop"], [200, 401, 401])


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize(("token", "status"), [("0123456789abcdef", 413), ("0123456789abcdeX", 401)])
def test_who_sends_a_large_body_reads_why_it_is_refused(token: str, status: int, chunked: bool) -> None:
    callers = Callers({"0123456789abcdef": Caller("shop", ["departures"])})
    guard = guarded(App(), Shares(1_000_000), callers)
    server = UvicornThread(guard, "sidecar.listen", "127.0.0.1", 0, "guarded", loop="uvloop")
    server.start()
    content: Any = iter([b"x" * 2_000_000] * 2) if chunked else b"x" * 4_000_000
    headers = {"authorization": f"Bearer {token}"} | ({"transfer-encoding": "chunked"} if chunked else {})
    with closing(http.client.HTTPConnection(server.address, timeout=60)) as client:
        client.request("POST", PATH, content, headers, encode_chunked=chunked)
        answer = client.getresponse()
        assert (answer.status, answer.headers["content-type"]) == (status, "application/problem+json")
    server.end(1, 60)


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize("sent", [2, 1], ids=["whole", "half of a body"])
def test_a_call_that_waits_when_the_sidecar_ends_is_to_be_made_again(
    loop: str, sent: int, caplog: pytest.LogCaptureFixture
) -> None:
    begun = threading.Event()

    class Endless(App):
        async def __call__(self, scope: Message, receive: Any, send: Any) -> None:
            begun.set()
            await super().__call__(scope, receive, send)

    server = UvicornThread(
        guarded(Endless(), Shares(1_000_000)), "sidecar.listen", "127.0.0.1", 0, "guarded", loop=loop
    )
    server.start()
    with closing(http.client.HTTPConnection(server.address, timeout=60)) as client:
        client.request("POST", PATH, b"x" * sent, {"content-length": "2"})
        assert begun.wait(PATIENCE)
        server.end(1, 30)
        answer = client.getresponse()
        problem = json.loads(answer.read())
    assert (answer.status, answer.headers["content-type"]) == (503, "application/problem+json")
    assert (answer.headers["retry-after"], answer.headers["connection"]) == ("5", "close")
    assert "make the same call again" in problem["detail"]
    assert "Traceback" not in caplog.text


def test_an_answer_that_has_begun_is_not_followed_by_another_at_the_end() -> None:
    async def app(scope: Message, receive: Any, send: Any) -> None:
        del scope, receive
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise asyncio.CancelledError

    asked = Asked([b"{}"], declared=True)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(guarded(app, Shares(1_000_000))(asked.scope, asked.receive, asked.send))  # type: ignore[arg-type]
    assert [one["type"] for one in asked.sent] == ["http.response.start"]


@pytest.mark.parametrize("name", [b"a%FF", b"a%2F%FF", b"%ED%A0%80"])
def test_a_path_that_is_not_utf8_is_refused_and_makes_no_two_groups_one(name: bytes) -> None:
    app = App()
    app.may_answer.set()
    asked = Asked([b"{}"], declared=True, path="/v1/groups/a\ufffd/send-back")
    asked.scope["raw_path"] = b"/v1/groups/%s/send-back" % name
    asyncio.run(guarded(app, Shares(100_000))(asked.scope, asked.receive, asked.send))
    assert (asked.status, asked.told["type"]) == (422, "urn:reconsume:problem:illegal-name")
    assert "is not UTF-8; encode names in UTF-8" in asked.told["detail"]
    assert app.callers == []


def test_a_group_that_the_token_does_not_open_is_refused_before_its_body_takes_memory() -> None:
    async def run() -> tuple[Asked, int]:
        memory, callers = Shares(1_000_000), Callers({"0123456789abcdef": Caller("shop", ["carts"])})
        asked = Asked([b"x" * BODY], declared=True, path="/v1/groups/made-up/send-back", token="0123456789abcdef")
        await guarded(App(), memory, callers)(asked.scope, asked.receive, asked.send)
        return asked, memory.free

    asked, free = asyncio.run(asyncio.wait_for(run(), 60))
    assert (asked.status, asked.told["type"]) == (403, "urn:reconsume:problem:token-not-allowed")
    assert (len(asked.left), free) == (1, 1_000_000)


@pytest.mark.parametrize("path", ["/v1/groups/shop-{}/send-back", "/v1/groups/shop-{}/send-back/", "/v1/messages"])
def test_groups_that_a_caller_makes_up_do_not_shut_out_another_caller(path: str) -> None:
    async def run() -> int | None:
        app, memory = App(), Shares(16 * BODY_TIMES * BODY)
        callers = {"0123456789abcdef": Caller("shop", ["shop-*"]), "f" * 16: Caller("air", ["departures"])}
        guard = guarded(app, memory, Callers(callers))
        many = [Asked([b"x" * BODY], declared=True, path=path.format(n), token="0123456789abcdef") for n in range(50)]
        tasks = [asyncio.ensure_future(guard(one.scope, one.receive, one.send)) for one in many]
        await until_all_wait()
        other = Asked([b"x" * BODY], declared=True, path=path.replace("shop-{}", "departures"), token="f" * 16)
        tasks.append(asyncio.ensure_future(guard(other.scope, other.receive, other.send)))
        await until_all_wait()
        app.may_answer.set()
        await asyncio.gather(*tasks)
        return other.status

    assert asyncio.run(asyncio.wait_for(run(), 60)) == 200


@pytest.mark.parametrize(("length", "status"), [(b"0" * 5_000 + b"2", 200), (b"9" * 5_000, 413)])
def test_a_declared_length_has_any_number_of_digits(length: bytes, status: int) -> None:
    app = App()
    app.may_answer.set()
    asked = Asked([b"{}"], declared=False)
    asked.scope["headers"].append((b"content-length", length))
    asyncio.run(guarded(app, Shares(100_000))(asked.scope, asked.receive, asked.send))
    assert asked.status == status
