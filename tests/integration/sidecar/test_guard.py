"""Who may call the sidecar, and how much of what: over real sockets."""

from __future__ import annotations

import http.client
import json
import logging
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI

from reconsume.bridge.http.open_connections import ConnectionLimits
from reconsume.bridge.http.uvicorn_thread import UvicornThread
from reconsume.bridge.process.settings import ManagementSettings
from reconsume.delay_levels.errors import IllegalSetting
from reconsume.sidecar.process.process import Sidecar
from tests.integration.cli.test_cli import reconsume
from tests.integration.installation import Installation, installation
from tests.integration.sidecars import Answered, Running, b64, call, running_sidecar, sidecar_settings
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kafka

TOKEN = "0123456789abcdef0123456789abcdef"
LIMITS = {"body_mib": 0.01, "header_kib": 2}


@pytest.fixture(scope="module")
def here(bootstrap_servers: str) -> Iterator[Installation]:
    with installation(bootstrap_servers) as one:
        yield one


@pytest.fixture(scope="module")
def limited(here: Installation) -> Iterator[Running]:
    with running_sidecar(sidecar_settings(here.settings, limits=LIMITS)) as running:
        yield running


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "sidecar.example"])
def test_a_bind_that_others_reach_needs_a_token(here: Installation, host: str) -> None:
    with pytest.raises(IllegalSetting, match="so it needs a token; name a file"):
        Sidecar(sidecar_settings(here.settings, listen={"host": host, "port": 0}))


