"""What the code writes today, as text that can be kept: headers, GROUPS records, metadata beside offsets."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from reconsume.bridge.groups.groups import PublishedTopicSettings, SubscriptionGroupConfig, SystemConfig
from reconsume.delay_levels.progress.done_ahead import encode_done
from reconsume.delay_levels.progress.metadata import encode_progress
from reconsume.delay_levels.rules.levels import DEFAULT_LEVEL_TABLE, DelayLevels
from reconsume.delay_levels.wire.allowed_topics import encode_allowed
from reconsume.delay_levels.wire.dead_letter_states import DeadLetterKey, DeadLetterState, encode_state
from reconsume.delay_levels.wire.inbox import inbox_copy
from reconsume.delay_levels.wire.jobs.job_records import (
    DeadLetterFilter,
    JobEvent,
    JobProgress,
    JobSpec,
    LetterEdit,
    encode_job_progress,
    encode_spec,
    encode_wish,
    progress_key,
    spec_key,
    wish_key,
)
from reconsume.delay_levels.wire.names import TopicNames
from reconsume.delay_levels.wire.positions import StoredPosition, encode_position, position_key
from reconsume.delay_levels.wire.properties import Header, Headers
from reconsume.delay_levels.wire.quarantine import quarantine_headers
from reconsume.delay_levels.wire.send_back_copy import (
    Cause,
    Position,
    SendBackCopy,
    SendBackRequest,
    Stored,
    send_back_copy,
)
from reconsume.delay_levels.wire.timer import delayed_copy, rolled
from reconsume.delay_levels.wire.withdrawals import PositionInCancel, known_withdrawal, withdrawal_id

__all__ = ["FOLDER", "as_headers", "as_text", "written_today"]

FOLDER: Final = Path(__file__).parents[1] / "golden"
_NAMES: Final = TopicNames()
_TABLE: Final = DelayLevels.parse(DEFAULT_LEVEL_TABLE)
_FAILED_MS: Final = 1_700_000_000_500
_USERS: Final[Headers] = [
    ("trace", b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
    ("twice", b"1"),
    ("nothing", None),
    ("twice", b"2"),
    ("bytes", b"\x00\xff\xfe"),
    ("TAGS", "Löwe".encode()),
]


def as_text(headers: Headers) -> list[list[str | None]]:
    """Values as text, one character for each byte."""
    return [[name, None if value is None else value.decode("latin-1")] for name, value in headers]


def as_headers(text: list[list[str | None]]) -> list[Header]:
    """The headers that `as_text` wrote down."""
    return [(str(name), None if value is None else value.encode("latin-1")) for name, value in text]


def _known(key: bytes, value: bytes) -> dict[str, str]:
    return {"key": key.decode("latin-1"), "value": value.decode("latin-1")}


def _state(state: DeadLetterState) -> dict[str, str]:
    key = DeadLetterKey(_NAMES.dead_letter("a group/ü"), 0, 7, 1_700_000_000_500)
    return {"key": str(key), "value": encode_state(state)}


def _job() -> dict[str, dict[str, str]]:
    """The three records of a job, and one that was picked and edited."""
    topic, topic_id = _NAMES.dead_letter("a group/ü"), "TbaGuFuzQ_WTDt4WsMTGAQ"
    wanted = DeadLetterFilter(
        text="timeout", since_ms=1_700_000_000_000, state="OPEN", label="Löwe", label_rules={"L": "Löwe"}
    )
    by_filter = JobSpec(
        *("resend", "a group/ü", 1_700_000_000_000, "alice", "the gateway is back", topic, topic_id),
        spans={0: (7, 100)},
        wanted=wanted,
        count=42,
        rate=50,
    )
    edit = LetterEdit(b"\x00\xff", {"fixed-by": "alice", "user": None})
    picked = JobSpec(
        *("resend", "a group/ü", 1_700_000_000_000, "alice", "", topic, topic_id),
        spans={0: (7, 8)},
        records={0: [7]},
        count=1,
        target="origin",
        edit=edit,
    )
    events = [JobEvent(1_700_000_001_000, "bob", "pause", "errors"), JobEvent(1_700_000_002_000, "bob", "run")]
    progress = JobProgress(
        "host/1-abc", {0: 57}, {"sent": 40, "capped": 1}, {"capped": ["0/9: as often as is allowed"]}
    )
    return {
        "JOBS: a filter": _known(spec_key("resend-1"), encode_spec(by_filter)),
        "JOBS: a record": _known(spec_key("resend-2"), encode_spec(picked)),
        "JOBS: wishes": _known(wish_key("resend-1"), encode_wish(events)),
        "JOBS: progress": _known(progress_key("resend-1"), encode_job_progress(progress)),
    }


def written_today() -> dict[str, Any]:
    """By what it is: a topic and its headers, or a text."""
    group = "a group/ü"
    first = SendBackRequest(group, _USERS, Stored.first_copy(Position("flights", 3, 42), 1_700_000_000_123))
    once = _direct(first, real_qid=1)
    again = SendBackRequest(
        group,
        once.headers,
        Stored.of_retry(once.headers, Position(_NAMES.retry(group), 1, 7), 1_700_000_010_456),
        delay_level=18,
        max_reconsume_times=20,
    )
    cause = Cause("no connection", "builtins.ConnectionError", "Traceback …")
    exhausted = SendBackRequest(
        group,
        once.headers,
        Stored.of_retry(once.headers, Position(_NAMES.retry(group), 1, 7), 1_700_000_010_456),
        delay_level=-1,
        cause=cause,
    )
    timer: Headers = [("REAL_TOPIC", b"orders.eu"), ("TIMER_DELAY_MS", b"5400000"), ("UNIQ_KEY", b"k")]
    _, lane, delayed = delayed_copy(timer, Position(_NAMES.send_back, 0, 9), 1_700_000_000_000, _TABLE, _NAMES)
    kept = quarantine_headers(_USERS, "because", Position(lane, 0, 5), 1_700_000_000_789)
    return {
        "first send-back": _record(once),
        "second send-back": _record(_direct(again)),
        "dead letter": _record(_direct(exhausted)),
        "inbox": _record(inbox_copy(SendBackRequest(group, _USERS, first.stored, 5, 3, cause), _NAMES, _FAILED_MS)),
        "DEAD_LETTERS: sent again": _state(DeadLetterState("RESENT", 1_700_000_000_000, "alice", job="dlq-1")),
        "DEAD_LETTERS: resolved": _state(DeadLetterState("RESOLVED", 1_700_000_000_000, "bob", "no such flight")),
        "DEAD_LETTERS: superseded": _state(DeadLetterState("SUPERSEDED", 1_700_000_000_000, "bob", newer="0/9")),
        **_job(),
        "WITHDRAWN: an id": _known(*known_withdrawal(withdrawal_id("my-id-1"), 1_700_005_400_000)),
        "WITHDRAWN: a position": _known(*PositionInCancel(0, "TbaGuFuzQ_WTDt4WsMTGAQ", 42).encode()),
        "delayed message": {"topic": lane, "headers": as_text(delayed)},
        "delayed message on its next lane": {"topic": lane, "headers": as_text(rolled(delayed))},
        "quarantine": {"topic": _NAMES.quarantine, "headers": as_text(kept)},
        "GROUPS: a group": SubscriptionGroupConfig(group_name=group, retry_max_times=3, retry_queue_nums=4).to_json(),
        "GROUPS: a group with its own policy": SubscriptionGroupConfig(
            group_name="g", group_retry_policy={"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": [1000, 5000]}}
        ).to_json(),
        "GROUPS: a paused group": SubscriptionGroupConfig(group_name="g", retry_paused=True).to_json(),
        "GROUPS: %SYS%": SystemConfig().to_json(),
        "GROUPS: %SYS% with topic settings": SystemConfig(
            topic_settings=PublishedTopicSettings(
                max_message_bytes=6_000_000, retention_days=30, replication_factor=2, bulk_partitions=3
            )
        ).to_json(),
        "GROUPS: %SYS%.allowedRealTopics": encode_allowed([r"orders\..*", "bezahlt-ü"]),
        "metadata of DELAY.0s": encode_done(100, [101, 109, 130]),
        "metadata of a consumer": encode_progress(100, [102, 117], {100: 2, 105: 1}),
        "POSITIONS": [
            position_key(_NAMES.delay(10_000), 3),
            encode_position(StoredPosition(100, "apart1:AQ==", "6QmKpxVzQnW4ZJ1TqGhX0g", "reconsume.scheduler-one")),
        ],
    }


def _direct(request: SendBackRequest, real_qid: int = 0) -> SendBackCopy:
    return send_back_copy(request, _NAMES, _TABLE, real_qid=real_qid, failed_ms=_FAILED_MS)


def _record(copy: SendBackCopy) -> dict[str, Any]:
    return {"topic": copy.topic, "headers": as_text(copy.headers)}
