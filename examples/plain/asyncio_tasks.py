"""An asyncio consumer: `python -m examples.asyncio_tasks BOOTSTRAP_SERVERS GROUP TOPIC`."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress

from confluent_kafka import KafkaException, Message
from confluent_kafka.aio import AIOConsumer


async def depart(flight: bytes) -> None:
    """Fails for whatever is no flight number."""
    await asyncio.sleep(0)
    print(f"flight {int(flight)} departs", flush=True)


async def handle(consumer: AIOConsumer, message: Message) -> None:
    try:
        await depart(message.value() or b"")
    except ValueError as error:
        print(f"given up: {error}", flush=True)


async def main(bootstrap_servers: str, group: str, topic: str) -> None:
    conf = {
        "bootstrap.servers": bootstrap_servers,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    consumer = AIOConsumer(conf)
    await consumer.subscribe([topic])
    try:
        while True:
            messages = [one for one in await consumer.consume(100, 0.2) if one.error() is None]
            await asyncio.gather(*(handle(consumer, message) for message in messages))
            if messages:
                try:
                    await consumer.commit(asynchronous=False)
                except KafkaException as error:
                    # The next commit covers the messages, or the next owners of their partitions read them again.
                    print(error, file=sys.stderr, flush=True)
    finally:
        await consumer.close()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main(*sys.argv[1:]))