def test_a_token_that_cannot_be_one(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("short\n")
    run = reconsume("sidecar", "--listen", "0.0.0.0:0", "--token-file", str(file))
    said = "at least 16 characters" in run.stderr
    assert (run.returncode, said, "Traceback" in run.stderr) == (2, True, False)
    assert "short" not in run.stderr


def test_without_the_token_nobody_is_let_in(here: Installation, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN + "\n")
    settings = sidecar_settings(here.settings, listen={"host": "0.0.0.0", "port": 0}, token_file=file)
    with running_sidecar(settings) as sidecar:
        address = "127.0.0.1:" + sidecar.api.rpartition(":")[2]
        for shown in ({}, {"authorization": TOKEN}, {"authorization": f"Bearer {TOKEN[:-1]}"}):
            refused = call(address, "GET", "/v1/groups/g", headers=shown)
            assert (refused.status, refused.kind) == (401, "unauthorized")
            assert refused.headers["www-authenticate"] == "Bearer"
        assert call(address, "GET", "/v1/groups/g", headers={"authorization": f"Bearer {TOKEN}"}).status == 200
        assert sidecar.probe("/readyz").status == 200, "probes need no token"


@pytest.fixture(scope="module")
def shared(here: Installation) -> Iterator[tuple[Running, str, str]]:
    """A sidecar that two share, and a topic of each; the first record of both is there."""
    topics = [here.unique("shop-orders"), here.unique("air-flights")]
    for topic in topics:
        here.admin.create(topic, 1, -1, {})
        here.produce(topic, b"0")
    callers = {
        "shop": {"token": f"shop-{TOKEN}", "groups": ["shop-*"], "topics": [topics[0]]},
        "air": {"token": f"air-{TOKEN}", "groups": ["air"], "topics": [f"{topics[1][:-3]}*", "*"]},
    }
    with running_sidecar(sidecar_settings(here.settings, token=TOKEN, callers=callers)) as running:
        yield running, topics[0], topics[1]


def as_caller(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {name}-{TOKEN}" if name else f"Bearer {TOKEN}"}


@pytest.mark.parametrize("by_value", [False, True])
def test_a_token_opens_its_groups_and_topics_alone(
    here: Installation, shared: tuple[Running, str, str], by_value: bool
) -> None:
    sidecar, orders, flights = shared
    more = {"value": b64(b"v")} if by_value else {}

    def send_back(caller: str, group: str, topic: str) -> Answered:
        body = {"topic": topic, "partition": 0, "offset": 0} | more
        return call(sidecar.api, "POST", f"/v1/groups/{group}/send-back", body, as_caller(caller))

    assert [send_back("shop", "shop-1", orders).status, send_back("air", "air", flights).status] == [200, 200]
    for caller, group, topic, said in (
        ("shop", "air", orders, "group 'air': the token of shop opens the groups shop-*;"),
        ("shop", "shop-1", flights, f"topic '{flights}': the token of shop opens the topics {orders};"),
        ("air", "air", here.settings.names.retry("shop-1"), "the token of air opens the topics"),
        ("air", "air", here.settings.names.delay(1_000), "the token of air opens the topics"),
    ):
        refused = send_back(caller, group, topic)
        assert (refused.status, refused.kind) == (403, "token-not-allowed")
        assert said in refused.body["detail"]
    wait_until(lambda: here.retries("shop-1"), "the retry")
    assert send_back("shop", "shop-1", here.settings.names.retry("shop-1")).status == 200, "its own retry topic"
    assert send_back("", "air", orders).status == 200, "the token for all"
    both = [{"topic": topic, "partition": 0, "offset": 0} | more for topic in (orders, flights)]
    part = call(sidecar.api, "POST", "/v1/groups/shop-2/send-back", {"records": both}, as_caller("shop"))
    assert part.status == 403
    assert [one.get("outcome", one.get("status")) for one in part.body["records"]] == ["DELAYED", 403]


def test_a_token_opens_views_of_its_groups_and_messages_to_its_topics_alone(
    here: Installation, shared: tuple[Running, str, str]
) -> None:
    sidecar, orders, flights = shared
    for method in ("GET", "PUT"):
        statuses = [
            call(sidecar.api, method, f"/v1/groups/{group}", headers=as_caller("air")).status for group in ("air", "g")
        ]
        assert statuses == [200, 403]
    key = {"idempotency-key": "the same"}

    def send(caller: str, topic: str) -> Answered:
        return call(sidecar.api, "POST", "/v1/messages", {"topic": topic, "value": b64(b"m")}, as_caller(caller) | key)

    refused = send("shop", flights)
    assert (refused.status, refused.kind) == (403, "token-not-allowed")
    first, again, other = send("shop", orders), send("shop", orders), send("air", flights)
    assert (first.status, other.status) == (200, 200), "a key belongs to its caller"
    assert first.body == again.body
    assert [one.value for one in here.read(orders)].count(b"m") == 1


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_that_is_too_large(limited: Running, chunked: bool) -> None:
    body: Any = b'{"topic": "' + b"x" * 20_000_000
    connection = http.client.HTTPConnection(limited.api, timeout=60)
    content = iter([body[:5_000], body[5_000:]]) if chunked else body
    headers = {"content-type": "application/json"} | ({"transfer-encoding": "chunked"} if chunked else {})
    connection.request("POST", "/v1/messages", content, headers, encode_chunked=chunked)
    answer = connection.getresponse()
    assert answer.status == 413
    assert b"sidecar.limits.body_mib" in answer.read()
    connection.close()


@pytest.mark.parametrize("kind", [None, "application/x-www-form-urlencoded", "text/plain", "application/jsonx"])
@pytest.mark.parametrize("path", ["/v1/messages", "/v1/groups/g/send-back"])
def test_a_body_that_is_not_declared_as_json(limited: Running, path: str, kind: str | None) -> None:
    connection = http.client.HTTPConnection(limited.api, timeout=60)
    connection.request("POST", path, b'{"topic": "t"}', {} if kind is None else {"content-type": kind})
    answer = connection.getresponse()
    problem = json.loads(answer.read())
    connection.close()
    assert (answer.status, problem["type"]) == (415, "urn:reconsume:problem:unsupported-media-type")
    said = "content-type is missing" if kind is None else f"content-type is {kind!r}"
    assert problem["detail"] == f"{said}: send the header `content-type: application/json`"


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "Application/JSON", "application/x+json"])
def test_json_by_any_name_is_read(limited: Running, kind: str) -> None:
    refused = call(limited.api, "POST", "/v1/messages", b"{}", {"content-type": kind})
    assert (refused.status, refused.kind) == (422, "illegal-value")


