"""The sidecar process: its parts, the management port, and their order of start and end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

from prometheus_client import CollectorRegistry

from reconsume.bridge.http.management import LogLevel
from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.sidecar.life_cycle import Life, ProcessPart
from reconsume.sidecar.metrics import PushMetrics, SidecarMetrics
from reconsume.sidecar.process.api_part import ApiPart
from reconsume.sidecar.process.management import Management
from reconsume.sidecar.push.subscription import PushSubscription
from reconsume.sidecar.settings import ProcessSettings

logger = SafeLogger(__name__)

_CLOSE_SECONDS: Final = 5.0


class Sidecar:
    """The process of `reconsume sidecar`. The constructor binds the addresses; `run` does the work.

    Args:
        settings: the settings of the process.
        on_start: called with the addresses of the API and the management port as soon as both answer.
        log_level: serves `/loglevel` of the management port; None omits that path.

    Raises:
        IllegalSetting: an address, the token or certificates, or a subscription cannot be used.
    """

    def __init__(
        self,
        settings: ProcessSettings,
        on_start: Callable[[str, str], None] = lambda _api, _management: None,
        log_level: LogLevel | None = None,
    ) -> None:
        self._settings = settings
        self._on_start = on_start
        self._log_level = log_level
        self._life = Life()
        self._metrics = SidecarMetrics(CollectorRegistry())
        self._parts: list[ProcessPart] = [api := ApiPart(settings, self._metrics)]
        self._api = api
        if settings.subscriptions:
            conf, metrics = settings.client_settings(), PushMetrics(self._metrics.registry)
            for one in settings.subscriptions:
                self._parts.append(PushSubscription(one, conf, self._life, metrics, settings.topic_prefix))

    def run(self, stop: threading.Event) -> None:
        """Work until told to stop; then stop new work, finish running work, and wait for acknowledgements.

        Raises:
            ReconsumeError: a part cannot start.
        """
        management = Management(self._settings, self._metrics.registry, self._life, self._parts, self._log_level)
        started: list[ProcessPart] = []
        try:
            for part in self._parts:
                part.start()
                started.append(part)
            self._on_start(self._api.address, management.address)
            # The app beside the sidecar may start now, even without Kafka: until then, send-backs get a 503.
            self._life.run()
            stop.wait()
        finally:
            self._life.quiesce()
            deadline = time.monotonic() + self._settings.sidecar.drain_seconds
            if not self._life.wait_drained(self._settings.sidecar.drain_seconds):
                logger.warning("%d deliveries did not end; their records are read again", self._life.in_flight)
            with ExitStack() as closing:  # a part that fails keeps no other one open
                closing.callback(management.close)
                # The API, which is first, ends last: the app's running work may need it.
                for part in started:
                    closing.callback(_close, part, deadline)


def _close(part: ProcessPart, deadline: float) -> None:
    part.close(max(_CLOSE_SECONDS, deadline - time.monotonic()))
