"""The level of the logs of a process, and another one while it runs."""

from __future__ import annotations

import urllib.error
import urllib.request

import pytest
from prometheus_client import CollectorRegistry

from reconsume.bridge.http.management import ManagementServer
from reconsume.cli.logs import level_named
from reconsume.delay_levels.errors import IllegalSetting


@pytest.mark.parametrize("name", ["LOUD", "", "notset"])
def test_a_level_that_there_is_not_is_refused(name: str) -> None:
    with pytest.raises(IllegalSetting, match="use one of DEBUG, INFO, WARNING, ERROR"):
        level_named(name)


class Level:
    def __init__(self) -> None:
        self.name = "INFO"

    def get(self) -> str:
        return self.name

    def set(self, name: str, /) -> None:
        self.name = level_named(name)


class Health:
    def is_alive(self) -> bool:
        return True

    def is_ready(self) -> bool:
        return True


def ask(server: ManagementServer, method: str, body: str = "") -> tuple[int, str]:
    request = urllib.request.Request(f"http://{server.address}/loglevel", body.encode() or None, method=method)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310 - our own address
            return answer.status, answer.read().decode().strip()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode().strip()


def test_the_level_is_shown_and_changed_over_http_from_this_machine() -> None:
    level = Level()
    server = ManagementServer("127.0.0.1", 0, CollectorRegistry(), Health(), level)
    try:
        assert ask(server, "GET") == (200, "INFO")
        assert ask(server, "PUT", "debug") == (200, "DEBUG")
        assert ask(server, "PUT", "loud")[0] == 400
        assert ask(server, "PUT")[0] == 400
        assert ask(server, "DELETE")[0] == 405
        assert level.name == "DEBUG"
    finally:
        server.close()


def test_nobody_from_elsewhere_changes_it() -> None:
    level = Level()
    server = ManagementServer("127.0.0.1", 0, CollectorRegistry(), Health(), level)
    answers: list[str] = []
    try:
        environ = {"PATH_INFO": "/loglevel", "REQUEST_METHOD": "PUT", "REMOTE_ADDR": "10.0.0.9"}
        server.answer(environ, lambda status, _headers: answers.append(status))
    finally:
        server.close()
    assert answers == ["403 Forbidden"]
    assert level.name == "INFO"


def test_without_a_level_there_is_no_such_path() -> None:
    server = ManagementServer("127.0.0.1", 0, CollectorRegistry(), Health())
    try:
        assert ask(server, "GET")[0] == 404
    finally:
        server.close()
