"""The errors of reconsume, one class for each way a caller can react.

ReconsumeError
├── IllegalSetting            a value was refused: change it
│   ├── IllegalDelayLevels    the level table or a retry policy
│   ├── IllegalName           a group or topic that Kafka cannot hold
│   ├── TopicNotAllowed       schedulers may not deliver to this topic: allow it in their settings
│   └── RecordNotFound        no record is at a position: it was deleted, or does not exist yet
├── MalformedProperty         a header of one record is malformed: quarantine that record
├── SubscriptionGroupNotExist RocketMQ's code 26: register the group
├── TopicNotReady             a topic of reconsume is missing or has wrong settings: apply the topic plan
├── KafkaNotReachable         no broker answered: wait, then try again
│   └── KafkaLoginFailed      login or certificate was refused: change the settings
├── KafkaRefused              the cluster refused (rights, limits): ask its operator
│   ├── WriterReplaced        another process writes under the same id: read its records, then continue
│   └── RecordTooLarge        a record exceeds its topic's limit: make it smaller, or raise the limit
├── SendBackFailed            not acknowledged: the record must stay uncommitted
│   └── GroupIsFull           the group has reached its limit of waiting messages: fix the failures, or raise it
├── OffsetStoreUnusable       the offsets of a broadcasting consumer are in use or unreadable: check the file
├── PartitionLost             the group has rebalanced: nothing was sent, the record is read again
└── WorkerFenced              another worker took this one's identity
"""

from __future__ import annotations

__all__ = [
    "GroupIsFull",
    "IllegalDelayLevels",
    "IllegalName",
    "IllegalSetting",
    "KafkaLoginFailed",
    "KafkaNotReachable",
    "KafkaRefused",
    "MalformedProperty",
    "OffsetStoreUnusable",
    "PartitionLost",
    "ReconsumeError",
    "RecordNotFound",
    "RecordTooLarge",
    "SendBackFailed",
    "SubscriptionGroupNotExist",
    "TopicNotAllowed",
    "TopicNotReady",
    "WorkerFenced",
    "WriterReplaced",
]


class ReconsumeError(Exception):
    """Base of all errors that reconsume raises on purpose."""


class IllegalSetting(ReconsumeError, ValueError):
    """A setting or argument has a value that cannot work."""


class IllegalDelayLevels(IllegalSetting):
    """A level table or retry policy that RocketMQ would refuse too (LV-03)."""


class IllegalName(IllegalSetting):
    """A group, topic or prefix that cannot become a Kafka topic name."""


class TopicNotAllowed(IllegalSetting):
    """A delayed message for a topic that the schedulers' `allowed_real_topics` does not match."""


class RecordNotFound(IllegalSetting):
    """No committed record exists at a position (RocketMQ: BR-09)."""


class MalformedProperty(ReconsumeError, ValueError):
    """A header of reconsume with an invalid value."""


class SubscriptionGroupNotExist(ReconsumeError, LookupError):
    """The group is not registered and may not be created automatically (RocketMQ: BR-01, code 26)."""


class TopicNotReady(ReconsumeError):
    """A topic that must exist is missing, or has a setting that would break a guarantee."""


class KafkaNotReachable(ReconsumeError):
    """No broker answered in time; the same call may succeed later."""


class KafkaLoginFailed(KafkaNotReachable):
    """The brokers refuse the user, or this client refuses their certificate; change the settings."""


class KafkaRefused(ReconsumeError):
    """The cluster refused the request: missing rights, a policy, a limit."""


class RecordTooLarge(KafkaRefused):
    """A record exceeds the limit of its topic or producer; it never fits."""


class WriterReplaced(KafkaRefused):
    """Another process has taken over a task for a single writer; nothing of this one was committed."""


class SendBackFailed(ReconsumeError):
    """The brokers did not acknowledge a send-back; its record must not be committed.

    Attributes:
        failed: of several send-backs, the indexes of the failed ones.
    """

    def __init__(self, message: str, failed: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.failed = failed


class GroupIsFull(SendBackFailed):
    """The group has reached its `maxWaiting`; the record must not be committed."""


class OffsetStoreUnusable(ReconsumeError):
    """The local offsets of a broadcasting consumer cannot be read or written, or another process has them."""


class PartitionLost(ReconsumeError):
    """The group rebalanced before a send-back with its offset was committed; nothing was sent or committed."""


class WorkerFenced(ReconsumeError):
    """Another process uses this worker's transactional id."""
