"""What waits is listed; a delayed message is withdrawn by the place where it stands, a retry is not."""

from __future__ import annotations

import pytest

from reconsume.bridge.groups.groups import SystemConfig
from reconsume.bridge.groups.groups_store import write_system
from reconsume.delay_levels.errors import IllegalSetting
from reconsume.operations.lives.delayed_messages import cancel_delayed, deliver_now
from reconsume.operations.waiting import list_waiting
from tests.integration.installation import LEVELS, Installation, scheduler, settings_for
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.kafka]


def test_what_waits_is_listed_and_a_delayed_message_is_withdrawn_where_it_stands(bootstrap_servers: str) -> None:
    settings = settings_for(bootstrap_servers)
    one = Installation(settings.model_copy(update={"allowed_real_topics": ["orders-.*"]}))
    one.make_topics()
    write_system(one.cluster, SystemConfig(message_delay_level=LEVELS))
    orders, group, lane = one.unique("orders"), one.name("departures"), settings.names.delay(2_000)
    one.admin.create(orders, 1, -1, {})
    for name in (b"first", b"second"):
        one.produce(lane, name, headers=[("REAL_TOPIC", orders.encode()), ("UNIQ_KEY", name)])
    one.produce(lane, b"nameless", headers=[("REAL_TOPIC", orders.encode())])
    retry = [("REAL_TOPIC", f"%RETRY%{group}".encode()), ("ORIGIN_MESSAGE_ID", b"flights/0/1"), ("DELAY", b"4")]
    one.produce(lane, b"retry", headers=retry)

    found = list_waiting(one.cluster)
    shown = [(one.kind, one.target, one.uniq_key or one.message_id, one.level) for one in found.records]
    assert sorted(shown, key=str) == [
        *(("delayed message", orders, name, None) for name in ("first", "second", None)),
        ("retry", group, "flights/0/1", 4),
    ]
    assert found.is_whole
    assert all(record.due_ms == record.stored_ms + 2_000 for record in found.records)
    assert [record.kind for record in list_waiting(one.cluster, group=group).records] == ["retry"]
    assert len(list_waiting(one.cluster, topic=orders, limit=1).records) == 1

    with pytest.raises(IllegalSetting, match="a failed message is never dropped"):
        cancel_delayed(one.cluster, [f"{lane}/0/0", f"{lane}/0/3"])
    with pytest.raises(IllegalSetting, match="has no UNIQ_KEY"):
        cancel_delayed(one.cluster, [f"{lane}/0/2"])
    cancel_delayed(one.cluster, [f"{lane}/0/0"])
    with pytest.raises(IllegalSetting, match="withdrawn or delivered early already"):
        cancel_delayed(one.cluster, [f"{lane}/0/0"])
    with scheduler(one.settings):
        wait_until(lambda: len(one.retries(group)) == 1, "the retry, which stands last")
        wait_until(lambda: one.committed(settings.names.scheduler_group, lane) == 4, "the commit")
    assert sorted(record.value or b"" for record in one.read(orders)) == [b"nameless", b"second"]
    assert list_waiting(one.cluster, group=group).records == []
    with pytest.raises(IllegalSetting, match="no longer waits"):
        cancel_delayed(one.cluster, [f"{lane}/0/1"])
    with pytest.raises(IllegalSetting, match=r"no record is visible at .*/0/99; .*transaction"):
        cancel_delayed(one.cluster, [f"{lane}/0/99"])


def test_a_message_that_was_delivered_early_is_not_called_withdrawn(bootstrap_servers: str) -> None:
    settings = settings_for(bootstrap_servers)
    one = Installation(settings.model_copy(update={"allowed_real_topics": ["orders-.*"]}))
    one.make_topics()
    orders, lane = one.unique("orders"), settings.names.delay(3_600_000)
    one.produce(lane, b"pay", headers=[("REAL_TOPIC", orders.encode()), ("UNIQ_KEY", b"invoice")])
    deliver_now(one.cluster, [f"{lane}/0/0"])
    with pytest.raises(IllegalSetting, match="withdrawn or delivered early already"):
        cancel_delayed(one.cluster, [f"{lane}/0/0"])
