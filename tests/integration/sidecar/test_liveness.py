"""When a sidecar asks for its restart: only where nothing else makes it go on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Consumer

from reconsume.cli.broker.ports import free_port
from reconsume.sidecar.settings import ProcessSettings
from tests.integration.installation import Installation, installation, settings_for
from tests.integration.push.push_app import app
from tests.integration.sidecars import call, running_sidecar, sidecar_settings
from tests.support.brokers.kafka import kafka_to_kill
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def here(bootstrap_servers: str) -> Iterator[Installation]:
    with installation(bootstrap_servers) as one:
        yield one


def pushing(here: Installation, group: str, topic: str, url: str, **kafka: Any) -> ProcessSettings:
    """The settings of a sidecar with one subscription."""
    settings = sidecar_settings(here.settings)
    subscription = {"group": group, "topics": [topic], "url": url}
    more = {"auto.offset.reset": "earliest", "heartbeat.interval.ms": "500"} | kafka
    return ProcessSettings(**settings.model_dump() | {"subscriptions": [subscription], "kafka": settings.kafka | more})


def test_a_consumer_that_was_fenced_off_makes_it_red(here: Installation) -> None:
    group, topic = here.name("fenced"), here.topic("fenced")
    here.produce(topic, b"m0")
    member = {"group.instance.id": "one", "session.timeout.ms": "10000"}
    with app(lambda _one, _before: {}) as one, running_sidecar(pushing(here, group, topic, one.url, **member)) as it:
        wait_until(lambda: one.times("m0"), "it delivers")
        assert it.probe("/livez").status == 200
        # The same strategy as its own, or the group would not take the other one.
        joins = {"group.id": group, "partition.assignment.strategy": "cooperative-sticky"}
        with closing(Consumer(here.settings.client_settings() | member | joins)) as other:
            other.subscribe([topic])

            def is_red() -> bool:
                other.poll(0.1)
                return it.probe("/livez").status == 503

            wait_until(is_red, "it is not alive")
        red = it.probe("/readyz?verbose")
        assert (red.status, "has ended" in red.body["checks"][f"push {group}"]) == (503, True)
        assert call(it.api, "GET", f"/v1/groups/{group}").status == 200, "send-backs are taken until the restart"


def test_a_consumer_that_cannot_begin_makes_it_red(bootstrap_servers: str) -> None:
    here = Installation(settings_for(bootstrap_servers))
    here.make_topics()
    here.write_groups(auto_create=False)
    topic = here.topic("unknown")
    with running_sidecar(pushing(here, "nobody", topic, "http://127.0.0.1:9"), ready=False) as it:
        wait_until(lambda: it.probe("/livez").status == 503, "it is not alive")
        assert "nobody" in it.probe("/readyz?verbose").body["checks"]["push nobody"]


@pytest.mark.long
def test_what_waits_is_alive() -> None:
    """For Kafka at the start, for an app that is down, for Kafka that goes away in the middle."""
    port = free_port()
    with kafka_to_kill() as kafka:
        here = Installation(settings_for(kafka.bootstrap_servers))
        here.make_topics()
        here.write_groups()
        group, topic = here.name("waits"), here.topic("waits")
        here.produce(topic, b"m0")
        kafka.kill()
        with running_sidecar(pushing(here, group, topic, f"http://127.0.0.1:{port}"), ready=False) as it:
            wait_until(lambda: it.probe("/readyz?verbose").body["checks"][f"push {group}"], "it tells of it")
            assert it.probe("/livez").status == 200
            kafka.start()
            wait_until(lambda: it.probe("/readyz").status == 200, "it is ready")
            down = f'reconsume_push_app_down_since_timestamp_seconds{{group="{group}"}} 1'
            wait_until(lambda: down in it.probe("/metrics").body.decode(), "the app is away")
            assert it.probe("/livez").status == 200
            kafka.kill()
            wait_until(lambda: it.probe("/readyz").status == 503, "Kafka is away")
            assert it.probe("/livez").status == 200
            kafka.start()
            with app(lambda _one, _before: {}, port=port) as one:
                wait_until(lambda: one.times("m0"), "it delivers")
            assert it.probe("/livez").status == 200
    assert set(one.times("m0")) == {0}
