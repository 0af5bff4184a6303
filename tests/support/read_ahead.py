"""A worker's memory, as tests fill it."""

from __future__ import annotations

from confluent_kafka import Message

from reconsume.bridge.scheduler.queues.read_ahead import ReadAhead

__all__ = ["add"]


def add(ahead: ReadAhead, message: Message) -> None:
    """One record that was read."""
    ahead.add((message.topic() or "", message.partition() or 0), [message])
