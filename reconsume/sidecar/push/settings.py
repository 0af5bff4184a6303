"""The settings of one push subscription."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final, Self
from urllib.parse import SplitResult, urlsplit

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema, field_validator, model_validator

from reconsume.bridge.http.listening import is_loopback
from reconsume.consumers.consume_settings import MessageModel
from reconsume.consumers.partitions.consume_from import ConsumeFromWhere

_ROUTES: Final = {
    "native": "/events/{topic}",
    "dapr": "/events/{pubsub}/{topic}",
    "knative": "",
    "rocketmq-batch": "/consumeMessage",
}

_TEXT: Final = {"type": "string"}
_TOPICS: Final = {"anyOf": [{"type": "object", "additionalProperties": _TEXT}, {"type": "array", "items": _TEXT}]}
ErrorTypes = tuple[Annotated[str, Field(min_length=1)], ...]
"""Names of error types, such as `java.lang.IllegalArgumentException`."""


def _port_of(url: SplitResult) -> int | None:
    """Return the port; None without one, 0 for an illegal one."""
    try:
        return url.port
    except ValueError:
        return 0


class Profile(StrEnum):
    """The contract with the app: the form of requests and the meaning of answers."""

    NATIVE = "native"
    DAPR = "dapr"
    KNATIVE = "knative"
    ROCKETMQ_BATCH = "rocketmq-batch"


class Order(StrEnum):
    """Which messages are delivered one after the other."""

    NONE = "none"
    KEY = "key"
    PARTITION = "partition"


class Drop(StrEnum):
    """The action for a message that the app answers with DROP."""

    DLQ = "dlq"
    DISCARD = "discard"


class PushSettings(BaseModel):
    """One subscription: the messages, the app, and the way of delivery.

    Attributes:
        group: the consumer group.
        topics: a list, or a table of topic and tags such as `"TagA || TagB"`; may be empty with `dapr`, where the app
            declares its subscriptions.
        url: the URL of the app, without a route (with `knative`: the target itself).
        consume_from_where: where a partition without a committed offset starts; None uses `auto.offset.reset` of
            `kafka`, else the last offset. Topics and partitions that appear later are read from their beginning.
        unix_socket: a socket where the app listens; the URL then only sets the `Host` header.
        allow_remote_app: allow a URL that is not a loopback address.
        profile: the contract with the app.
        route: the app's path; `{topic}` and `{pubsub}` are filled in. None uses the profile's own.
        order: which messages are delivered one after the other.
        max_in_flight: maximum of simultaneous deliveries.
        consume_timeout_seconds: time for an answer; None means 30, with `rocketmq-batch` 900 (RocketMQ: EX-01).
        max_reconsume_times: how often a message may be sent back; None uses the group's maximum.
        dead_letter_on: error types that are not worth a retry: an answer that names such a type and requests neither a
            level nor a time makes a dead letter.
        exactly_once: one transaction sends a message back and commits its offset, so no crash sends it back twice.
        message_model: BROADCASTING delivers all messages to the app of each sidecar; failed ones are logged and dropped
            (RocketMQ: BP-01).
        offset_store: the directory for the offsets of a broadcasting subscription, `~/.reconsume/offsets` by default.
        missing_route_grace_seconds: how long a message is held while a `native` app answers 404.
        drop: the meaning of DROP.
        consume_message_batch_max_size: messages in one request, `rocketmq-batch` only.
        pubsub: with `dapr`: the component that the app's subscriptions must name.
        probe_route: a path that gets a GET every 5 s; nothing is delivered while it fails. None disables the probe.
        token_file: a token for each request, as bearer token or `dapr-api-token`; read again when the file changes.
        ca_file: the authority of the app's certificate; None uses the system's.
        cert_file: the sidecar's own certificate, for mTLS.
        key_file: its key.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    group: Annotated[str, Field(min_length=1)]
    topics: Annotated[dict[str, str], WithJsonSchema(_TOPICS)] = {}
    consume_from_where: ConsumeFromWhere | None = None
    url: str = "http://127.0.0.1:8000"
    unix_socket: Path | None = None
    allow_remote_app: bool = False
    profile: Profile = Profile.NATIVE
    route: str | None = None
    order: Order = Order.KEY
    max_in_flight: Annotated[int, Field(ge=1, le=1_000)] = 32
    consume_timeout_seconds: Annotated[float, Field(gt=0, le=86_400)] | None = None
    max_reconsume_times: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    dead_letter_on: ErrorTypes = ()
    exactly_once: bool = False
    message_model: MessageModel = MessageModel.CLUSTERING
    offset_store: Path | None = None
    missing_route_grace_seconds: Annotated[float, Field(ge=0, le=86_400)] = 60
    drop: Drop = Drop.DLQ
    consume_message_batch_max_size: Annotated[int, Field(ge=1, le=1_024)] = 1
    pubsub: str = "pubsub"
    probe_route: str | None = None
    token_file: Path | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None

    @field_validator("topics", mode="before")
    @classmethod
    def _topics_from_a_list(cls, value: Any) -> Any:
        if isinstance(value, str):
            raise ValueError(f"topics are a list or a table; write [{value!r}]")  # noqa: TRY004 - pydantic takes no TypeError
        return dict.fromkeys(value, "*") if isinstance(value, list | tuple) else value

    @field_validator("route", "probe_route")
    @classmethod
    def _route_is_a_path(cls, value: str | None) -> str | None:
        if value is not None:
            try:
                filled = value.format(topic="t", pubsub="p")
            except (KeyError, IndexError, ValueError):
                raise ValueError(f"{value!r}: only {{topic}} and {{pubsub}} may stand in braces") from None
            if not filled.startswith("/") or not filled.isascii() or any(one <= " " for one in filled):
                raise ValueError(f"{value!r} must be a path such as /events/{{topic}}, percent-encoded where needed")
        return value

    @model_validator(mode="after")
    def _app_can_be_reached(self) -> Self:
        # An illegal URL may hold a password, and its error is logged.
        url = "url, which must not hold a password (use token_file)," if "@" in self.url else f"url {self.url!r}"
        try:
            parts = urlsplit(self.url)
        except ValueError:
            raise ValueError(f"{url} must be http:// or https:// with a host") from None
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ValueError(f"{url} must be http:// or https:// with a host, without query and fragment")
        if _port_of(parts) == 0:
            raise ValueError(f"{url} must have a port from 1 to 65535")
        parts.netloc.encode("idna")  # raises ValueError for an illegal host name
        if parts.username is not None or parts.password is not None:
            raise ValueError("url must not hold a password; use token_file")
        is_here = is_loopback(parts.hostname) or parts.hostname.endswith(".localhost")
        if self.unix_socket is None and not self.allow_remote_app and not is_here:
            raise ValueError(
                f"url {self.url!r} is not loopback: messages would leave this host; allow_remote_app = true allows it"
            )
        files = [one for one in (self.ca_file, self.cert_file, self.key_file) if one is not None]
        if files and parts.scheme != "https":
            raise ValueError("ca_file, cert_file and key_file are for https:// URLs")
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("cert_file and key_file go together")
        return self

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        if not self.topics and self.profile is not Profile.DAPR:
            raise ValueError("topics: name at least one; only a dapr app names its topics itself")
        if self.consume_message_batch_max_size > 1 and self.profile is not Profile.ROCKETMQ_BATCH:
            raise ValueError("consume_message_batch_max_size is for profile rocketmq-batch")
        if self.consume_message_batch_max_size > 1 and "{topic" in self.route_template:
            raise ValueError(
                f"route {self.route!r} must not contain {{topic}}: a batch of retries may hold several topics; use a "
                "fixed route (each event has its topic in reconsumetopic), or consume_message_batch_max_size = 1"
            )
        if self.message_model is MessageModel.BROADCASTING and self.exactly_once:
            raise ValueError("exactly_once is for message_model CLUSTERING: a broadcast message is never sent back")
        if self.message_model is MessageModel.BROADCASTING and self.dead_letter_on:
            raise ValueError("dead_letter_on is for message_model CLUSTERING: a broadcast message is never sent back")
        if self.message_model is MessageModel.CLUSTERING and self.offset_store is not None:
            raise ValueError("offset_store is for message_model BROADCASTING: others have their offsets in Kafka")
        return self

    @field_validator("consume_from_where")
    @classmethod
    def _start_has_no_moment(cls, value: ConsumeFromWhere | None) -> ConsumeFromWhere | None:
        if value is ConsumeFromWhere.CONSUME_FROM_TIMESTAMP:
            raise ValueError("use CONSUME_FROM_FIRST_OFFSET or CONSUME_FROM_LAST_OFFSET")
        return value

    @property
    def timeout(self) -> timedelta:
        """The time for an answer."""
        if self.consume_timeout_seconds is not None:
            return timedelta(seconds=self.consume_timeout_seconds)
        return timedelta(minutes=15) if self.profile is Profile.ROCKETMQ_BATCH else timedelta(seconds=30)

    @property
    def route_template(self) -> str:
        """The route in force; a Dapr app may declare others."""
        return _ROUTES[self.profile] if self.route is None else self.route