def test_headers_that_are_too_large_whole_or_without_an_end(limited: Running) -> None:
    assert call(limited.api, "GET", "/v1/groups/g", headers={"x": "y" * 3_000}).status == 431
    host, _, port = limited.api.partition(":")
    with socket.create_connection((host, int(port)), 60) as connection:
        connection.sendall(b"GET /v1/groups/g HTTP/1.1\r\nhost: here\r\nx: " + b"y" * 3_000)
        assert connection.recv(1_000).startswith(b"HTTP/1.1 431 ")


def test_one_connection_serves_many_requests_each_with_its_own_headers(limited: Running) -> None:
    connection = http.client.HTTPConnection(limited.api, timeout=60)
    for _ in range(5):
        connection.request("GET", "/openapi.json", headers={"x": "y" * 1_000})
        answer = connection.getresponse()
        assert (answer.status, len(answer.read()) > 1_000) == (200, True)
    connection.close()


def test_what_is_no_http(limited: Running) -> None:
    host, _, port = limited.api.partition(":")
    with socket.create_connection((host, int(port)), 60) as connection:
        connection.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
        assert connection.recv(1_000).startswith(b"HTTP/1.1 400 ")


def test_300_idle_connections_to_each_port_hold_no_thread_and_hold_up_nobody(here: Installation) -> None:
    with running_sidecar(sidecar_settings(here.settings)) as sidecar, ExitStack() as stack:
        before = threading.active_count()
        for address in (sidecar.api, sidecar.management):
            host, _, port = address.partition(":")
            for _ in range(300):
                stack.enter_context(socket.create_connection((host, int(port)), 60))
        assert call(sidecar.api, "GET", "/v1/groups/g").status == 200
        assert [sidecar.probe(path).status for path in ("/livez", "/readyz", "/metrics")] == [200] * 3
        assert threading.active_count() < before + 50


@pytest.mark.parametrize("host", ["::1", "[::1]", "::"])
def test_both_ports_on_ipv6(here: Installation, host: str, tmp_path: Path) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError as error:
        pytest.skip(f"this machine has no IPv6: {error}")
    (file := tmp_path / "token").write_text(TOKEN)
    settings = sidecar_settings(here.settings, listen={"host": host, "port": 0}, token_file=file)
    settings = settings.model_copy(update={"management": ManagementSettings(host=host, port=0)})
    headers = {"authorization": f"Bearer {TOKEN}"}
    with running_sidecar(settings) as sidecar:
        api, management = (one.rpartition(":")[2] for one in (sidecar.api, sidecar.management))
        for address in ("[::1]", "127.0.0.1") if host == "::" else ("[::1]",):
            assert call(f"{address}:{api}", "GET", "/v1/groups/g", headers=headers).status == 200
            # From this machine no token is needed, whichever address it has.
            assert call(f"{address}:{management}", "GET", "/quiesce").status == 200


def test_more_requests_than_the_rate_allows(here: Installation) -> None:
    settings = sidecar_settings(here.settings, limits={"requests_per_second": 2})
    with running_sidecar(settings) as sidecar:
        answers = [call(sidecar.api, "GET", "/openapi.json") for _ in range(20)]
    refused = [answer for answer in answers if answer.status == 429]
    assert refused
    assert {(answer.kind, answer.headers["retry-after"]) for answer in refused} == {("too-many-requests", "1")}


def test_more_send_backs_than_may_wait(here: Installation) -> None:
    topic = here.topic("crowd")
    here.produce(topic, b"1", b"2", b"3")
    records = [{"topic": topic, "partition": 0, "offset": number} for number in range(3)]
    with running_sidecar(sidecar_settings(here.settings, limits={"records_in_flight": 1})) as sidecar:
        crowded = sidecar.send_back(here.name("crowd-group"), {"records": records})
        assert (crowded.status, crowded.headers["retry-after"]) == (503, "5")
        while crowded.status != 200:
            crowded = sidecar.send_back(here.name("crowd-group"), {"records": records})
    assert len(here.waiting(1_000, here.name("crowd-group"))) == 3


