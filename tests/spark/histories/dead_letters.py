"""Dead letters as the scheduler writes them, put straight on their topic, and a look at `DELAY.0s`."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any, cast

from reconsume.delay_levels.wire.properties import Header
from tests.integration.installation import Installation, settings_for
from tests.spark.histories.history import headers
from tests.support.waiting import PATIENCE

__all__ = ["GROUP", "dead_letter_headers", "interrupt", "replayed", "with_dead_letters"]

GROUP = "departures"


def dead_letter_headers(number: int, cause: str = "no dep_time", **more: str) -> list[Header]:
    """Headers of the n-th dead letter, the user's among them."""
    ours = {
        "RETRY_TOPIC": "flights",
        "ORIGIN_MESSAGE_ID": f"flights/0/{number}",
        "RECONSUME_TIME": "17",
        "DELAY": "0",
        "REAL_TOPIC": f"%DLQ%{GROUP}",
        "BORN_TIMESTAMP": "1700000000000",
        "__dlq.errors.message": cause,
    }
    return [("user", b"\xff"), ("user", None), *headers(**ours | more)]


def with_dead_letters(bootstrap_servers: str, count: int) -> Installation:
    """An installation with so many dead letters and no scheduler."""
    installation = Installation(settings_for(bootstrap_servers))
    installation.make_topics()
    topic = installation.settings.names.dead_letter(GROUP)
    installation.admin.create(topic, 2, -1, {"message.timestamp.type": "LogAppendTime"})
    producer = installation.producer()
    for number in range(count):
        cause = "no dep_time" if number % 2 == 0 else "timeout"
        producer.produce(
            topic,
            f"value-{number}".encode(),
            f"key-{number}".encode(),
            headers=cast("Any", dead_letter_headers(number, cause)),
        )
    assert producer.flush(PATIENCE) == 0
    producer.close()
    return installation


def replayed(installation: Installation) -> Counter[str | None]:
    """How often each message stands on `DELAY.0s`."""
    lane = installation.settings.names.delay(0)
    return Counter(record["ORIGIN_MESSAGE_ID"] for record in installation.read(lane))


def interrupt(plan: Path, at_ms: int) -> None:
    """Leave the folder of a plan as a run does that dies when it has begun."""
    (plan / "events").mkdir()
    event = {"at": at_ms, "run": "interrupted", "what": "started"}
    (plan / "events" / "part-0.json").write_text(json.dumps(event))
