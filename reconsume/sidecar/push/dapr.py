"""The subscriptions that an app of Dapr declares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from reconsume.delay_levels.errors import IllegalSetting
from reconsume.sidecar.push.answers import AppAnswer, NoAnswer
from reconsume.sidecar.push.http_client import AppClient
from reconsume.sidecar.push.requests.cloud_events import parsed
from reconsume.sidecar.push.requests.requests import AppRequest, DaprRoute
from reconsume.sidecar.push.settings import PushSettings

_SECONDS: Final = 5.0


async def asked_routes(settings: PushSettings) -> dict[str, DaprRoute]:
    """Return the routes that the app of a subscription declares.

    Raises:
        ConnectionError: the app is unreachable now.
        IllegalSetting: as `routes_of`, or the app subscribes to nothing.
    """
    client = AppClient(settings)
    try:
        answer = await client.send("GET", AppRequest("/dapr/subscribe", [], b""), _SECONDS)
    finally:
        await client.aclose()
    if isinstance(answer, NoAnswer):
        raise ConnectionError(answer.reason)
    if answer.status >= 500:  # noqa: PLR2004 - as HTTP numbers its answers
        raise ConnectionError(f"the app answered {answer.status}")
    routes = routes_of(answer, settings.pubsub)
    if not routes and not settings.topics:
        raise IllegalSetting(
            f"the app has no subscription for the pubsub {settings.pubsub!r}, and topics is empty; set one of them"
        )
    return routes


def routes_of(answer: AppAnswer, pubsub: str) -> dict[str, DaprRoute]:
    """Return the subscriptions of one component, by topic; an app without `/dapr/subscribe` has none.

    Raises:
        IllegalSetting: the app requests an unsupported feature: routing by content, bulk delivery, a topic twice.
    """
    if answer.status == 404:  # noqa: PLR2004 - as HTTP numbers its answers
        return {}
    said = parsed(answer.body)
    if answer.status != 200 or not isinstance(said, list):  # noqa: PLR2004
        raise IllegalSetting(
            f"GET /dapr/subscribe: the app answered {answer.status}; it must answer 200 with a JSON list"
        )
    routes: dict[str, DaprRoute] = {}
    for one in said:
        if not isinstance(one, Mapping) or one.get("pubsubname", pubsub) != pubsub:
            continue
        route = _route(one)
        if route.topic in routes:
            raise IllegalSetting(f"GET /dapr/subscribe: topic {route.topic!r} appears twice; give it one route")
        routes[route.topic] = route
    return routes


def _route(one: Mapping[str, Any]) -> DaprRoute:
    topic = one.get("topic")
    if not isinstance(topic, str) or not topic:
        raise IllegalSetting("GET /dapr/subscribe: a subscription has no topic; set its field topic")
    routes, bulk, metadata = (_table(one.get(name)) for name in ("routes", "bulkSubscribe", "metadata"))
    if routes.get("rules"):
        raise IllegalSetting(
            f"GET /dapr/subscribe: topic {topic!r} has routes.rules, which are not supported: a message that matched "
            "another rule would reach the wrong route; use one route, and tell the messages apart in the app"
        )
    if bulk.get("enabled"):
        raise IllegalSetting(
            f"GET /dapr/subscribe: topic {topic!r} has bulkSubscribe, which is not supported; leave it out"
        )
    route = routes.get("default") or one.get("route")
    if not isinstance(route, str) or not route:
        raise IllegalSetting(f"GET /dapr/subscribe: topic {topic!r} has no route; set its field route")
    raw = str(metadata.get("rawPayload", "")).lower() == "true"
    return DaprRoute(topic, route if route.startswith("/") else f"/{route}", raw)


def _table(said: object) -> Mapping[str, Any]:
    return said if isinstance(said, Mapping) else {}
