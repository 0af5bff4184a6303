"""Logs of a process: JSON or lines, the ids of the trace, another level while it runs. In a process of their own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request

import pytest
from prometheus_client import CollectorRegistry

from reconsume.bridge.http.management import ManagementServer
from reconsume.cli.logs import level_named
from reconsume.delay_levels.errors import IllegalSetting
from tests.support.hostile import HOSTILE, assert_harmless

WORKS = """
import logging, sys, warnings
from opentelemetry.sdk.trace import TracerProvider
from reconsume.cli.logs import configure_logs
level = configure_logs("INFO", sys.argv[1])
logger = logging.getLogger("reconsume.bridge.x")
logger.debug("left out")
logger.info("said %s", "it")
with TracerProvider().get_tracer("t").start_as_current_span("s") as span:
    logger.warning("in a span")
print(format(span.get_span_context().trace_id, "032x"))
warnings.warn("Producer abort_transaction failed during close: fenced", RuntimeWarning)
warnings.warn("in two\\nlines", RuntimeWarning)
level.set("debug")
logger.debug("not left out")
try:
    1 / 0
except ZeroDivisionError:
    logger.exception("failed")
"""


def run(form: str) -> tuple[str, str]:
    ran = subprocess.run([sys.executable, "-c", WORKS, form], capture_output=True, text=True, check=True, timeout=60)
    return ran.stdout.strip(), ran.stderr


def test_json_has_one_object_in_each_line_and_names_the_trace() -> None:
    trace, text = run("json")
    lines = [json.loads(line) for line in text.splitlines()]
    assert [line["event"] for line in lines] == ["said it", "in a span", lines[2]["event"], "not left out", "failed"]
    assert (lines[0]["level"], lines[0]["logger"]) == ("info", "reconsume.bridge.x")
    assert lines[0]["timestamp"].endswith("Z")
    assert lines[1]["trace_id"] == trace
    assert "trace_id" not in lines[0]
    assert "RuntimeWarning: in two\nlines" in lines[2]["event"]
    assert lines[4]["exception"][0]["exc_type"] == "ZeroDivisionError"


def test_lines_for_people_have_no_colours_where_nobody_looks() -> None:
    trace, text = run("console")
    assert "said it" in text
    assert f"trace_id={trace}" in text
    assert "ZeroDivisionError" in text
    assert "left out" not in text.splitlines()[0]
    assert "\x1b" not in text


HOSTILE_WORKS = """
import logging, sys
from reconsume.cli.logs import configure_logs
from tests.support.hostile import HOSTILE
sys.stderr.isatty = lambda: sys.argv[2] == "colours"
configure_logs("INFO", sys.argv[1])
logger = logging.getLogger("reconsume.bridge.x")
forged = HOSTILE + "\\n2026-11-23T10:00:00Z [info] forged"
logger.warning("refused: %s", forged, extra={"topic": forged, "error": ValueError(forged)})
try:
    raise ValueError(forged)
except ValueError:
    logger.exception("failed")
"""


def hostile_lines(form: str, colours: str) -> list[str]:
    program = [sys.executable, "-c", HOSTILE_WORKS, form, colours]
    terminal = os.environ | {"TERM": "xterm", "NO_COLOR": ""}
    ran = subprocess.run(program, capture_output=True, text=True, check=True, timeout=60, env=terminal)
    return ran.stderr.splitlines()


def test_json_of_hostile_text_is_harmless_and_the_same() -> None:
    lines = hostile_lines("json", "plain")
    assert_harmless("\n".join(lines))
    warned, failed = map(json.loads, lines)
    assert warned["event"].startswith("refused: " + HOSTILE)
    assert warned["topic"].startswith(HOSTILE)
    assert failed["exception"][0]["exc_value"].startswith(HOSTILE)


def test_lines_of_hostile_text_are_harmless_and_no_event_is_forged() -> None:
    lines = hostile_lines("console", "plain")
    assert_harmless("\n".join(lines), shows="refused: cannot open [/data/in.csv], missing [orders] [red]x[/red]")
    begins = [line for line in lines if not line.startswith(" ")]
    assert [("refused" in line, "failed" in line) for line in begins] == [(True, False), (False, True)]


def test_colours_are_those_of_the_renderer_alone() -> None:
    text = "\n".join(hostile_lines("console", "colours"))
    assert "\x1b[" in text
    assert_harmless(re.sub(r"\x1b\[[0-9;]*m", "", text), shows="refused: cannot open [/data/in.csv]")


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
