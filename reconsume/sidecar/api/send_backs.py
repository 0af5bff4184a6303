"""Send-backs for callers that have their own consumer: by reference or by value, each attempt once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Final, NamedTuple

from reconsume.bridge.groups.groups import Groups
from reconsume.bridge.kafka.admin import KafkaAdmin
from reconsume.bridge.process.brokers_clock import monotonic_ms
from reconsume.bridge.process.clock import now_ms
from reconsume.bridge.process.event_loops import future_of
from reconsume.bridge.process.safe_logger import SafeLogger
from reconsume.bridge.reading.recent_send_backs import attempt_of
from reconsume.bridge.reading.record_reader import RecordReader, count_partitions
from reconsume.bridge.writing.send_back import SendBackWriter
from reconsume.consumers.listeners.dead_letter_on import DEAD_LETTER_LEVEL, is_named
from reconsume.consumers.message import Message, history_of_retry
from reconsume.delay_levels.errors import MalformedProperty, RecordTooLarge, SendBackFailed
from reconsume.delay_levels.rules.send_back import Delayed
from reconsume.delay_levels.wire.properties import UNIQ_KEY, Header, size_of, text_property
from reconsume.delay_levels.wire.resend import born_ms_of, is_same_message, short_id
from reconsume.delay_levels.wire.send_back_copy import Cause, Position, SendBackCopy, SendBackRequest, Stored
from reconsume.sidecar.api.models import Answer, Outcome, RecordByValue, RecordToSendBack, kafka_headers
from reconsume.sidecar.api.too_large import too_large
from reconsume.sidecar.guarding.shares import Held, Shares, Threads, group_owner, no_room, record_bytes
from reconsume.sidecar.problems import Problem
from reconsume.sidecar.repeats import EarlierSendBacks, Once
from reconsume.sidecar.settings import ProcessSettings

logger = SafeLogger(__name__)

CLIENT_ID: Final = "reconsume-sidecar"
_LINGER_MS: Final = 1
"""A caller waits for each send-back: benchmarks/sidecar.py."""
_READS: Final = 64
"""Maximum of records read at a time."""


class _Failed(NamedTuple):
    """A failed message, by reference or by value."""

    request: SendBackRequest
    key: bytes | None
    value: bytes | None
    born_ms: int | None

    @property
    def size(self) -> int:
        """Return the size in bytes, as the sender knows it."""
        return size_of(self.key, self.value, self.request.headers)

    @property
    def message_id(self) -> str:
        """Return the id, as in `Message.msg_id`, but bounded: answers are remembered."""
        with suppress(MalformedProperty):
            if unique := text_property(self.request.headers, UNIQ_KEY):
                return short_id(unique)
        return short_id(self.request.stored.origin_message_id)


class SendBacks:
    """Carries out send-backs; all methods are for the thread of one event loop.

    Args:
        settings: the settings of the process.
        admin: looks topics up.
        groups: the groups as known now.
        earlier: attempts that were sent back in the minutes before this process started.
        threads: threads for blocking calls.
        memory: bytes of memory that records reserve until Kafka has acknowledged them.
    """

    def __init__(
        self,
        settings: ProcessSettings,
        admin: KafkaAdmin,
        groups: Callable[[], Groups],
        earlier: EarlierSendBacks,
        threads: Threads,
        memory: Shares,
    ) -> None:
        sidecar, base = settings.sidecar, settings.client_settings()
        self._names = settings.names
        self._earlier = earlier
        self._once: Once[Answer] = Once(
            sidecar.remember_minutes * 60_000,
            sidecar.limits.records_in_flight,
            monotonic_ms,
            has_one_owner=len(sidecar.groups) == 1,
        )
        self._threads = threads
        self._memory = memory
        self._reads = Shares(_READS)
        self._dead_letter_on = sidecar.dead_letter_on
        self._answer_seconds = sidecar.answer_seconds
        self._admin = admin
        self._partitions: dict[str, int] = {}
        self._reader = RecordReader(base, CLIENT_ID, sidecar.answer_seconds)
        self._reader.start()
        self._writer = SendBackWriter({"linger.ms": _LINGER_MS} | base, self._names, groups, CLIENT_ID)

    @property
    def waiting(self) -> int:
        """Number of send-backs without acknowledgement, including those whose caller has given up."""
        return self._once.running

    async def send_back(self, group: str, record: RecordToSendBack, idempotency_key: str | None) -> Answer:
        """Send one record back; return when the brokers have acknowledged it.

        Raises:
            Problem: 409, 413 or 503.
            RecordNotFound: the record does not exist.
            SendBackFailed: delay topic and inbox refused it.
        """
        owner = group_owner(group)
        held = Held(self._memory, owner)
        try:
            async with asyncio.timeout(self._answer_seconds):
                failed = await self._failed(group, record, held)
                try:
                    return await self._carry_out(failed, held, record, idempotency_key)
                except SendBackFailed as error:
                    if isinstance(error.__cause__, RecordTooLarge):
                        raise await self._threads.run(owner, partial(self._too_large, failed, record)) from error
                    raise
        except TimeoutError:
            raise Problem(
                "kafka-away",
                f"{record.position} for group {group}: no acknowledgement within {self._answer_seconds:g} s; it may "
                "be stored later; make the same call again, it does not store a second copy",
            ) from None
        finally:
            held.give_back()

    def close(self, seconds: float) -> None:
        """Wait up to `seconds` for acknowledgements; the callers of the others have got a 503."""
        self._reader.close()
        left = self._writer.flush(seconds)
        if left:
            logger.warning("%d send-backs unacknowledged; their callers got an error", left)
        self._writer.close()

    async def _carry_out(
        self, failed: _Failed, held: Held, record: RecordToSendBack, idempotency_key: str | None
    ) -> Answer:
        request, stored = failed.request, failed.request.stored
        if record.reconsume_times is not None and record.reconsume_times != stored.reconsume_times:
            raise Problem(
                "reconsume-times-disagree",
                f"{record.position} says that it was sent back {stored.reconsume_times} times, the call says "
                f"{record.reconsume_times}; read the record again, or leave reconsumeTimes out",
            )
        subject = (request.group, record.position, stored.reconsume_times)
        key = subject if idempotency_key is None else (request.group, idempotency_key)
        attempt = attempt_of(request.group, stored.origin_message_id, stored.reconsume_times + 1, request.headers)
        written = self._earlier.get(attempt, monotonic_ms())
        # A recreated topic has other records at its old places.
        if written is not None and is_same_message(failed.born_ms, written.born_ms):
            level = None if written.dead_letter else written.level
            return self._answer(request.group, level, written.due_ms, attempt.reconsume_times, failed.message_id)
        return await self._once.run(
            group_owner(request.group), key, subject, partial(self._write, failed, held), born_ms=failed.born_ms
        )

    def _too_large(self, failed: _Failed, record: RecordToSendBack) -> Problem:
        return too_large(
            f"{record.position} for group {failed.request.group}",
            failed.size,
            self._names.send_back,
            self._admin,
            "the delay topics take no more; raise max.message.bytes of both with `kafka-configs.sh --alter`, "
            "and keep the record uncommitted until then",
        )

    def _write(self, failed: _Failed, held: Held) -> asyncio.Future[Answer]:
        request, answers = failed.request, [Answer(outcome=Outcome.DROPPED, message_id=failed.message_id)]

        def begin(tell: Callable[[Answer | Exception], None]) -> None:
            self._writer.send_back(
                request,
                failed.key,
                failed.value,
                lambda error: tell(answers[-1] if error is None else error),
                lambda copy, stored_ms: answers.append(
                    self._written(request.group, copy, stored_ms, failed.message_id)
                ),
            )

        future = future_of(begin)
        passed = held.pass_on()
        future.add_done_callback(lambda _: passed.give_back())
        return future

    async def _failed(self, group: str, record: RecordToSendBack, held: Held) -> _Failed:
        """Return the failed message, whose memory is reserved."""
        owner = group_owner(group)
        if isinstance(record, RecordByValue):
            headers = kafka_headers(record.headers)
            stored, born_ms = self._stored(group, record, headers)
            failed = _Failed(self._request(group, record, headers, stored), record.key, record.value, born_ms)
            if not held.take(record_bytes(failed.size)):
                raise no_room(owner)
            return failed
        # The size of a record is unknown before the read, so only a few are read at a time.
        await self._reads.wait(owner)
        try:
            message = await self._read(group, record.position)
            request = self._request(group, record, message.all_headers, message.stored)
            failed = _Failed(request, message.key, message.body, message.stored.born_ms)
            await held.wait(record_bytes(failed.size))
            return failed
        finally:
            self._reads.give_back(owner)

    def _request(
        self, group: str, record: RecordToSendBack, headers: Sequence[Header], stored: Stored
    ) -> SendBackRequest:
        error, level = record.error, record.delay_level
        if level == 0 and error is not None and is_named(error.type, self._dead_letter_on.get(group, ())):
            level = DEAD_LETTER_LEVEL
        return SendBackRequest(
            group=group,
            headers=headers,
            stored=stored,
            delay_level=level,
            max_reconsume_times=record.max_reconsume_times,
            cause=None if error is None else Cause(error.message or error.type or "", error.type, error.stack),
        )

    def _stored(self, group: str, record: RecordByValue, headers: Sequence[Header]) -> tuple[Stored, int | None]:
        timestamp = int(now_ms()) if record.timestamp is None else record.timestamp
        if record.topic == self._names.retry(group):
            return history_of_retry(headers, record.position, timestamp), born_ms_of(headers)
        stored = Stored.first_copy(record.position, timestamp)
        return stored, None if record.timestamp is None else stored.born_ms

    async def _read(self, group: str, position: Position) -> Message:
        if position.partition >= self._partitions.get(position.topic, 0):
            counted = self._threads.run(group_owner(group), partial(count_partitions, self._admin, position))
            self._partitions[position.topic] = await counted
        record = await future_of(partial(self._reader.read, position))
        return Message(record, self._names.retry(group))

    def _written(self, group: str, copy: SendBackCopy, appended_ms: int, message_id: str) -> Answer:
        outcome = copy.outcome
        level, delay_ms = (outcome.level, outcome.delay_ms) if isinstance(outcome, Delayed) else (None, 0)
        due_ms = None if copy.topic == self._names.send_back else appended_ms + delay_ms
        return self._answer(group, level, due_ms, outcome.reconsume_times, message_id)

    def _answer(self, group: str, level: int | None, due_ms: int | None, times: int, message_id: str) -> Answer:
        """Return the answer for a copy; without a level it is a dead letter, without a time it is in the inbox."""
        if due_ms is None:
            return Answer(outcome=Outcome.ACCEPTED, message_id=message_id)
        return Answer(
            outcome=Outcome.DEAD_LETTERED if level is None else Outcome.DELAYED,
            topic=self._names.dead_letter(group) if level is None else self._names.retry(group),
            level=level,
            due_at=datetime.fromtimestamp(due_ms / 1000, UTC),
            reconsume_times=times,
            message_id=message_id,
        )
