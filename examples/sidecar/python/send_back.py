"""A consumer with its own poll loop; what fails goes back through the sidecar. The standard library calls it."""

import json
import sys
import time
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import Request, urlopen

from confluent_kafka import Consumer, KafkaException, Message


def handle(message: Message) -> None:
    times = int(dict(message.headers() or []).get("RECONSUME_TIME") or 0)
    value = (message.value() or b"").decode()
    if value == "cancelled" or (value == "late" and times == 0):
        raise ValueError('no "dep_time"')
    print((message.key() or b"").decode(), value, "after", times, "send-backs", flush=True)


def send_back(url: str, message: Message, error: Exception) -> None:
    """Return when Kafka has the copy: only then may the record be committed."""
    call("POST", url + "/send-back", {
        "topic": message.topic(), "partition": message.partition(), "offset": message.offset(),
        "error": {"type": type(error).__name__, "message": str(error)},
    })  # fmt: skip


def call(method: str, url: str, body: dict[str, object] | None = None) -> dict[str, str]:
    """Make the same call again while nobody answers or Kafka is away: the sidecar makes no second copy."""
    content = None if body is None else json.dumps(body).encode()
    request = Request(url, content, {"content-type": "application/json"}, method=method)
    while True:
        try:
            with urlopen(request, timeout=30) as answer:
                return dict(json.load(answer))
        except HTTPError as error:
            if error.code not in (429, 503):
                raise RuntimeError(error.read().decode()) from error
            time.sleep(int(error.headers.get("retry-after", "5")))
        except (URLError, OSError):
            time.sleep(1)


def main(bootstrap_servers: str, sidecar: str, group: str, topic: str) -> None:
    url = f"{sidecar}/v1/groups/{quote(group, safe='')}"
    retry_topic = call("PUT", url)["retryTopic"]  # made if it is missing
    consumer = Consumer({
        "bootstrap.servers": bootstrap_servers, "group.id": group, "enable.auto.commit": False,
        "auto.offset.reset": "earliest", "isolation.level": "read_committed",
    })  # fmt: skip
    consumer.subscribe([topic, retry_topic])
    while True:
        message = consumer.poll(1.0)
        if message is None or message.error() is not None:
            continue
        try:
            handle(message)
        except ValueError as error:
            send_back(url, message, error)
        try:
            consumer.commit(message=message, asynchronous=False)
        except KafkaException as error:
            # The next commit covers the record, or the next owner of its partition reads it again.
            print(error, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
