"""`reconsume sidecar`."""

from __future__ import annotations

import logging
from importlib.util import find_spec

from reconsume.cli.common import keep_what_is_loaded, stop_at_signals
from reconsume.cli.logs import configure_logs
from reconsume.delay_levels.errors import IllegalSetting

if any(find_spec(needed) is None for needed in ("fastapi", "uvicorn", "httptools", "uvloop")):
    raise IllegalSetting("the sidecar needs FastAPI, uvicorn and more: pip install '.[cli,sidecar]' in the checkout")

from reconsume.sidecar.process.process import Sidecar
from reconsume.sidecar.settings import ProcessSettings

__all__ = ["ProcessSettings", "run_sidecar"]

logger = logging.getLogger(__name__)


def run_sidecar(settings: ProcessSettings) -> None:
    """Run until SIGTERM or Ctrl-C; what is in hand is finished first."""
    log_level = configure_logs(settings.logging.level, settings.logging.format)
    stop = stop_at_signals()
    scheme = "http" if settings.sidecar.tls is None else "https"
    sidecar = Sidecar(
        settings,
        lambda api, management: logger.info("API: %s://%s, management: http://%s", scheme, api, management),
        log_level,
    )
    keep_what_is_loaded()
    logger.info("the sidecar starts, Kafka at %s", settings.bootstrap_servers)
    sidecar.run(stop)
    logger.info("the sidecar has stopped")
