"""What Java's exceptions mean."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException

from reconsume.delay_levels.errors import (
    IllegalSetting,
    KafkaLoginFailed,
    KafkaNotReachable,
    KafkaRefused,
    ReconsumeError,
    RecordTooLarge,
    TopicNotReady,
)
from reconsume.spark_connectors.failures import SparkFailed, explained

PREFIX = "An error occurred while calling o12.count.\n: java.util.concurrent.ExecutionException: "


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (PREFIX + "org.apache.kafka.common.errors.UnknownTopicOrPartitionException: no", TopicNotReady),
        (PREFIX + "org.apache.kafka.common.errors.TimeoutException: Timed out waiting for a node", KafkaNotReachable),
        (
            PREFIX + "org.apache.kafka.common.errors.SaslAuthenticationException: Authentication failed",
            KafkaLoginFailed,
        ),
        (PREFIX + "org.apache.kafka.common.errors.SslAuthenticationException: SSL handshake failed", KafkaLoginFailed),
        (PREFIX + "org.apache.kafka.common.errors.GroupAuthorizationException: Not authorized", KafkaRefused),
        (PREFIX + "org.apache.kafka.common.errors.RecordTooLargeException: The message is 2 bytes", RecordTooLarge),
        (": org.apache.spark.sql.kafka010.KafkaIllegalStateException: Some data may have been lost", TopicNotReady),
        (
            ": java.lang.IllegalStateException: different topic partitions for starting offsets topics[a-0]",
            TopicNotReady,
        ),
        ("[LOST_TOPIC_PARTITIONS_IN_END_OFFSET_WITH_TRIGGER_AVAILABLENOW] Some of partitions in", TopicNotReady),
        ("[DATA_SOURCE_NOT_FOUND] Failed to find the data source: kafka.", IllegalSetting),
        ("java.lang.NoClassDefFoundError: org/apache/spark/internal/Logging", IllegalSetting),
        (
            ": java.nio.file.AccessDeniedException: s3a://audit/log: PutObject: (Status Code: 403):AccessDenied",
            IllegalSetting,
        ),
        ('AbfsRestOperationException: "This request is not authorized to perform this operation", 403', IllegalSetting),
        (": AccessDeniedException: s3a://a/checkpoint: not authorized to perform: s3:GetObject", IllegalSetting),
        (": org.apache.hadoop.security.AccessControlException: Permission denied: user=x", IllegalSetting),
        (": org.apache.hadoop.security.authorize.AuthorizationException: User x is not allowed", SparkFailed),
        ("java.lang.OutOfMemoryError: Java heap space", SparkFailed),
        ("", SparkFailed),
    ],
)
def test_a_failure_of_spark_is_one_of_ours_and_keeps_what_java_said(text: str, kind: type[ReconsumeError]) -> None:
    for error in (Py4JError(text), PySparkException(text)):
        with pytest.raises(kind, match="the plan cannot be made") as raised, explained("the plan cannot be made"):
            raise error
        assert text.rsplit("\n", 1)[-1].removeprefix(": ")[:60] in str(raised.value)
        assert raised.value.__cause__ is error


@pytest.mark.parametrize(
    "text",
    [
        ': org.apache.hadoop.fs.UnsupportedFileSystemException: No FileSystem for scheme "abfss"',
        ": java.lang.ClassNotFoundException: Class org.apache.hadoop.fs.s3a.S3AFileSystem not found",
        "java.lang.NoClassDefFoundError: software/amazon/awssdk/core/exception/SdkException",
        "java.lang.NoClassDefFoundError: com/azure/storage/blob/BlobClient",
    ],
)
def test_a_storage_whose_jars_are_missing_is_not_a_missing_connector(text: str) -> None:
    with pytest.raises(IllegalSetting, match="has no jars for the storage"), explained("the ledger cannot be read"):
        raise Py4JError(text)


@pytest.mark.parametrize(
    "error",
    [
        ConnectionRefusedError(111, "Connection refused"),
        Py4JNetworkError("Answer from Java side is empty"),
        Py4JNetworkError("Error while sending"),
        Py4JNetworkError("Error while receiving"),
        Py4JNetworkError("Error while sending or receiving"),
        Py4JError("An error occurred while calling o12.count"),
    ],
)
def test_a_lost_connection_means_that_spark_ended(error: Exception) -> None:
    with (
        pytest.raises(SparkFailed, match="the plan cannot be made: Spark's process ended"),
        explained("the plan cannot be made"),
    ):
        raise error


def test_what_a_batch_of_a_stream_says_of_itself_is_told() -> None:
    """Py4j hands an error of Python on as the text of its traceback, and Spark puts its own around it."""
    why = "spark.task.maxFailures is 4; start Spark with spark.task.maxFailures=1"
    text = (
        "[FOREACH_BATCH_USER_FUNCTION_ERROR] An error occurred in the user provided function in foreach batch sink. "
        "Reason: An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):\n"
        '  File "/x/pyspark/sql/utils.py", line 165, in call\n    raise e\n'
        '  File "/x/checkpoint/reconsume/spark_connectors/replay/stream.py", line 78, in replay_batch\n'
        f"reconsume.delay_levels.errors.IllegalSetting: {why}\n\nSQLSTATE: 39000"
    )
    with pytest.raises(IllegalSetting) as raised, explained("the stream nightly stopped; run it again"):
        raise PySparkException(text)
    assert str(raised.value) == f"the stream nightly stopped; run it again: {why}"


def test_other_errors_pass() -> None:
    with pytest.raises(KeyError), explained("x"):
        raise KeyError("mine")
    with pytest.raises(IllegalSetting, match=r"^as it was$"), explained("x"):
        raise IllegalSetting("as it was")
