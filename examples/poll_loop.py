"""A poll loop: `python -m examples.poll_loop BOOTSTRAP_SERVERS GROUP TOPIC`."""

from __future__ import annotations

import sys

from reconsume.consumers import Consumer
from confluent_kafka import KafkaException


def depart(flight: bytes) -> None:
    """Fails for whatever is no flight number."""
    print(f"flight {int(flight)} departs", flush=True)


def main(bootstrap_servers: str, group: str, topic: str) -> None:
    conf = {
        "bootstrap.servers": bootstrap_servers,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.offset.store": False,
    }
    consumer = Consumer(conf)
    consumer.subscribe([topic])
    try:
        while True:
            message = consumer.poll(1.0)
            if message is None:
                continue
            if message.error() is not None:
                raise KafkaException(message.error())
            try:
                depart(message.value() or b"")
            except ValueError as error:
                consumer.send_message_back(message, cause=error)
            consumer.store_offsets(message)
    except KeyboardInterrupt:
        print("stopped")
    finally:
        consumer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
