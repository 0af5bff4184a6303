"""Logs of our processes: lines for people or JSON for machines, with the trace that they belong to.

The library below only uses `logging`; its output is the program's affair. Here we are the program.
"""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import MutableMapping
from importlib.util import find_spec
from typing import Any

import structlog

from reconsume.delay_levels.errors import IllegalSetting

__all__ = ["RootLevel", "configure_logs", "level_named"]

_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


def level_named(name: str) -> str:
    """The level; IllegalSetting names those that there are."""
    if name.upper() not in _LEVELS:
        raise IllegalSetting(f"log level {name!r}: use one of {', '.join(_LEVELS)}")
    return name.upper()


class RootLevel:
    """The level of everything that this process logs; may be changed while it runs."""

    def get(self) -> str:
        """The name of the level in force."""
        return logging.getLevelName(logging.getLogger().level)

    def set(self, name: str) -> None:
        """Change it; raises `IllegalSetting`."""
        logging.getLogger().setLevel(level_named(name))


def configure_logs(level: str, form: str) -> RootLevel:
    """Send all logs of this process to standard error, and what Python warns of.

    Args:
        level: what is less is left out.
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
        [structlog.processors.dict_tracebacks, structlog.processors.JSONRenderer(ensure_ascii=False)]
        if form == "json"
        else [
            structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback)
        ]
    )
    handler = logging.StreamHandler(sys.stderr)
    remove = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=[remove, *last]))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    logging.captureWarnings(capture=True)
    # confluent-kafka (2.16) says so of each producer that was shut out, and replaced for that.
    warnings.filterwarnings("ignore", "Producer abort_transaction failed during close", RuntimeWarning)
    found = RootLevel()
    found.set(level)
    return found


def _add_trace(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """The ids of the current span, so that a log line is found from its trace."""
    if find_spec("opentelemetry") is None:
        return event
    from opentelemetry import trace

    context = trace.get_current_span().get_span_context()
    if context.is_valid:
        event["trace_id"] = trace.format_trace_id(context.trace_id)
        event["span_id"] = trace.format_span_id(context.span_id)
    return event
