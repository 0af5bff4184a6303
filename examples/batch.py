"""A batch consumer: `python -m examples.batch BOOTSTRAP_SERVERS GROUP TOPIC`."""

from __future__ import annotations

import sys
from contextlib import suppress

from confluent_kafka import KafkaException
from reconsume.consumers import Consumer


def depart(flights: list[bytes]) -> int:
    """How many departed, from the front: the first that is no flight number holds up those behind it."""
    departed = 0
    with suppress(ValueError):
        for flight in flights:
            print(f"flight {int(flight)} departs", flush=True)
            departed += 1
    return departed


def main(bootstrap_servers: str, group: str, topic: str) -> None:
    conf = {
        "bootstrap.servers": bootstrap_servers,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    with Consumer(conf) as consumer:
        consumer.subscribe([topic])
        while True:
            batch = [one for one in consumer.consume(100, 0.5) if one.error() is None]
            departed = depart([one.value() or b"" for one in batch])
            consumer.send_message_back(batch, ack_index=departed - 1)
            if batch:
                try:
                    consumer.commit(asynchronous=False)
                except KafkaException as error:
                    # The next commit covers the batch, or the next owners of its partitions read it again.
                    print(error, file=sys.stderr, flush=True)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main(*sys.argv[1:])
