"""`reconsume scheduler`."""

from __future__ import annotations

import logging

from prometheus_client import disable_created_metrics

from reconsume.bridge.process.settings import Settings
from reconsume.bridge.scheduler.service import SchedulerService
from reconsume.cli.common import keep_what_is_loaded, stop_at_signals
from reconsume.cli.logs import configure_logs

__all__ = ["run_scheduler"]

logger = logging.getLogger(__name__)


def run_scheduler(settings: Settings) -> None:
    """Run one worker until SIGTERM or Ctrl-C; the batch in hand is finished first."""
    level = configure_logs(settings.logging.level, settings.logging.format)
    disable_created_metrics()  # type: ignore[no-untyped-call]
    stop = stop_at_signals()
    service = SchedulerService(settings, lambda address: logger.info("management: http://%s", address), level)
    keep_what_is_loaded()
    logger.info("scheduler worker starts, Kafka at %s", settings.bootstrap_servers)
    service.run(stop)
    logger.info("scheduler worker has stopped")
