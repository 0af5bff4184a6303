"""The API's views of groups, and the creation of their retry topics."""

from __future__ import annotations

import shlex
from collections.abc import Callable

from reconsume.bridge.groups.groups import Groups, SubscriptionGroupConfig
from reconsume.bridge.kafka.admin import KafkaAdmin
from reconsume.bridge.topics.topics import TopicMaker
from reconsume.delay_levels.errors import IllegalName
from reconsume.delay_levels.wire.names import check_group
from reconsume.sidecar.api.models import GroupView
from reconsume.sidecar.problems import Problem
from reconsume.sidecar.settings import ProcessSettings

_PATIENCE_SECONDS = 4.0
"""A retry topic that cannot be created at the moment must not delay the other groups for long."""
_FOR_THE_RETRY_TOPIC = {"auto.offset.reset": "earliest", "isolation.level": "read_committed"}


class GroupViews:
    """Views of groups. Safe to use from several threads; `view` and `prepare` ask Kafka and block.

    Args:
        settings: the settings of the process.
        groups: the groups as known now.
    """

    def __init__(self, settings: ProcessSettings, groups: Callable[[], Groups]) -> None:
        self._names = settings.names
        self._groups = groups
        self._served = frozenset(settings.sidecar.groups)
        self._admin = KafkaAdmin(settings.client_settings(), "reconsume-sidecar", patience=_PATIENCE_SECONDS)
        self._maker = TopicMaker(self._admin, self._names, settings.topics, groups)

    def config_of(self, group: str) -> SubscriptionGroupConfig:
        """The group's configuration.

        Raises:
            Problem: 404, this sidecar does not serve the group, or the name is illegal; 403, the group may not consume.
            SubscriptionGroupNotExist: the group must be registered first.
        """
        try:
            check_group(group)
            self._names.retry(group)
            self._names.dead_letter(group)
        except IllegalName as error:
            raise Problem("unknown-group", str(error)) from None
        if self._served and group not in self._served:
            raise Problem(
                "unknown-group",
                f"this sidecar serves {', '.join(sorted(self._served))} and not group {group!r}; start it with "
                f"--group {shlex.quote(group)} too",
            )
        config = self._groups().find(group)
        if not config.consume_enable:
            raise Problem(
                "consume-disabled",
                f"group {group!r} may not consume: its consumeEnable is false in topic {self._names.groups}; "
                f"reconsume groups set {shlex.quote(group)} --consume-enable",
            )
        return config

    def view(self, group: str) -> GroupView:
        """Return the view of a group for its consumers.

        Raises:
            Problem: as `config_of`.
            KafkaNotReachable: no broker answers.
        """
        config = self.config_of(group)
        topic = self._names.retry(group)
        return GroupView(
            group=group,
            retry_topic=topic,
            retry_topic_exists=topic in self._admin.partitions([topic]),
            dead_letter_topic=self._names.dead_letter(group),
            retry_max_times=config.retry_max_times,
            retry_queue_nums=config.retry_queue_nums,
            consume_enable=config.consume_enable,
            waits=config.waits(self._groups().table),
            consumer_settings=dict(_FOR_THE_RETRY_TOPIC),
        )

    def prepare(self, group: str) -> GroupView:
        """Create the retry topic if it is missing and wanted: consumers must find it before the first retry.

        Raises:
            Problem: as `config_of`.
            KafkaNotReachable: no broker answers.
            KafkaRefused: the right to create topics is missing; the scheduler then creates it for the first retry.
        """
        config = self.config_of(group)
        topic = self._names.retry(group)
        if config.retry_queue_nums > 0 and topic not in self._admin.partitions([topic]):
            self._maker.make(self._maker.retry_topic(group, self._groups()))
        return self.view(group)
