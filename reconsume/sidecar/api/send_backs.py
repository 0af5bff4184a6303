"""Send-backs for callers that have their own consumer: by reference or by value, each attempt once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from confluent_kafka import Message as KafkaMessage

from reconsume.bridge.groups.groups import Groups
from reconsume.bridge.kafka.admin import KafkaAdmin
from reconsume.bridge.process.clock import Clock
from reconsume.bridge.reading.recent_send_backs import Attempt, RecentSendBack, attempt_of
from reconsume.bridge.reading.record_reader import RecordReader, count_partitions
from reconsume.bridge.writing.send_back import SendBackWriter
from reconsume.consumers.listeners.dead_letter_on import DEAD_LETTER_LEVEL, is_named
from reconsume.consumers.message import Message
from reconsume.delay_levels.errors import MalformedProperty, ReconsumeError, RecordTooLarge, SendBackFailed
from reconsume.delay_levels.rules.send_back import Delayed
from reconsume.delay_levels.wire.names import TopicNames
from reconsume.delay_levels.wire.properties import UNIQ_KEY, Header, text_property
from reconsume.delay_levels.wire.send_back_copy import Position, SendBackCopy, SendBackRequest, Stored
from reconsume.sidecar.api.models import Answer, Outcome, RecordByValue, RecordToSendBack
from reconsume.sidecar.api.too_large import size_of, too_large
from reconsume.sidecar.guarding.memory import Held, Memory
from reconsume.sidecar.guarding.shares import Shares, Threads
from reconsume.sidecar.problems import AGAIN_SECONDS, Problem
from reconsume.sidecar.repeats.once import Once, Tell

__all__ = ["SendBacks"]

logger = logging.getLogger(__name__)

_READS: Final = 64
"""Records that are read again at a time."""


class _Failed(NamedTuple):
    """A failed message, whichever way it came."""

    request: SendBackRequest
    key: bytes | None
    value: bytes | None
    born_ms: int | None

    @property
    def size(self) -> int:
        """In bytes, as its sender knows it."""
        return size_of(self.key, self.value, self.request.headers)

    @property
    def message_id(self) -> str:
        """As `Message.msg_id` has it."""
        with suppress(MalformedProperty):
            if unique := text_property(self.request.headers, UNIQ_KEY):
                return unique
        return self.request.stored.origin_message_id


class SendBacks:
    """Carries them out; all methods are for the thread of one event loop.

    Args:
        base: librdkafka's settings for any client.
        names: the installation's topics.
        groups: the groups as known now.
        earlier: the attempts that were sent back in the minutes before this process began.
        once: remembers what this process has carried out.
        threads: for calls that block.
        memory: that records take from until Kafka has them.
        dead_letter_on: by group, the types of errors that are not worth a retry.
        answer_seconds: how long a caller waits at most.
        clock: gives the time in milliseconds.
        client_id: shown in the brokers' logs.
    """

    def __init__(
        self,
        base: Mapping[str, Any],
        names: TopicNames,
        groups: Callable[[], Groups],
        earlier: Callable[[Attempt], RecentSendBack | None],
        once: Once[Answer],
        threads: Threads,
        memory: Memory,
        *,
        dead_letter_on: Mapping[str, Collection[str]],
        answer_seconds: float,
        clock: Clock,
        client_id: str,
    ) -> None:
        self._names = names
        self._earlier = earlier
        self._once = once
        self._threads = threads
        self._memory = memory
        self._reads = Shares(_READS)
        self._dead_letter_on = dead_letter_on
        self._answer_seconds = answer_seconds
        self._clock = clock
        self._admin = KafkaAdmin(base, client_id)
        self._partitions: dict[str, int] = {}
        self._reader = RecordReader(base, client_id, answer_seconds)
        self._reader.start()
        self._writer = SendBackWriter(base, names, groups, client_id)

    @property
    def waiting(self) -> int:
        """How many send-backs are not acknowledged yet, whether a caller still waits for them or not."""
        return self._once.running

    async def send_back(self, group: str, record: RecordToSendBack, idempotency_key: str | None) -> Answer:
        """Send one record back; returns when the brokers have acknowledged it.

        Raises:
            Problem: 409, 413 or 503.
            RecordNotFound: there is no such record.
            SendBackFailed: the brokers refused it both ways.
        """
        try:
            async with asyncio.timeout(self._answer_seconds):
                failed, held = await self._failed(group, record)
                try:
                    return await self._carry_out(failed, held, record, idempotency_key)
                except SendBackFailed as error:
                    if isinstance(error.__cause__, RecordTooLarge):
                        raise await self._threads.run(
                            _owner(group), lambda: self._too_large(failed, record.position)
                        ) from error
                    raise
                finally:
                    held.give_back()
        except TimeoutError:
            raise Problem(
                503,
                "kafka-away",
                "Kafka has not acknowledged it",
                f"{record.position} for group {group}: no acknowledgement within {self._answer_seconds:g} s; it may "
                "be stored later; make the same call again, it does not store a second copy",
                AGAIN_SECONDS,
            ) from None

    def close(self, seconds: float) -> None:
        """Wait so long for what is not acknowledged; the rest is given up, its callers were answered 503."""
        self._reader.close()
        left = self._writer.flush(seconds)
        if left:
            logger.warning("%d send-backs were not acknowledged; their callers were not told otherwise", left)
        self._writer.close()

    async def _carry_out(
        self, failed: _Failed, held: Held, record: RecordToSendBack, idempotency_key: str | None
    ) -> Answer:
        request, stored = failed.request, failed.request.stored
        if record.reconsume_times is not None and record.reconsume_times != stored.reconsume_times:
            raise Problem(
                409,
                "reconsume-times-disagree",
                "The record was sent back a different number of times",
                f"{record.position} says that it was sent back {stored.reconsume_times} times, the call says "
                f"{record.reconsume_times}; read the record again, or leave reconsumeTimes out",
            )
        subject = (request.group, record.position, stored.reconsume_times)
        key = subject if idempotency_key is None else (request.group, idempotency_key)
        if (answer := self._once.answer_of(key, subject)) is not None:
            return answer
        attempt = attempt_of(request.group, stored.origin_message_id, stored.reconsume_times + 1, request.headers)
        written = self._earlier(attempt)
        # A topic that was made anew has other records in its old places.
        if written is not None and (failed.born_ms is None or written.born_ms in (None, failed.born_ms)):
            return self._answer_of_earlier(request.group, attempt, written, failed.message_id)
        return await self._once.run(request.group, key, subject, lambda tell: self._write(failed, held.pass_on(), tell))

    def _too_large(self, failed: _Failed, position: Position) -> Problem:
        return too_large(
            f"{position} for group {failed.request.group}",
            failed.size,
            self._names.send_back,
            self._admin,
            "the delay topics take no more; raise max.message.bytes of both (`reconsume topics plan` says to what), "
            "and keep the record uncommitted until then",
        )

    def _write(self, failed: _Failed, held: Held, tell: Tell[Answer]) -> None:
        request, loop = failed.request, asyncio.get_running_loop()
        answers = [Answer(outcome=Outcome.DROPPED, message_id=failed.message_id)]

        def on_written(copy: SendBackCopy, record: KafkaMessage) -> None:
            answers[0] = self._answer(request.group, copy, record.timestamp()[1], failed.message_id)

        def on_done(error: SendBackFailed | None) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(held.give_back)
            tell(answers[0] if error is None else error)

        try:
            self._writer.send_back(request, failed.key, failed.value, on_done, on_written)
        except BaseException:
            held.give_back()
            raise

    async def _failed(self, group: str, record: RecordToSendBack) -> tuple[_Failed, Held]:
        """The failed message, and the memory that it takes."""
        owner = _owner(group)
        if isinstance(record, RecordByValue):
            stored, born_ms = self._stored(group, record)
            request = self._request(group, record, record.kafka_headers, stored)
            failed = _Failed(request, record.key, record.value, born_ms)
            return failed, self._memory.of_record(owner, failed.size)
        # How large a record is shows when it was read, so only so many are read at a time.
        await self._reads.wait(owner)
        try:
            message = await self._read(group, record)
            request = self._request(group, record, message.all_headers, message.stored)
            failed = _Failed(request, message.key, message.body, message.stored.born_ms)
            return failed, await self._memory.wait_for_record(owner, failed.size)
        finally:
            self._reads.give_back(owner)

    def _request(
        self, group: str, record: RecordToSendBack, headers: Sequence[Header], stored: Stored
    ) -> SendBackRequest:
        return SendBackRequest(
            group=group,
            headers=headers,
            stored=stored,
            delay_level=self._level(group, record),
            max_reconsume_times=record.max_reconsume_times,
            cause=None if record.error is None else record.error.as_cause(),
        )

    def _level(self, group: str, record: RecordToSendBack) -> int:
        names = self._dead_letter_on.get(group, ())
        if record.delay_level == 0 and record.error is not None and is_named(record.error.type, names):
            return DEAD_LETTER_LEVEL
        return record.delay_level

    def _stored(self, group: str, record: RecordByValue) -> tuple[Stored, int | None]:
        timestamp = int(self._clock()) if record.timestamp is None else record.timestamp
        if record.topic == self._names.retry(group):
            stored = Stored.of_retry(record.kafka_headers, record.position, timestamp)
            return stored, None
        return Stored.first_copy(record.position, timestamp), record.timestamp

    async def _read(self, group: str, record: RecordToSendBack) -> Message:
        position = record.position
        if position.partition >= self._partitions.get(position.topic, 0):
            counted = self._threads.run(_owner(group), lambda: count_partitions(self._admin, position))
            self._partitions[position.topic] = await counted
        loop = asyncio.get_running_loop()
        future: asyncio.Future[KafkaMessage | ReconsumeError] = loop.create_future()

        def answer(result: KafkaMessage | ReconsumeError) -> None:
            if not future.done():
                future.set_result(result)

        def on_read(result: KafkaMessage | ReconsumeError) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(answer, result)

        self._reader.read(position, on_read)
        result = await future
        if isinstance(result, ReconsumeError):
            raise result
        return Message(result, self._names.retry(group))

    def _answer(self, group: str, copy: SendBackCopy, appended_ms: int, message_id: str) -> Answer:
        if copy.topic == self._names.send_back:
            return Answer(outcome=Outcome.ACCEPTED, message_id=message_id)
        outcome = copy.outcome
        level = outcome.level if isinstance(outcome, Delayed) else None
        due_ms = appended_ms + (outcome.delay_ms if isinstance(outcome, Delayed) else 0)
        return self._told(group, level, due_ms, outcome.reconsume_times, message_id)

    def _answer_of_earlier(self, group: str, attempt: Attempt, written: RecentSendBack, message_id: str) -> Answer:
        if written.due_ms is None:
            return Answer(outcome=Outcome.ACCEPTED, message_id=message_id)
        level = None if written.dead_letter else written.level
        return self._told(group, level, written.due_ms, attempt.reconsume_times, message_id)

    def _told(self, group: str, level: int | None, due_ms: int, reconsume_times: int, message_id: str) -> Answer:
        dead = level is None
        return Answer(
            outcome=Outcome.DEAD_LETTERED if dead else Outcome.DELAYED,
            topic=self._names.dead_letter(group) if dead else self._names.retry(group),
            level=level,
            due_at=datetime.fromtimestamp(due_ms / 1000, UTC),
            reconsume_times=reconsume_times,
            message_id=message_id,
        )


def _owner(group: str) -> str:
    return f"group {group}"
