"""One Kafka for all processes of a test run (pytest-xdist)."""

from __future__ import annotations

import fcntl
import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.brokers.kafka import KafkaForTests, kafka_bootstrap

__all__ = ["shared_kafka"]


@contextmanager
def shared_kafka(folder: Path) -> Iterator[KafkaForTests]:
    """The process that needs it first starts it, and stops it when no other uses it.

    The locks are the operating system's, so those of a process that dies are free again.

    Args:
        folder: one for all processes of the run.
    """
    running = folder / "kafka.json"
    with (folder / "kafka.lock").open("w") as starting:
        fcntl.flock(starting, fcntl.LOCK_EX)
        if running.exists():
            found = json.loads(running.read_text())
            with (folder / found["users"]).open() as users:
                fcntl.flock(users, fcntl.LOCK_SH)
                fcntl.flock(starting, fcntl.LOCK_UN)
                yield KafkaForTests(*found["kafka"])
            return
        name = f"kafka.users.{uuid.uuid4().hex}"
        with kafka_bootstrap() as kafka, (folder / name).open("w") as users:
            running.write_text(json.dumps({"kafka": kafka, "users": name}))
            fcntl.flock(starting, fcntl.LOCK_UN)
            try:
                yield kafka
            finally:
                # From here on nobody finds it, and whoever comes starts one; those who have it finish.
                fcntl.flock(starting, fcntl.LOCK_EX)
                running.unlink()
                fcntl.flock(starting, fcntl.LOCK_UN)
                fcntl.flock(users, fcntl.LOCK_EX)
