"""Clear errors in place of Spark's, which arrive as Java exceptions deep in a stack of causes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from reconsume.delay_levels.errors import (
    IllegalSetting,
    KafkaLoginFailed,
    KafkaNotReachable,
    KafkaRefused,
    ReconsumeError,
    RecordTooLarge,
    TopicNotReady,
)


class SparkFailed(ReconsumeError):
    """Spark failed for an unknown reason."""


_ENDED: Final = (
    "Spark's process ended, as by kill -9 or without memory; run it again, and if it ends again, give it more memory, "
    "such as --spark-option spark.driver.memory=4g"
)
_KNOWN: Final[tuple[tuple[str, type[ReconsumeError], str], ...]] = (
    (
        r"No FileSystem for scheme|hadoop\.fs\.\S+ not found|NoClassDefFoundError: (?:software|com)/a(?:maz|zure)",
        IllegalSetting,
        "this Spark has no jars for the storage of the folder; add them to spark.jars.packages, see docs/spark.md",
    ),
    (
        r"Failed to find data source: kafka|DATA_SOURCE_NOT_FOUND|NoClassDefFoundError|NoSuchMethodError",
        IllegalSetting,
        "this Spark session has no Kafka connector that fits it; build it with configure(builder), see docs/spark.md",
    ),
    (
        r"different topic partitions|_WITH_TRIGGER_AVAILABLENOW|MISMATCHED_TOPIC_PARTITIONS",
        TopicNotReady,
        "topics were created or deleted while Spark looked up their offsets; run it again",
    ),
    (
        r"UnknownTopicOrPartitionException",
        TopicNotReady,
        "a topic does not exist; a group without dead letters has none, `reconsume topics apply` makes the others",
    ),
    (
        r"RecordTooLargeException",
        RecordTooLarge,
        "a record exceeds the max.message.bytes of DELAY.0s; raise it, or make a plan whose --where leaves that out",
    ),
    (
        r"Some data may have been|OffsetOutOfRangeException|KafkaIllegalStateException",
        TopicNotReady,
        "records were deleted before they were read; run it again, and a stream with the option failOnDataLoss=false",
    ),
    # Py4j names a call and no cause in Java if no answer comes.
    (r"\AAn error occurred while calling [\w.$]+\Z", SparkFailed, _ENDED),
    # S3 and Azure also say "not authorized", of a folder.
    (
        r"AccessDenied\b|not authorized to perform|AccessControlException",
        IllegalSetting,
        "the storage refused; Spark and its executors must be allowed to read and to write the folder",
    ),
    (
        r"No space left on device|Disk quota exceeded",
        SparkFailed,
        "a disk is full: that of the output, or of spark.local.dir (TMPDIR) on a machine of Spark",
    ),
    (
        r"OutOfMemoryError|spark\.driver\.maxResultSize",
        SparkFailed,
        "Spark needs more memory, such as --spark-option spark.driver.memory=4g, on a cluster also its executors",
    ),
    (
        r"[Ll]og file|offset log|OffsetSeq|checkpoint|\boffsets/\d",
        IllegalSetting,
        "the checkpoint in the stream's folder cannot be read; go on with a new folder, what was replayed is left out",
    ),
    (
        r"kafka\.common\.errors\.\w*AuthenticationException|SSL handshake failed",
        KafkaLoginFailed,
        "the brokers do not accept the login, or Spark not their certificate; check [kafka] and -X, else kafka.sasl.*",
    ),
    (
        r"kafka\.common\.errors\.\w*AuthorizationException|Not authorized to access",
        KafkaRefused,
        "Kafka refused; needed are Read on the topics and on groups spark-kafka-*, for a replay Write on DELAY.0s",
    ),
    (
        r"kafka\.common\.errors\.TimeoutException|kafka\.common\.errors\.DisconnectException|No resolvable bootstrap",
        KafkaNotReachable,
        "no broker answered Spark; check the bootstrap servers, which its executors must reach too",
    ),
)
_OWN: Final = re.compile(r"^reconsume(?:\.\w+)*\.(\w+): (.+)", re.MULTILINE)
"""The end of a traceback in the text of a stream's error: a batch of the stream runs in Python."""
_CAUSE: Final = re.compile(r"^(?:Caused by: |: )?((?:[\w$]+\.)+[\w$]+(?:Exception|Error)[^\n]*)", re.MULTILINE)


@contextmanager
def explained(what: str) -> Iterator[None]:
    """Turn errors of Spark in this block into errors of reconsume, with the current action.

    Args:
        what: the action, for the message.

    Raises:
        ReconsumeError: one of the tree, or `SparkFailed` with the first line of each Java cause.
    """
    try:
        yield
    except ReconsumeError:
        raise
    except Exception as error:
        # Python connects to Spark's process and to nothing else; pyspark-client has no py4j to import a class from.
        if isinstance(error, ConnectionError) or type(error).__name__ == "Py4JNetworkError":
            raise SparkFailed(f"{what}: {_ENDED}") from error
        if not type(error).__module__.startswith(("pyspark.", "py4j.")):
            raise
        raise _meaning(what, str(error)) from error


def _meaning(what: str, text: str) -> ReconsumeError:
    if own := _OWN.findall(text):
        kinds = {kind.__name__: kind for _, kind, _ in _KNOWN}
        return kinds.get(own[-1][0], SparkFailed)(f"{what}: {own[-1][1]}")
    causes = list(dict.fromkeys(match[1][:300] for match in _CAUSE.finditer(text)))
    told = "\n  ".join(causes[-3:] or [text.strip()[:600]])
    for pattern, kind, meaning in _KNOWN:
        if re.search(pattern, text):
            return kind(f"{what}: {meaning}. Spark says:\n  {told}")
    return SparkFailed(f"{what}: Spark failed:\n  {told}")
