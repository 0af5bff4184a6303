"""The API as a part of the process, with its Kafka clients."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import Final

from reconsume.bridge.groups.groups import Groups
from reconsume.bridge.groups.groups_follower import GroupsFollower
from reconsume.bridge.kafka.admin import KafkaAdmin
from reconsume.bridge.process.brokers_clock import monotonic_ms
from reconsume.bridge.process.clock import now_ms
from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.bridge.reading.recent_send_backs import recent_send_backs
from reconsume.bridge.scheduler.service import starting_groups
from reconsume.delay_levels.errors import ReconsumeError
from reconsume.sidecar.api.api import Backend, make_api
from reconsume.sidecar.api.delayed_messages import DelayedMessages
from reconsume.sidecar.api.group_views import GroupViews
from reconsume.sidecar.api.models import Answer, NewMessage, RecordToSendBack, SentMessage
from reconsume.sidecar.api.send_backs import CLIENT_ID, SendBacks
from reconsume.sidecar.api.server import api_server
from reconsume.sidecar.guarding.callers import Caller
from reconsume.sidecar.guarding.guard import ApiGuard, Rate
from reconsume.sidecar.guarding.shares import Shares, Threads
from reconsume.sidecar.metrics import SidecarMetrics
from reconsume.sidecar.problems import Problem
from reconsume.sidecar.process.kafka_watch import KafkaWatch
from reconsume.sidecar.repeats import EarlierSendBacks
from reconsume.sidecar.settings import ProcessSettings

logger = SafeLogger(__name__)

_AGAIN_SECONDS: Final = 2.0
_BLOCKING_CALLS: Final = 16
_CLOCKS_APART_MS: Final = 60_000
_ALIVE_SECONDS: Final = 5.0
_END_SECONDS: Final = 5.0
"""Wait for the server's thread after the last request."""


