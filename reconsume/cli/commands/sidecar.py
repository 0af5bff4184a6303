"""`reconsume sidecar`."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from reconsume.bridge.process.settings import load_settings
from reconsume.cli.common import keep_what_is_loaded, line_settings
from reconsume.cli.logs import configure_logs
from reconsume.delay_levels.errors import IllegalSetting

if any(find_spec(needed) is None for needed in ("fastapi", "uvicorn", "httptools", "uvloop")):
    raise IllegalSetting("the sidecar needs FastAPI, uvicorn and more: pip install '.[cli,sidecar]' in the checkout")

from reconsume.sidecar.process.process import Sidecar
from reconsume.sidecar.settings import ProcessSettings

__all__ = ["read_sidecar_settings", "run_sidecar"]

logger = logging.getLogger(__name__)


def read_sidecar_settings(
    config: Path | None, bootstrap_servers: str | None, kafka: Sequence[str] | None, overrides: Mapping[str, Any]
) -> ProcessSettings:
    """The settings of a sidecar process, with what the command line says over everything else."""
    return load_settings(config, None, line_settings(bootstrap_servers, kafka) | dict(overrides), ProcessSettings)


def run_sidecar(settings: ProcessSettings) -> None:
    """Run until SIGTERM or Ctrl-C; what is in hand is finished first."""
    log_level = configure_logs(settings.logging.level, settings.logging.format)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
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
