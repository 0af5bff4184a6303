"""A drop-in whose messages the brokers refuse to take back."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from reconsume.delay_levels.errors import SendBackFailed
from tests.integration.drop_in.poll_loop import Reading, drop_in
from tests.integration.installation import installation
from tests.support.waiting import PATIENCE

pytestmark = [pytest.mark.kafka, pytest.mark.early(3)]

TOO_LARGE = b"x" * 3_000_000


@pytest.mark.parametrize(("exactly_once", "failed", "waiting"), [(False, (1, 3), [b"c"]), (True, (1, 2, 3), [])])
def test_the_error_has_the_indexes_in_the_list_that_the_program_gave(
    bootstrap_servers: str, exactly_once: bool, failed: tuple[int, ...], waiting: list[bytes]
) -> None:
    with installation(bootstrap_servers) as here:
        group, topic = here.name("refused"), here.name("large")
        here.admin.create(topic, 1, -1, {"max.message.bytes": "4000000"})
        producer = Producer(here.settings.client_settings() | {"message.max.bytes": 4_000_000})
        for value in (b"a", TOO_LARGE, b"c", TOO_LARGE):
            producer.produce(topic, value)
        assert producer.flush(PATIENCE) == 0
        producer.close()
        with drop_in(here, group, conf={"enable.auto.commit": False}, exactly_once=exactly_once) as consumer:
            consumer.subscribe([topic])
            messages = Reading(consumer).until(4)
            with pytest.raises(SendBackFailed, match="MSG_SIZE_TOO_LARGE") as refused:
                consumer.send_message_back(messages, ack_index=0)
        assert refused.value.failed == failed
        assert [one.value for one in here.waiting(1_000, group)] == waiting
