"""How old the oldest dead letter is that nobody has sent again: followed on a real Kafka, exported by the console."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from reconsume.bridge.kafka.cluster import Cluster
from reconsume.operations.dead_letters import read_page
from reconsume.operations.open_dead_letters import OpenDeadLettersFollower
from reconsume.operations.record_address import RecordAddress
from reconsume.operations.resend import resend
from tests.integration.installation import Installation, installation
from tests.integration.test_dlq import headers_of, with_dead_letters
from tests.support.consoles import console_settings, running_console
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kafka

SIX_DAYS_MS = 6 * 86_400_000


@pytest.fixture(scope="module")
def here(bootstrap_servers: str) -> Iterator[Installation]:
    with installation(bootstrap_servers) as one:
        yield one


def stored(here: Installation, group: str) -> dict[RecordAddress, int]:
    """When each dead letter of the group was stored."""
    return {one.place: one.stored_ms for one in read_page(here.cluster, group).records}


def delete_before(here: Installation, group: str, place: RecordAddress) -> None:
    """As `kafka-delete-records.sh` does."""
    topic = here.settings.names.dead_letter(group)
    admin = AdminClient(here.settings.client_settings())
    [deleted] = admin.delete_records([TopicPartition(topic, place.partition, place.offset)]).values()
    deleted.result(30)


def test_a_dead_letter_is_open_until_it_is_sent_again_or_deleted(here: Installation) -> None:
    group, other = with_dead_letters(here, 4), with_dead_letters(here, 1)
    told: dict[str, int] = {}

    def tell(oldest_ms: object) -> None:
        told.clear()
        told.update(oldest_ms)  # type: ignore[call-overload]

    follower = OpenDeadLettersFollower(here.cluster, tell)
    follower.look()
    at = stored(here, group)
    assert told[group] == at[RecordAddress(0, 0)]
    others = told[other]

    resend(here.cluster, group, [RecordAddress(0, 0)], replay_id="friday")
    follower.look()
    assert told[group] == at[RecordAddress(0, 1)]
    delete_before(here, group, RecordAddress(0, 2))
    follower.look()
    assert told[group] == at[RecordAddress(0, 2)]

    # It dies again, after it was sent again.
    resend(here.cluster, group, [RecordAddress(0, 2), RecordAddress(0, 3)], replay_id="saturday")
    headers = headers_of(group, 2, REPLAY_ID="saturday", REPLAY_TIMES="1")
    here.produce(here.settings.names.dead_letter(group), b"value-2", key=b"key-2", headers=headers)
    follower.look()
    assert told[group] == stored(here, group)[RecordAddress(0, 4)]
    assert told[other] == others

    fresh: dict[str, int] = {}
    OpenDeadLettersFollower(here.cluster, fresh.update).look()
    assert fresh == told, "one that starts later finds the same"
    late: dict[str, int] = {}
    six_days_on = Cluster(here.settings, lambda: told[group] + SIX_DAYS_MS + 1)
    OpenDeadLettersFollower(six_days_on, late.update).look()
    assert group not in late, "what was sent again so long ago is not known any more"


def test_a_console_exports_it(here: Installation) -> None:
    group = with_dead_letters(here, 1)
    [stored_ms] = stored(here, group).values()
    wanted = f'reconsume_oldest_open_dead_letter_timestamp_seconds{{group="{group}"}} {stored_ms / 1000!r}'
    with running_console(console_settings(here.settings)) as browser:
        wait_until(lambda: _has(browser.probe("/metrics").text, wanted), 60, wanted)


def _has(metrics: str, wanted: str) -> bool:
    name, _, value = wanted.rpartition(" ")
    found = [line.rpartition(" ")[2] for line in metrics.splitlines() if line.startswith(name)]
    return [float(one) for one in found] == [float(value)]
