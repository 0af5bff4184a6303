"""`reconsume console`."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from prometheus_client import disable_created_metrics

from reconsume.bridge.process.settings import load_settings
from reconsume.cli.common import line_settings
from reconsume.cli.logs import configure_logs
from reconsume.delay_levels.errors import IllegalSetting

if any(find_spec(needed) is None for needed in ("httptools", "jinja2", "starlette", "uvicorn")):
    raise IllegalSetting(
        "the console needs Jinja2, Starlette, uvicorn and more: pip install '.[cli,console]' in the checkout"
    )

from reconsume.console.process import Console
from reconsume.console.settings import ConsoleProcessSettings

__all__ = ["read_console_settings", "run_console"]

logger = logging.getLogger(__name__)


def read_console_settings(
    config: Path | None, bootstrap_servers: str | None, kafka: Sequence[str] | None, overrides: Mapping[str, Any]
) -> ConsoleProcessSettings:
    """The settings of a console process, with what the command line says over everything else."""
    given = line_settings(bootstrap_servers, kafka) | dict(overrides)
    return load_settings(config, None, given, ConsoleProcessSettings)


def run_console(settings: ConsoleProcessSettings) -> None:
    """Run until SIGTERM or Ctrl-C."""
    log_level = configure_logs(settings.logging.level, settings.logging.format)
    disable_created_metrics()  # type: ignore[no-untyped-call]
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    console = Console(
        settings,
        lambda pages, management: logger.info("pages: http://%s, management: http://%s", pages, management),
        log_level,
    )
    logger.info("the console starts, Kafka at %s", settings.bootstrap_servers)
    console.run(stop)
    logger.info("the console has stopped")
