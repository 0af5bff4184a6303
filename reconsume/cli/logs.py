"""Logs of the processes: lines for people or JSON for machines, with trace ids.

The library only uses `logging` and leaves the output to the program. Here reconsume is the program.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import MutableMapping
from importlib.util import find_spec
from io import StringIO
from typing import Any, TextIO

import structlog

from reconsume.cli.common import ignore_known_warnings
from reconsume.cli.output import has_colours, indented
from reconsume.delay_levels.errors import IllegalSetting
from reconsume.delay_levels.human_text import json_text, visible

_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


def level_named(name: str) -> str:
    """Return the level; IllegalSetting lists the valid names."""
    if name.upper() not in _LEVELS:
        raise IllegalSetting(f"log level {name!r}: use one of {', '.join(_LEVELS)}")
    return name.upper()


class RootLevel:
    """The log level of this process, which may be changed while it runs."""

    def get(self) -> str:
        """Return the current level."""
        return logging.getLevelName(logging.getLogger().level)

    def set(self, name: str) -> None:
        """Change the level; raises `IllegalSetting`."""
        logging.getLogger().setLevel(level_named(name))


def configure_logs(level: str, form: str) -> RootLevel:
    """Send all logs and Python warnings of this process to standard error.

    Args:
        level: the lowest level to log.
        form: `console` for people, `json` for machines: one object in each line.
    """
    shared: list[Any] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _add_trace,
    ]
    last: list[Any] = (
        [structlog.processors.dict_tracebacks, structlog.processors.JSONRenderer(serializer=json_text)]
        if form == "json"
        else [
            _make_visible,
            structlog.dev.ConsoleRenderer(colors=has_colours(sys.stderr), exception_formatter=_visible_traceback),
        ]
    )
    handler = logging.StreamHandler(sys.stderr)
    remove = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=[remove, *last]))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    logging.captureWarnings(capture=True)
    ignore_known_warnings()
    found = RootLevel()
    found.set(level)
    return found


def _make_visible(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Escape control characters, because errors may quote records. The renderer adds colours, so it comes later."""
    return {name: value if name == "exc_info" else _of_one_event(str(value)) for name, value in event.items()}


def _visible_traceback(out: TextIO, exc_info: Any) -> None:
    text = StringIO()
    structlog.dev.plain_traceback(text, exc_info)
    out.write(_of_one_event(text.getvalue()))


def _of_one_event(text: str) -> str:
    return indented(visible(text))


def _add_trace(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Add the ids of the current span, so that a log line can be found from its trace."""
    if find_spec("opentelemetry") is None:
        return event
    from opentelemetry import trace

    context = trace.get_current_span().get_span_context()
    if context.is_valid:
        event["trace_id"] = trace.format_trace_id(context.trace_id)
        event["span_id"] = trace.format_span_id(context.span_id)
    return event
