"""Properties that RocketMQ and reconsume write differently on purpose, each with its reason.

Everything else must be equal, to the letter. docs/differences-from-rocketmq.md has these under "What the traces show".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = [
    "NOT_MADE",
    "ONLY_OURS",
    "ONLY_ROCKETMQ",
    "ON_DEAD_LETTERS",
    "ON_ORDERLY_DEAD_LETTERS",
    "OTHER_VALUE",
    "comparable",
]

ONLY_ROCKETMQ: Final = {
    "CLUSTER": "the client adds the broker's cluster; a Kafka cluster's name is no part of a record",
    "CONSUME_START_TIME": "kept in memory, so that headers are the user's alone (RocketMQ: CC-20)",
    "MAX_OFFSET": "the client adds it to each message that it pulls; in Kafka the consumer can be asked",
    "MIN_OFFSET": "likewise",
    "UNIQ_KEY": "RocketMQ's producer makes one; Kafka's do not, and one that is there comes back untouched",
    "WAIT": "false allows an acknowledgement before the copy is on disk; ours waits for acks=all (RocketMQ: BR-11)",
}
"""Properties that no record of ours has."""

ONLY_OURS: Final = {
    "BORN_TIMESTAMP": "a field of RocketMQ's message, beside its properties",
    "FIRST_FAILURE_TIMESTAMP": "when a message was first sent back; RocketMQ does not tell",
    "MAX_RECONSUME_TIMES": "a field of RocketMQ's send-back request; here the copy carries it, if the consumer set one",
    "RECONSUME_TIME": "a field of RocketMQ's message; compared as reconsumeTimes",
    "__dlq.errors.": "what Kafka's own dead-letter queues write (KIP-1191)",
}
"""Names, or beginnings of names that end with a dot; not so on ON_ORDERLY_DEAD_LETTERS."""

ON_DEAD_LETTERS: Final = {
    "REAL_TOPIC": "always %DLQ%<group>, where the scheduler took it; RocketMQ leaves that of its last retry, or none",
    "REAL_QID": "the partition to it; likewise",
}
"""Properties whose value on a dead letter is another one."""

ON_ORDERLY_DEAD_LETTERS: Final = {
    "RECONSUME_TIME": "one more than the last delivery showed, as on any other dead letter; so RocketMQ 5.1.1 (HR-06)",
    "DELAY": "0; there a dead letter shows a level on which it never waited",
    "ORIGIN_MESSAGE_ID": "there too; RocketMQ's is sent as a new message, which has none",
}
"""What an exhausted message of an orderly consumer has otherwise: here all dead letters are alike."""

OTHER_VALUE: Final = {
    "ORIGIN_MESSAGE_ID": "<topic>/<partition>/<offset> of the first copy, in place of broker address and log position",
}
"""Properties that both have on the same records; what our values must be is tested apart."""

NOT_MADE: Final = {
    "%RETRY%G_broadcasting_never_retries": "the broker makes one for every group; nobody would write to it or read it",
}
"""Topics that exist, empty, with RocketMQ only."""

_ANY: Final = "(another value)"


def comparable(properties: Mapping[str, str], *, dead_letter: bool) -> dict[str, str]:
    """The properties without what is known to differ; the same from both sides if we do as RocketMQ does."""
    left_out = {*ONLY_ROCKETMQ, *ONLY_OURS, *(ON_DEAD_LETTERS if dead_letter else ())}
    prefixes = tuple(name for name in left_out if name.endswith("."))
    return {
        name: _ANY if name in OTHER_VALUE else value
        for name, value in properties.items()
        if name not in left_out and not name.startswith(prefixes)
    }