def test_payloads_are_never_in_logs_nor_in_answers(
    limited: Running, here: Installation, caplog: pytest.LogCaptureFixture
) -> None:
    secret = "swordfish-4711"
    group = here.name("secret")
    record = {"topic": "t", "partition": 0, "offset": 0}
    with caplog.at_level(logging.DEBUG):
        bodies: list[Any] = [
            record | {"value": b64(secret.encode()), "headers": [{"name": secret, "value": b64(secret.encode())}]},
            record | {"value": secret},
            record | {"value": b64(secret.encode()), "offset": secret},
            record | {"value": secret, secret: 1, "error": {"message": secret}},
            secret.encode(),
            f'{{"value": "{secret}", '.encode(),
        ]
        answers = [limited.send_back(group, body) for body in bodies]
    assert [answer.status for answer in answers] == [200, 422, 422, 422, 400, 400]
    told = [str(answer.body) for answer in answers]
    # A field's name is told, or nobody could fix it.
    assert [secret in text for text in told] == [False, False, False, True, False, False]
    assert secret not in caplog.text
    assert b64(secret.encode()) not in caplog.text + str(told)


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority, and certificates of it for `localhost` and for a client."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl, which makes the certificates, is not on PATH")
    folder = tmp_path_factory.mktemp("pki")
    run = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    signed = ["-CA", "ca.crt", "-CAkey", "ca.key"]
    name = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    for subject, more in (("ca", []), ("server", signed + name), ("client", signed)):
        command = [*run, "-subj", f"/CN={subject}", "-keyout", f"{subject}.key", "-out", f"{subject}.crt", *more]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return folder


def test_tls_with_and_without_a_clients_certificate(here: Installation, pki: Path) -> None:
    tls = {"certificate": pki / "server.crt", "key": pki / "server.key", "client_ca": pki / "ca.crt"}

    def status(port: str, *, show: bool) -> int:
        context = ssl.create_default_context(cafile=pki / "ca.crt")
        if show:
            context.load_cert_chain(pki / "client.crt", pki / "client.key")
        connection = http.client.HTTPSConnection("localhost", int(port), context=context, timeout=60)
        try:
            connection.request("GET", "/openapi.json")
            return connection.getresponse().status
        finally:
            connection.close()

    with running_sidecar(sidecar_settings(here.settings, tls=tls)) as sidecar:
        port = sidecar.api.rpartition(":")[2]
        assert status(port, show=True) == 200
        with pytest.raises((ssl.SSLError, ConnectionError)):
            status(port, show=False)
    with running_sidecar(sidecar_settings(here.settings, tls=tls | {"client_ca": None})) as sidecar:
        assert status(sidecar.api.rpartition(":")[2], show=False) == 200


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_client_that_begins_no_handshake_is_closed_in_time(pki: Path, loop: str) -> None:
    """By default asyncio waits 60 s, and such connections do not count."""
    files = {"ssl_certfile": pki / "server.crt", "ssl_keyfile": pki / "server.key"}
    where, limits = ("sidecar.listen", "127.0.0.1", 0, "served"), ConnectionLimits(head_seconds=0.5)
    server = UvicornThread(FastAPI(), *where, limits=limits, loop=loop, **files)  # type: ignore[arg-type]
    server.start()
    try:
        host, _, port = server.address.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=30) as silent:
            assert silent.recv(1) == b""
    finally:
        server.end(1, 10)


def test_certificates_that_cannot_be_used(here: Installation, pki: Path) -> None:
    wrong = {"certificate": pki / "server.crt", "key": pki / "client.key"}
    with pytest.raises(IllegalSetting, match="certificates cannot be used"):
        Sidecar(sidecar_settings(here.settings, tls=wrong))
    with pytest.raises(IllegalSetting, match="does not exist; check the path"):
        Sidecar(sidecar_settings(here.settings, tls=wrong | {"key": pki / "none.key"}))
