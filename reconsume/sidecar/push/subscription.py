"""A push subscription as a part of the process: a PushConsumer that delivers to the app."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from reconsume.bridge.groups.groups import SubscriptionGroupConfig
from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.consumers.push_consumer import PushConsumer
from reconsume.delay_levels.errors import IllegalSetting, ReconsumeError
from reconsume.sidecar.life_cycle import Life
from reconsume.sidecar.metrics import PushMetrics
from reconsume.sidecar.push.dapr import asked_routes
from reconsume.sidecar.push.delivery import PushDelivery
from reconsume.sidecar.push.http_client import AppClient
from reconsume.sidecar.push.requests.requests import DaprRoute, requests_of
from reconsume.sidecar.push.settings import Order, Profile, PushSettings

logger = SafeLogger(__name__)

_FOR_EVER: Final = timedelta(days=3_650)
"""Unlimited: deliveries have their own timeout, which does not run while a message is held."""
_QUEUE_MIB: Final = 16
_READ_AHEAD: Final[dict[str, Any]] = {"queued.min.messages": 10_000, "queued.max.messages.kbytes": 16_384}
"""librdkafka's own 64 MiB are half of a sidecar's memory; this holds a second of deliveries."""
_ASK_AGAIN_SECONDS: Final = 1.0
_TAKEN_SECONDS: Final = 1.0
_ALIVE_SECONDS: Final = 5.0


class PushSubscription:
    """A subscription. It starts in a background thread, because Kafka or a Dapr app may come later.

    Args:
        settings: the settings of the subscription.
        kafka_conf: librdkafka settings, including `bootstrap.servers`.
        life: the life cycle of the process.
        metrics: the metrics of all subscriptions of the process.
        topic_prefix: the prefix of the installation's topics.

    Raises:
        IllegalSetting: an invalid setting, or an unreadable file.
    """

    def __init__(
        self,
        settings: PushSettings,
        kafka_conf: Mapping[str, Any],
        life: Life,
        metrics: PushMetrics,
        topic_prefix: str = "reconsume.",
    ) -> None:
        self._settings = settings
        self._stop = threading.Event()
        self._wrong: str | None = "it is starting"
        self._cannot_start = False
        conf = _READ_AHEAD | dict(kafka_conf)
        bootstrap_servers = str(conf.pop("bootstrap.servers", "localhost:9092"))
        self._consumer = PushConsumer(
            settings.group,
            bootstrap_servers=bootstrap_servers,
            conf=conf,
            consume_from_where=settings.consume_from_where,
            max_reconsume_times=settings.max_reconsume_times,
            consume_message_batch_max_size=settings.consume_message_batch_max_size,
            consume_thread_nums=settings.max_in_flight,
            consume_timeout=_FOR_EVER,
            pull_threshold_size_for_queue=_QUEUE_MIB,
            exactly_once=settings.exactly_once,
            message_model=settings.message_model,
            offset_store=settings.offset_store,
            await_termination_when_shutdown=settings.timeout + timedelta(seconds=_TAKEN_SECONDS),
            topic_prefix=topic_prefix,
        )
        self._routes: dict[str, DaprRoute] = {}
        self._delivery = PushDelivery(
            settings,
            AppClient(settings),
            requests_of(settings, self._max_times, self._routes),
            life,
            lambda: self._config().policy(self._consumer.groups.table),
            metrics,
        )
        self._thread = threading.Thread(target=self._run, name=f"reconsume-push-{settings.group}", daemon=True)

    def start(self) -> None:
        """Start in the background; `checks` reports when it is done."""
        self._thread.start()

    def close(self, seconds: float) -> None:
        """Stop within `seconds`; messages without an answer by then stay uncommitted."""
        self._stop.set()
        late = threading.Timer(seconds, self._delivery.give_up)
        late.daemon = True
        late.start()
        try:
            self._consumer.shutdown()
            if self._thread.ident is not None:
                # The background thread may have been about to create parts that must be closed.
                self._thread.join()
                self._consumer.shutdown()
        except ReconsumeError as error:
            logger.warning("group %s: push had ended: %s", self._settings.group, error)
        finally:
            late.cancel()

    def checks(self) -> dict[str, str | None]:
        """Return whether it consumes; an unreachable app is not a problem here."""
        wrong = self._wrong
        if wrong is None and not self._consumer.running:
            wrong = "its consumer has ended, see the log"
        return {f"push {self._settings.group}": wrong}

    def is_alive(self) -> bool:
        """Return False once its consumer has failed or could not start, or its event loop hangs.

        Only a restart helps then.
        """
        if self._stop.is_set() or (self._wrong is not None and not self._cannot_start):
            return True
        return not self._cannot_start and self._consumer.running and self._delivery.is_alive(_ALIVE_SECONDS)

    def _run(self) -> None:
        try:
            if self._settings.profile is Profile.DAPR:
                self._ask_routes()
            if self._stop.is_set():
                return
            self._register()
            self._consumer.start()
            self._wrong = None
        except Exception as error:
            own = isinstance(error, ReconsumeError)  # its text is complete
            self._wrong, self._cannot_start = str(error) if own else repr(error), True
            logger.error("group %s: push cannot start: %s", self._settings.group, error, exc_info=not own)  # noqa: TRY400

    def _register(self) -> None:
        for topic, tags in (self._settings.topics or dict.fromkeys(self._routes, "*")).items():
            self._consumer.subscribe(topic, tags)
        order = self._settings.order
        if order is Order.NONE:
            self._consumer.register_message_listener(self._delivery)
        else:
            self._consumer.register_message_listener(self._delivery, orderly=True, per_key=order is Order.KEY)

    def _config(self) -> SubscriptionGroupConfig:
        """Return the group's configuration; an unregistered group has the defaults, and the scheduler decides."""
        try:
            return self._consumer.groups.find(self._settings.group)
        except ReconsumeError:
            return SubscriptionGroupConfig(group_name=self._settings.group)

    def _max_times(self) -> int:
        own = self._settings.max_reconsume_times
        return self._config().retry_max_times if own is None else own

    def _ask_routes(self) -> None:
        """Ask a Dapr app for its subscriptions, until it answers with supported ones."""
        while not self._stop.is_set():
            try:
                self._routes.update(asyncio.run(asked_routes(self._settings)))
            except (IllegalSetting, ConnectionError) as error:
                if self._wrong != str(error):
                    logger.warning("group %s: waiting for the app: %s", self._settings.group, error)
                    self._wrong = str(error)
                self._stop.wait(_ASK_AGAIN_SECONDS)
            else:
                return
