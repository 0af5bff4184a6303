"""`reconsume send-back`: read one record and send it back, as RocketMQ's broker does by offset."""

from __future__ import annotations

from concurrent.futures import Future

from reconsume.bridge.groups.groups_store import read_groups
from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.process.polled_records import PolledRecord
from reconsume.bridge.reading.record_reader import read_again
from reconsume.bridge.writing.send_back import SendBackWriter
from reconsume.cli.output import print_json, print_line
from reconsume.consumers.message import Message
from reconsume.delay_levels.errors import IllegalSetting, MalformedProperty, SendBackFailed
from reconsume.delay_levels.wire.send_back_copy import Cause, Position, SendBackRequest

_SECONDS = 15.0


def send_back_record(
    cluster: Cluster, group: str, message: str, delay_level: int, cause: str | None, *, as_json: bool
) -> None:
    """Send the record at `TOPIC/PARTITION/OFFSET` back for a group; return after the acknowledgement.

    Raises:
        IllegalSetting: the record does not exist (RocketMQ: BR-09).
        SendBackFailed: the brokers refused it.
    """
    try:
        position = Position.parse(message)
    except MalformedProperty as error:
        raise IllegalSetting(f"--message: {error}") from None
    record = read_again(cluster.base, position, group, "reconsume-send-back")
    failed = Message(record, cluster.names.retry(group))
    request = SendBackRequest(
        *(group, failed.all_headers, failed.stored),
        delay_level=delay_level,
        cause=None if cause is None else Cause(cause),
    )
    _write(cluster, request, record)
    times = failed.stored.reconsume_times + 1
    if as_json:
        print_json({"message": str(position), "group": group, "reconsumeTimes": times})
    else:
        print_line(f"{position} is sent back for group {group}, reconsume times {times}")


def _write(cluster: Cluster, request: SendBackRequest, record: PolledRecord) -> None:
    groups = read_groups(cluster)
    writer = SendBackWriter(cluster.base, cluster.names, lambda: groups, "reconsume-send-back")
    answer: Future[SendBackFailed | None] = Future()
    try:
        writer.send_back(request, record.key(), record.value(), answer.set_result)
        error = answer.result(_SECONDS)
    except TimeoutError:
        raise SendBackFailed(f"no acknowledgement within {_SECONDS:.0f} s; the copy may have been stored") from None
    finally:
        writer.close()
    if error is not None:
        raise error
