"""A sidecar in a thread of the test, on real sockets, and a client that shows what it was answered."""

from __future__ import annotations

import base64
import http.client
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from reconsume.bridge.process.settings import ManagementSettings, Settings
from reconsume.sidecar.process.process import Sidecar
from reconsume.sidecar.settings import ProcessSettings
from tests.support.waiting import PATIENCE, wait_until

__all__ = ["Answered", "Running", "b64", "call", "running_sidecar", "sidecar_settings"]


class Answered(NamedTuple):
    """What came back over the socket."""

    status: int
    body: Any
    headers: Mapping[str, str]

    @property
    def kind(self) -> str:
        """Of a problem: the last part of its type."""
        assert self.headers["content-type"] == "application/problem+json", self
        return str(self.body["type"]).rpartition(":")[2]


def b64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def call(address: str, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Answered:
    """One request on a connection of its own; a body that is no bytes is sent as JSON."""
    connection = http.client.HTTPConnection(address, timeout=PATIENCE)
    content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    json_type = {} if content is None else {"content-type": "application/json"}
    try:
        connection.request(method, path, content, json_type | dict(headers or {}))
        answer = connection.getresponse()
        text = answer.read()
    finally:
        connection.close()
    kept = {name.lower(): value for name, value in answer.getheaders()}
    return Answered(answer.status, json.loads(text) if "json" in kept.get("content-type", "") else text, kept)


@dataclass
class Running:
    """A sidecar that runs, and where."""

    api: str = ""
    management: str = ""
    stop: threading.Event = field(default_factory=threading.Event)
    failures: list[BaseException] = field(default_factory=list)

    def send_back(self, group: str, body: Any, **headers: str) -> Answered:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return call(self.api, "POST", f"/v1/groups/{group}/send-back", body, named)

    def probe(self, path: str) -> Answered:
        return call(self.management, "GET", path)


def sidecar_settings(settings: Settings, **sidecar: Any) -> ProcessSettings:
    """The settings of an installation, on free ports."""
    return ProcessSettings(
        bootstrap_servers=settings.bootstrap_servers,
        kafka=settings.kafka,
        topic_prefix=settings.topic_prefix,
        topics=settings.topics,
        management=ManagementSettings(port=0),
        sidecar={"listen": {"port": 0}} | sidecar,
    )


@contextmanager
def running_sidecar(settings: ProcessSettings, *, ready: bool = True) -> Iterator[Running]:
    """A sidecar that answers; what ended it before its time fails the test."""
    running = Running()
    began = threading.Event()

    def begun(api: str, management: str) -> None:
        running.api, running.management = api, management
        began.set()

    sidecar = Sidecar(settings, begun)

    def work() -> None:
        try:
            sidecar.run(running.stop)
        except BaseException as error:  # noqa: BLE001 - raised below, in the test's own thread
            running.failures.append(error)

    thread = threading.Thread(target=work, name="sidecar-under-test")
    thread.start()
    try:
        wait_until(lambda: began.is_set() or running.failures, "the sidecar serves")
        if ready and not running.failures:
            wait_until(lambda: running.probe("/readyz").status == 200, "the sidecar is ready")
        yield running
    finally:
        running.stop.set()
        thread.join(PATIENCE)
    if running.failures:
        raise running.failures[0]
    assert not thread.is_alive()
