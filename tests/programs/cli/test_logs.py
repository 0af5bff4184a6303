"""Logs of a process: JSON or lines, and the ids of the trace."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

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
