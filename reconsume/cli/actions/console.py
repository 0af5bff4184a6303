"""`reconsume console`."""

from __future__ import annotations

import logging
from importlib.util import find_spec

from prometheus_client import disable_created_metrics

from reconsume.cli.common import stop_at_signals
from reconsume.cli.logs import configure_logs
from reconsume.delay_levels.errors import IllegalSetting

if any(find_spec(needed) is None for needed in ("httptools", "jinja2", "starlette", "uvicorn")):
    raise IllegalSetting(
        "the console needs Jinja2, Starlette, uvicorn and more: pip install '.[cli,console]' in the checkout"
    )

from reconsume.console.process import Console
from reconsume.console.settings import ConsoleProcessSettings

__all__ = ["ConsoleProcessSettings", "run_console"]

logger = logging.getLogger(__name__)


def run_console(settings: ConsoleProcessSettings) -> None:
    """Run until SIGTERM or Ctrl-C."""
    log_level = configure_logs(settings.logging.level, settings.logging.format)
    disable_created_metrics()  # type: ignore[no-untyped-call]
    stop = stop_at_signals()
    console = Console(
        settings,
        lambda pages, management: logger.info("pages: http://%s, management: http://%s", pages, management),
        log_level,
    )
    logger.info("the console starts, Kafka at %s", settings.bootstrap_servers)
    console.run(stop)
    logger.info("the console has stopped")
