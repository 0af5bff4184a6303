"""Deliver messages to the app, as the listener of a PushConsumer."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import uvloop

from reconsume.bridge.process.brokers_clock import monotonic_ms
from reconsume.bridge.process.clock import Clock, now_ms
from reconsume.bridge.process.event_loops import takes_turns
from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.consumers.listener import (
    ConsumeConcurrentlyContext,
    ConsumeConcurrentlyStatus,
    ConsumeOrderlyContext,
    ConsumeOrderlyStatus,
    NotNow,
    SendBack,
)
from reconsume.consumers.listeners.dead_letter_on import DEAD_LETTER_LEVEL
from reconsume.consumers.listeners.listener_pool import cut_off
from reconsume.consumers.message import Message
from reconsume.delay_levels.rules.retry_policies import RetryPolicy
from reconsume.delay_levels.wire.send_back_copy import Cause
from reconsume.sidecar.life_cycle import Life
from reconsume.sidecar.metrics import PushMetrics
from reconsume.sidecar.push.answers import AppAnswer, Meaning, NoAnswer, PushVerdict, Row, judge, was_cut_off
from reconsume.sidecar.push.app_gate import AppGate, Entry, MissingRoutes
from reconsume.sidecar.push.http_client import AppClient
from reconsume.sidecar.push.requests.requests import AppRequest, Requests
from reconsume.sidecar.push.settings import Drop, PushSettings
from reconsume.sidecar.push.trace import current_trace

logger = SafeLogger(__name__)

_NEVER_MS: Final = 86_400_000.0
"""Longer than the life of a quiescing process."""
_PROBE_EVERY_SECONDS: Final = 5.0
_PROBE_SECONDS: Final = 5.0
"""Long enough for a TLS connection to another continent, and for an app that serves one request at a time."""
_PROBE_FAILURES: Final = 3


class PushDelivery:
    """A listener that delivers a batch of messages once, in the event loop of its consumer.

    Guarantees:
        1. If the app is unreachable or the process quiesces, a message without an answer is held, never counted, never
           dead-lettered. Only a message that crashes the app whenever it is alone with it is sent back.
        2. A success counts whenever it arrives.

    Args:
        settings: the settings of the subscription.
        client: the HTTP client.
        requests: makes the requests of the profile.
        life: the life cycle of the process.
        policy: returns the group's current levels.
        metrics: the metrics to update.
        clock: the clock of the consumer, in milliseconds.
    """

    def __init__(
        self,
        settings: PushSettings,
        client: AppClient,
        requests: Requests,
        life: Life,
        policy: Callable[[], RetryPolicy],
        metrics: PushMetrics,
        clock: Clock = monotonic_ms,
    ) -> None:
        self._settings = settings
        self._client = client
        self._requests = requests
        self._life = life
        self._judge = partial(judge, profile=settings.profile, policy=policy, dead_letter_on=settings.dead_letter_on)
        self._clock = clock
        self._seconds = settings.timeout.total_seconds()
        self._gate = AppGate(settings.group, clock)
        self._missing = MissingRoutes(settings.missing_route_grace_seconds * 1000)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[object]] = set()
        self._probing: asyncio.Task[None] | None = None
        self._metrics = metrics
        self._outcomes = {meaning: metrics.deliveries.labels(settings.group, meaning.value) for meaning in Meaning}
        self._duration = metrics.seconds.labels(settings.group)
        self._in_flight = metrics.in_flight.labels(settings.group)
        metrics.app_down_since.labels(settings.group).set_function(self._down_since)
        self._warned: set[Row] = set()

    async def __call__(
        self, messages: Sequence[Message], context: ConsumeConcurrentlyContext | ConsumeOrderlyContext
    ) -> Any:
        """Deliver, and return or raise the meaning of the app's answer for this kind of listener.

        Raises:
            NotNow: without an outcome; try again later.
            SendBack: send the messages back, or repeat them in their place.
        """
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            verdict = await self._deliver(messages)
        finally:
            self._tasks.discard(task)
        if verdict.meaning is Meaning.DROP and self._settings.drop is Drop.DISCARD:
            self._metrics.discarded.labels(self._settings.group).inc(len(messages))
        elif verdict.cause is not None:
            level = verdict.level if verdict.meaning is Meaning.RETRY else DEAD_LETTER_LEVEL
            raise SendBack(
                *(verdict.cause, level, verdict.acknowledged),
                one_by_one=verdict.one_by_one,
                suspend_ms=verdict.suspend_ms,
            )
        if isinstance(context, ConsumeOrderlyContext):
            return ConsumeOrderlyStatus.SUCCESS
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    async def _deliver(self, messages: Sequence[Message]) -> PushVerdict:
        entry = await self._gate.enter(messages[0].msg_id)
        try:
            with self._life.delivery():
                # Checked inside, so that a thread that waits for deliveries sees all started ones.
                if self._life.is_quiescing:
                    raise self._quiescing()
                request = self._requests.of(messages, current_trace())
                began = time.perf_counter()
                self._in_flight.inc()
                try:
                    answer = await self._client.send("POST", request, self._seconds)
                finally:
                    self._in_flight.dec()
                    self._duration.observe(time.perf_counter() - began)
            return self._judged(answer, request, messages, entry)
        finally:
            self._gate.leave(entry)

    def _down_since(self) -> float:
        since = self._gate.down_since
        return 0 if since is None else (now_ms() - (self._clock() - since)) / 1000

    def is_alive(self, seconds: float) -> bool:
        """Return whether its event loop makes progress within `seconds`; for other threads."""
        loop = self._loop
        return loop is None or takes_turns(loop, seconds)

    def give_up(self) -> None:
        """Cut off running requests, from any thread; this is not an outcome."""
        loop = self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended, and all requests with it
                loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        for task in self._tasks:
            cut_off(task)

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        """Make the loop for one start of the consumer: uvloop costs a third of asyncio, see docs/sizing.md."""
        self._loop = uvloop.new_event_loop()
        if self._settings.probe_route is not None:
            self._probing = self._loop.create_task(self._probe(self._settings.probe_route))
        return self._loop

    async def aclose(self) -> None:
        """Close the client with this start of the consumer."""
        self._loop = None
        if self._probing is not None:
            self._probing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._probing
        await self._client.aclose()

    def _judged(
        self, answer: AppAnswer | NoAnswer, request: AppRequest, messages: Sequence[Message], entry: Entry
    ) -> PushVerdict:
        now, place = self._clock(), messages[0].kafka[:3]
        verdict = self._judge(answer, size=len(messages), now_ms=now_ms())
        if verdict.meaning is Meaning.HOLD:
            verdict = self._held(answer, messages, entry)
        elif isinstance(answer, AppAnswer):
            self._gate.answered(messages[0].msg_id)
        if verdict.meaning is not Meaning.ACK and self._life.is_quiescing:
            self._outcomes[Meaning.HOLD].inc()
            raise self._quiescing(verdict.acknowledged)
        self._outcomes[verdict.meaning].inc()
        if verdict.meaning is not Meaning.MISSING_ROUTE:
            self._missing.found(request.path, place)
        elif (again := self._missing.missing(request.path, place, now)) is not None:
            raise NotNow(again)
        self._warn(verdict.row)
        return verdict

    def _held(self, answer: AppAnswer | NoAnswer, messages: Sequence[Message], entry: Entry) -> PushVerdict:
        """Return the verdict on a message that crashes the app; any other waits.

        Raises:
            NotNow: the app was unreachable.
            SendBack: one message of a batch may crash the app: deliver each alone.
        """
        reason = answer.reason if isinstance(answer, NoAnswer) else f"a proxy answered {answer.status}"
        first, is_batch = messages[0].msg_id, len(messages) > 1
        refused = first if isinstance(answer, AppAnswer) else None
        away = self._gate.is_away(reason, probe=entry.probe, refused=refused)
        if was_cut_off(answer) and self._gate.cut_off(first, alone=entry.alone and not is_batch):
            logger.warning(
                "group %s: the app crashes on one message and answers others; sending that message back: %s/%d/%d",
                *(self._settings.group, *messages[0].kafka[:3]),
            )
            reason = f"the app crashed repeatedly when it had only this message, and answered others: {reason}"
            return self._judge(NoAnswer(reason, repeated=True), size=len(messages), now_ms=now_ms())
        self._outcomes[Meaning.HOLD].inc()
        if self._life.is_quiescing:
            raise self._quiescing()
        if is_batch and self._gate.goes_alone(first):
            raise SendBack(Cause(reason), one_by_one=True)
        raise away

    def _quiescing(self, acknowledged: int = 0) -> NotNow:
        return NotNow(self._clock() + _NEVER_MS, acknowledged)

    def _warn(self, row: Row) -> None:
        """Log a problem of the app or the settings once; counters go on. The log never has payloads."""
        counters = {Row.UNKNOWN: self._metrics.unknown_statuses, Row.REDIRECT: self._metrics.redirects}
        if row not in counters:
            return
        counters[row].labels(self._settings.group).inc()
        if row not in self._warned:
            self._warned.add(row)
            logger.warning("group %s: the app answers %s, see docs/sidecar-push.md", self._settings.group, row.value)

    async def _probe(self, route: str) -> None:
        failures = 0
        while True:
            answer = await self._client.send("GET", AppRequest(route, [], b""), _PROBE_SECONDS)
            green = isinstance(answer, AppAnswer) and 200 <= answer.status < 300  # noqa: PLR2004
            failures = 0 if green else failures + 1
            if green:
                self._gate.turned_green()
            elif failures >= _PROBE_FAILURES:
                self._gate.turned_red(f"GET {route} failed {failures} times")
            await asyncio.sleep(_PROBE_EVERY_SECONDS)
