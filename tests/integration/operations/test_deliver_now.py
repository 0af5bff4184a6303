"""A delayed message is delivered before its time, once, whatever dies and whoever else does the same."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections import Counter

import pytest

from reconsume.delay_levels.errors import IllegalSetting, ReconsumeError
from reconsume.operations.lives import delayed_messages as early
from reconsume.operations.lives.delayed_messages import deliver_now
from reconsume.operations.waiting import list_waiting
from tests.integration.consumers.test_delay_producer import allowing, orders
from tests.integration.installation import Installation, scheduler
from tests.support.waiting import PATIENCE, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.more, pytest.mark.early(1)]

SOON_SECONDS = 45
"""Long enough for everything before it, on a slow machine."""
KILLED = """
import os, signal, sys
from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.process.settings import Settings
from reconsume.operations.lives import delayed_messages
delayed_messages._headers = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
delayed_messages.deliver_now(Cluster(Settings(bootstrap_servers=sys.argv[1], topic_prefix=sys.argv[2])), [sys.argv[3]])
"""


def wait_in_lane(one: Installation, topic: str, value: bytes, seconds: float, **headers: str) -> None:
    """A delayed message as a scheduler has put it into its last delay topic."""
    due = str(int((time.time() + seconds) * 1_000))
    given = {"REAL_TOPIC": topic, "TIMER_DELIVER_MS": due, "mine": "kept"} | headers
    one.produce(one.settings.names.delay(0), value, headers=[(name, text.encode()) for name, text in given.items()])


def place_of(one: Installation, uniq_key: str) -> str:
    return next(str(record.place) for record in list_waiting(one.cluster).records if record.uniq_key == uniq_key)


def test_each_message_is_delivered_once_and_at_once(bootstrap_servers: str) -> None:
    one = allowing(bootstrap_servers)
    topic = orders(one, "now")
    for key, seconds in (("killed", SOON_SECONDS), ("contended", SOON_SECONDS), ("tomorrow", 86_400)):
        wait_in_lane(one, topic, key.encode(), seconds, UNIQ_KEY=key)
    wait_in_lane(one, topic, b"last", SOON_SECONDS + 1)
    killed, contended, tomorrow = (place_of(one, key) for key in ("killed", "contended", "tomorrow"))

    command = [sys.executable, "-c", KILLED, bootstrap_servers, one.settings.topic_prefix, killed]
    assert subprocess.run(command, check=False, timeout=120).returncode == -signal.SIGKILL
    assert [str(found.place) for found in deliver_now(one.cluster, [killed])] == [killed]
    with pytest.raises(IllegalSetting, match="withdrawn or delivered early already"):
        deliver_now(one.cluster, [killed, tomorrow])

    assert sorted(at_once(one, contended)) == ["delivered", "refused"]
    deliver_now(one.cluster, [tomorrow])
    with scheduler(one.settings):
        wait_until(lambda: b"last" in values(one, topic), "the message that is due last", deadline=SOON_SECONDS + 120)
    assert values(one, topic) == Counter([b"killed", b"contended", b"tomorrow", b"last"])
    early = next(record for record in one.read(topic) if record.value == b"tomorrow")
    assert early["ORIGIN_UNIQ_KEY"] == "tomorrow"
    assert early["mine"] == "kept"
    assert early["UNIQ_KEY"] not in (None, "tomorrow")


def test_what_cannot_be_delivered_once_for_sure_is_refused(
    bootstrap_servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = allowing(bootstrap_servers)
    topic = orders(one, "refused")
    wait_in_lane(one, topic, b"soon", 5, UNIQ_KEY="soon")
    wait_in_lane(one, topic, b"nameless", 3_600)
    wait_in_lane(one, f"%RETRY%{one.name('g')}", b"retry", 3_600, UNIQ_KEY="retry")
    for record in list_waiting(one.cluster).records:
        with pytest.raises(IllegalSetting, match=r"due within|has no UNIQ_KEY|cannot be withdrawn"):
            deliver_now(one.cluster, [str(record.place)])
    wait_in_lane(one, topic, b"tomorrow", 86_400, UNIQ_KEY="tomorrow")
    monkeypatch.setattr(early, "_IN_TIME_MS", 86_400_000)
    with pytest.raises(IllegalSetting, match="Kafka was slow"):
        deliver_now(one.cluster, [place_of(one, "tomorrow")])
    assert list(one.read(one.settings.names.cancel)) == []
    monkeypatch.undo()
    assert len(deliver_now(one.cluster, [place_of(one, "tomorrow")])) == 1


def at_once(one: Installation, place: str) -> list[str]:
    """What two operators are told who do the same."""
    told: list[str] = []
    start = threading.Barrier(2)

    def run() -> None:
        start.wait(PATIENCE)
        try:
            deliver_now(Installation(one.settings).cluster, [place])
            told.append("delivered")
        except ReconsumeError:
            told.append("refused")

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    return told


def values(one: Installation, topic: str) -> Counter[bytes | None]:
    return Counter(record.value for record in one.read(topic))
