"""The errors of reconsume, one class for each way a caller can react.

ReconsumeError
├── IllegalSetting            a value was refused: change it
│   ├── IllegalDelayLevels    the level table or a retry policy
│   ├── IllegalName           a group or topic that Kafka cannot hold
│   ├── TopicNotAllowed       schedulers may not deliver to this topic: allow it in their settings
│   └── RecordNotFound        no record stands at a position: it is no longer kept, or not there yet
├── MalformedProperty         a header of one record is not what it must be: quarantine that record
├── SubscriptionGroupNotExist RocketMQ's code 26: register the group
├── TopicNotReady             one of our topics is missing or set up wrongly: apply the topic plan
├── KafkaNotReachable         no broker answered: wait, then try again
│   └── KafkaLoginFailed      login or certificate are not accepted: change the settings
├── KafkaRefused              the cluster refused (rights, limits): ask its operator
│   ├── WriterReplaced        another process writes under the same id: read what it wrote, then go on
│   └── RecordTooLarge        a record is larger than its topic takes: make it smaller, or raise the limit
├── SendBackFailed            not acknowledged: the record must stay uncommitted
│   └── GroupIsFull           the group has as many messages waiting as it may: mend what fails, or raise the limit
├── OffsetStoreUnusable       the offsets of a broadcasting consumer are in use or unreadable: see to the file
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
    """A delayed message is for a topic that the schedulers' `allowed_real_topics` does not match."""


class RecordNotFound(IllegalSetting):
    """No committed record stands at a position (RocketMQ: BR-09)."""


class MalformedProperty(ReconsumeError, ValueError):
    """A header that carries one of our properties does not hold what it must."""


class SubscriptionGroupNotExist(ReconsumeError, LookupError):
    """The group is not registered and may not be created by itself (RocketMQ: BR-01, code 26)."""


class TopicNotReady(ReconsumeError):
    """A topic that must exist is missing, or has a setting that would break a guarantee."""


class KafkaNotReachable(ReconsumeError):
    """No broker answered in time; the same call may succeed later."""


class KafkaLoginFailed(KafkaNotReachable):
    """The brokers do not accept the user, or this client not their certificate; only other settings help."""


class KafkaRefused(ReconsumeError):
    """The cluster answered and said no: missing rights, a policy, a limit."""


class RecordTooLarge(KafkaRefused):
    """A record is larger than its topic, or the producer, takes; the same one never fits."""


class WriterReplaced(KafkaRefused):
    """Another process has begun to write what only one may write at a time; nothing of this one was committed."""


class SendBackFailed(ReconsumeError):
    """The brokers did not acknowledge a send-back; its record must not be committed.

    Attributes:
        failed: of several, the positions of those that failed.
    """

    def __init__(self, message: str, failed: tuple[object, ...] = ()) -> None:
        super().__init__(message)
        self.failed = failed


class GroupIsFull(SendBackFailed):
    """The group has as many messages waiting as its `maxWaiting` allows; the record must not be committed."""


class OffsetStoreUnusable(ReconsumeError):
    """The local offsets of a broadcasting consumer cannot be read or written, or another process has them."""


class PartitionLost(ReconsumeError):
    """A send-back with its offset came too late: the group has rebalanced. Nothing was sent, nothing committed."""


class WorkerFenced(ReconsumeError):
    """Another process uses this worker's transactional id."""
