"""Committed offsets of many groups at once, requested in a child process.

One admin client asks for a thousand groups in 0.1 s; a consumer for each group costs 1.2 ms of CPU and connections of
its own. But librdkafka (2.16) kills the process of an admin client when a group has moved to another broker (issue
5040), or when a connection breaks during a request to a coordinator (issue 4605). So a child asks, and if it dies only
its answers are lost. Test: tests/integration/operations/test_status.py. Remove when: both issues are closed, or one
request may name several groups.

The child runs this file as a program that imports only confluent-kafka, so that it starts quickly.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from reconsume.bridge.process.safe_logger import SafeLogger

Offsets = dict[str, list[tuple[str, int, int, str]]]
"""By group: topic, partition, offset, metadata."""

logger = SafeLogger(__name__)

_ANSWER_SECONDS: Final = 4.0
_CHILD_SECONDS: Final = 8.0


def offsets_of_groups(settings: Mapping[str, Any], asked: Mapping[str, Sequence[tuple[str, int]]]) -> Offsets:
    """Return the committed offsets of groups; a group that did not answer is missing.

    Args:
        settings: librdkafka settings that every client uses, as text and numbers.
        asked: the partitions of each group.
    """
    # Settings hold passwords, so they go through a pipe.
    question = json.dumps([dict(settings), {group: list(wanted) for group, wanted in asked.items()}])
    try:
        done = subprocess.run(
            [sys.executable, "-P", __file__],
            input=question,
            capture_output=True,
            text=True,
            timeout=_CHILD_SECONDS,
            check=False,
        )
        found: Offsets = {}
        for line in done.stdout.splitlines():  # its output counts, even if the child died
            group, offsets = json.loads(line)
            found[group] = [(topic, partition, offset, text) for topic, partition, offset, text in offsets]
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        logger.debug("child returned no offsets of %d groups: %s", len(asked), error)
        return {}
    if len(found) < len(asked):
        logger.debug("child returned offsets of %d of %d groups: %s", len(found), len(asked), done.stderr[-500:])
    return found


def _answer() -> None:
    """Print a line for each group that answers."""
    settings, asked = json.load(sys.stdin)
    with suppress(ImportError, OSError, ValueError):
        import resource  # noqa: PLC0415 - Windows has none

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    client = AdminClient(settings | {"log_level": 0})
    futures = {
        group: client.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group, [TopicPartition(*where) for where in wanted])],
            request_timeout=_ANSWER_SECONDS,
        )[group]
        for group, wanted in asked.items()
    }
    for group, future in futures.items():
        # Groups with a refusal or with non-text metadata are left to the caller, which can report details.
        with suppress(KafkaException, UnicodeDecodeError, TimeoutError):
            partitions = future.result(_ANSWER_SECONDS).topic_partitions
            if all(one.error is None for one in partitions):
                offsets = [(one.topic, one.partition, one.offset, one.metadata or "") for one in partitions]
                sys.__stdout__.write(json.dumps([group, offsets]) + "\n")  # type: ignore[union-attr]  # a pipe
                sys.__stdout__.flush()  # type: ignore[union-attr]


if __name__ == "__main__":
    _answer()
