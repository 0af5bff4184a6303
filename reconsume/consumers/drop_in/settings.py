"""The checked settings of a drop-in consumer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from reconsume.consumers.group_settings import GroupSettings, checked_conf, is_cooperative, is_off
from reconsume.consumers.listeners.dead_letter_on import ExceptionClasses, exception_classes
from reconsume.delay_levels.errors import IllegalSetting
from reconsume.delay_levels.foreign_values import check_range, check_types
from reconsume.delay_levels.rules.levels import DelayLevels
from reconsume.delay_levels.wire.names import TopicNames

_BEGINNING: Final = ("earliest", "beginning", "smallest")
_HIGHEST: Final = 2**31 - 1


@dataclass(frozen=True, kw_only=True)
class DropInSettings(GroupSettings):
    """The settings of a drop-in consumer.

    Attributes:
        starts_at_beginning: whether `auto.offset.reset` starts all topics at their beginning.
        cooperative: whether assignments are incremental.
        stores_offsets: whether librdkafka stores the offset of each record that it returns.
        dead_letter_on: causes that are not worth a retry.
    """

    starts_at_beginning: bool
    cooperative: bool
    stores_offsets: bool
    dead_letter_on: ExceptionClasses

    @classmethod
    def of(cls, args: Sequence[Any], kwargs: Mapping[str, Any], ours: Mapping[str, Any]) -> Self:
        """Merge the arguments as confluent-kafka does: keywords win, then `default.topic.config`.

        Args:
            args: positional arguments of a consumer.
            kwargs: keyword arguments of a consumer.
            ours: keyword arguments that confluent-kafka does not have.

        Raises:
            IllegalSetting: an invalid setting; the message names it and the allowed values.
            TypeError: more than one dictionary, or none.
            ValueError: `group.id` is missing.
        """
        check_types(ours, exactly_once=bool)
        exactly_once, maximum, table = ours["exactly_once"], ours["max_reconsume_times"], ours["delay_levels"]
        conf = checked_conf(_merged(args, kwargs))
        if "group.id" not in conf:
            raise ValueError("Failed to create consumer: group.id must be set")
        if str(conf.get("isolation.level", "read_committed")) != "read_committed":
            raise IllegalSetting("isolation.level must be read_committed: retries are delivered in transactions")
        if exactly_once and not is_off(conf.get("enable.auto.commit", True)):
            raise IllegalSetting(
                "exactly_once needs enable.auto.commit False: an automatic commit before a send-back would lose the "
                "message; commit successful messages yourself"
            )
        if maximum is not None:
            check_range("max_reconsume_times", maximum, 0, _HIGHEST)
        # Finds new topics within 10 s; librdkafka's own refresh takes 5 minutes.
        conf.setdefault("topic.metadata.refresh.interval.ms", 10_000)
        names, group = TopicNames(ours["topic_prefix"]), str(conf["group.id"])
        names.retry(group)
        return cls(
            conf=conf,
            group=group,
            names=names,
            max_reconsume_times=maximum,
            exactly_once=exactly_once,
            own_table=None if table is None else DelayLevels.parse(table),
            starts_at_beginning=str(conf.get("auto.offset.reset", "latest")) in _BEGINNING,
            cooperative=is_cooperative(conf),
            stores_offsets=not is_off(conf.get("enable.auto.offset.store", True)),
            dead_letter_on=exception_classes(ours["dead_letter_on"]),
        )


def _merged(args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    if len(args) > 1 or (args and not isinstance(args[0], dict)):
        raise TypeError("expected configuration dict")
    conf = dict(args[0]) if args else {}
    conf.update(kwargs)
    conf.update(conf.pop("default.topic.config", None) or {})
    return conf
