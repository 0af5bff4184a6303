"""`reconsume scheduler`, `sidecar` and `console`: they run until SIGTERM or Ctrl-C."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from prometheus_client import disable_created_metrics

from reconsume.bridge.process.settings import Settings
from reconsume.cli.common import keep_what_is_loaded, need, stop_at_signals
from reconsume.cli.logs import RootLevel, configure_logs

if TYPE_CHECKING:
    from reconsume.console.settings import ConsoleProcessSettings
    from reconsume.sidecar.settings import ProcessSettings

logger = logging.getLogger(__name__)


class _Process(Protocol):
    def run(self, stop: threading.Event) -> None: ...


def run_scheduler(settings: Settings) -> None:
    """Run a worker; at the end it finishes its current batch."""
    from reconsume.bridge.scheduler.service import SchedulerService

    def told(address: str) -> None:
        logger.info("management: http://%s", address)

    _run("scheduler worker", settings, lambda level: SchedulerService(settings, told, level))


def run_sidecar(settings: ProcessSettings) -> None:
    """Run a sidecar until it is stopped; requests in progress are finished first."""
    need("sidecar")
    from reconsume.sidecar.process.process import Sidecar

    scheme = "http" if settings.sidecar.tls is None else "https"

    def told(api: str, management: str) -> None:
        logger.info("API: %s://%s, management: http://%s", scheme, api, management)

    _run("the sidecar", settings, lambda level: Sidecar(settings, told, level))


def run_console(settings: ConsoleProcessSettings) -> None:
    """Run a console."""
    need("console")
    from reconsume.console.process import Console

    def told(pages: str, management: str) -> None:
        logger.info("pages: http://%s, management: http://%s", pages, management)

    _run("the console", settings, lambda level: Console(settings, told, level))


def _run(what: str, settings: Settings, make: Callable[[RootLevel], _Process]) -> None:
    level = configure_logs(settings.logging.level, settings.logging.format)
    disable_created_metrics()  # type: ignore[no-untyped-call]
    stop = stop_at_signals()
    process = make(level)
    keep_what_is_loaded()
    logger.info("%s starts, Kafka at %s", what, settings.bootstrap_servers)
    process.run(stop)
    logger.info("%s has stopped", what)