class ApiPart:
    """The API. The constructor binds the address, so that a bad address is reported before anything runs.

    Args:
        settings: the settings of the process.
        metrics: the metrics to update.

    Raises:
        IllegalSetting: the address, the token or a certificate cannot be used.
    """

    def __init__(self, settings: ProcessSettings, metrics: SidecarMetrics) -> None:
        self._settings = settings
        self._stop = threading.Event()
        self._ready = threading.Event()
        self._preparing = "the groups and the send-backs of the last minutes are not read yet"
        sidecar, limits, base = settings.sidecar, settings.sidecar.limits, settings.client_settings()
        # One group may have everything if no other group calls.
        has_one_owner = len(sidecar.groups) == 1
        self._earlier = EarlierSendBacks(sidecar.remember_minutes * 60_000, has_one_group=has_one_owner)
        memory = Shares(limits.memory_bytes, has_one_owner=has_one_owner)
        self._threads = Threads(_BLOCKING_CALLS, sidecar.answer_seconds / 2)
        self._follower = GroupsFollower(base, settings.names.groups, starting_groups(settings))
        self._watch = KafkaWatch(base, settings.names)
        self._views = GroupViews(settings, self._groups)
        admin = KafkaAdmin(base, CLIENT_ID)
        if sidecar.groups and (others := sorted(sidecar.dead_letter_on.keys() - set(sidecar.groups))):
            logger.info("sidecar.dead_letter_on also names groups that this sidecar does not serve: %s", others)
        self._thread = threading.Thread(target=self._prepare, name="reconsume-api-start", daemon=True)
        backend = Backend(self.require_ready, self._views, self.send_back, self.send, self._threads)
        guard = ApiGuard(
            make_api(backend, metrics),
            callers=sidecar.read_callers(),
            body_bytes=limits.body_bytes,
            memory=memory,
            rate=None if limits.requests_per_second is None else Rate(limits.requests_per_second),
            clock=monotonic_ms,
            metrics=metrics,
        )
        self._server = api_server(guard, sidecar)
        self._send_backs = SendBacks(settings, admin, self._groups, self._earlier, self._threads, memory)
        self._messages = DelayedMessages(settings, admin, self._threads)
        metrics.waiting.set_function(lambda: self._send_backs.waiting)

    @property
    def address(self) -> str:
        """`host:port` of the API."""
        return self._server.address

    def start(self) -> None:
        """Start to answer; calls about groups get a 503 until groups and earlier send-backs are known."""
        self._watch.start()
        self._follower.start()
        self._server.start()
        self._thread.start()

    def close(self, seconds: float) -> None:
        """Accept no more requests; finish the running ones and their writes to Kafka."""
        self._stop.set()
        with ExitStack() as closing:
            for close in (self._follower.close, self._watch.close, self._threads.close, self._messages.close):
                closing.callback(close)
            closing.callback(self._send_backs.close, seconds)
            self._server.end(seconds, seconds + _END_SECONDS)

    def checks(self) -> dict[str, str | None]:
        """Return the problems by the name of the check."""
        return self._watch.checks() | {"earlier-send-backs": None if self._ready.is_set() else self._preparing}

    def is_alive(self) -> bool:
        """Return whether the event loop of the API makes progress."""
        return self._server.is_answering(_ALIVE_SECONDS)

    def require_ready(self) -> None:
        """Raise `Problem` 503 until the groups and the send-backs of earlier processes are known."""
        if not self._ready.is_set():
            raise Problem("starting", f"{self._preparing}; make the same call again")

    async def send_back(
        self, group: str, record: RecordToSendBack, idempotency_key: str | None, caller: Caller
    ) -> Answer:
        """Send one record back."""
        names = self._settings.names
        if record.topic != names.retry(group):
            caller.require_topic(record.topic, names.prefix)
        return await self._send_backs.send_back(group, record, idempotency_key)

    async def send(self, message: NewMessage, idempotency_key: str | None, caller: Caller) -> SentMessage:
        """Send a message."""
        caller.require_topic(message.topic, self._settings.names.prefix)
        return await self._messages.send(message, idempotency_key, caller.name)

    def _groups(self) -> Groups:
        return self._follower.groups

    def _prepare(self) -> None:
        """Read the state in Kafka, and wait for an unreachable broker."""
        begun_ms = now_ms()
        while not self._stop.is_set():
            try:
                if not self._follower.wait_until_loaded(self._stop):
                    return
                self._make_retry_topics()
                self._read_earlier(begun_ms)
            except ReconsumeError as error:
                self._preparing = str(error)
                logger.warning("%s; trying again", error)
                self._stop.wait(_AGAIN_SECONDS)
            except Exception as error:
                self._preparing = f"{error!r}; the sidecar's log says more"
                logger.exception("the start failed, trying again")
                self._stop.wait(_AGAIN_SECONDS)
            else:
                self._ready.set()
                return

    def _make_retry_topics(self) -> None:
        for group in self._settings.sidecar.groups:
            try:
                self._views.prepare(group)
            except (Problem, ReconsumeError) as error:
                logger.warning("group %s: retry topic not created: %s", group, error)

    def _read_earlier(self, begun_ms: float) -> None:
        """Read earlier send-backs from the delay topics: callers may repeat them."""
        settings, sidecar = self._settings, self._settings.sidecar
        minutes = sidecar.remember_minutes
        if minutes <= 0:
            return
        found = recent_send_backs(
            settings.client_settings(),
            settings.names,
            # The topics have the brokers' timestamps, and their clock may differ from ours.
            int(begun_ms - minutes * 60_000 - _CLOCKS_APART_MS),
            sidecar.groups or None,
            self._stop,
            now_ms=int(now_ms()),
            most_bytes=sidecar.limits.read_at_start_bytes,
        )
        # The newest come first.
        for attempt, written in found:
            self._earlier.add(attempt, written, monotonic_ms())
        self._earlier.log(minutes)
