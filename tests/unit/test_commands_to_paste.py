"""Commands in errors and findings stay one command if a name that users choose has spaces or `;`."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest

from reconsume.bridge.groups.groups import Groups, SubscriptionGroupConfig
from reconsume.bridge.writing.waiting_limit import WaitingLimit
from reconsume.cli.commands import groups as commands
from reconsume.consumers.sending.retry_topic import check_group_consumes
from reconsume.delay_levels.rules.send_back import Delayed
from reconsume.delay_levels.wire.names import TopicNames
from reconsume.delay_levels.wire.send_back_copy import Position, SendBackCopy, SendBackRequest, Stored
from reconsume.operations.doctor.installation import check_groups
from reconsume.operations.doctor.report import Report
from reconsume.sidecar.api.group_views import GroupViews

GROUP: Final = "black friday; rm -rf *"
NAMES: Final = TopicNames()


def registered(**config: Any) -> Groups:
    return Groups(by_name={GROUP: SubscriptionGroupConfig(group_name=GROUP, **config)})


def view(groups: Groups, *served: str) -> object:
    fields = SimpleNamespace(_names=NAMES, _served=frozenset(served), _groups=lambda: groups)
    return GroupViews.config_of(cast("Any", fields), GROUP)


def send_back_above_the_limit() -> None:
    limit = WaitingLimit({}, NAMES, lambda: registered(max_waiting=1), "test")
    request = SendBackRequest(GROUP, [], Stored.first_copy(Position("flights", 3, 42), 0))
    limit.check(request, SendBackCopy(NAMES.delay(10_000), [], Delayed(3, 10_000, 1)), beside=1)


ERRORS: Final[Mapping[str, Callable[[], object]]] = {
    "unknown": lambda: Groups.with_record(Groups(), b"%SYS%", b'{"autoCreateSubscriptionGroup": false}').find(GROUP),
    "consumer": lambda: check_group_consumes(GROUP, registered(consume_enable=False)),
    "broadcasting": lambda: check_group_consumes(GROUP, registered(consume_broadcast_enable=False), broadcasting=True),
    "not served": lambda: view(Groups(), "others"),
    "sidecar": lambda: view(registered(consume_enable=False)),
    "limit": send_back_above_the_limit,
}


def words(text: str) -> list[str]:
    """The words of the command in a text, which begins with `reconsume` or an option."""
    return shlex.split(text[max(text.rfind("reconsume groups"), text.rfind("--group ")) :])


@pytest.mark.parametrize("name", ERRORS)
def test_the_command_in_an_error_has_the_group_as_one_word(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WaitingLimit, "_ask", lambda _: None)
    with pytest.raises(Exception, match="group") as raised:
        ERRORS[name]()
    assert GROUP in words(str(raised.value))


def test_the_remedies_of_the_doctor_have_the_group_as_one_word() -> None:
    report = Report()
    check_groups(registered(retry_queue_nums=0, consume_enable=False, retry_paused=True), report)
    check_groups(Groups().with_record(GROUP.encode(), b"{"), report)
    assert [words(one.mend)[3] for one in report.findings] == [GROUP] * 4


def test_the_doctor_names_who_mends_a_record_of_the_schedulers() -> None:
    report = Report()
    check_groups(Groups().with_record(b"%SYS%", b"{").with_record(b"%SYS%.allowedRealTopics", b"{"), report)
    all_groups, schedulers = (one.mend for one in report.findings)
    assert all_groups == "reconsume groups set --delay-levels TABLE"
    assert schedulers == "any scheduler that runs writes it anew"


def test_the_command_that_deletes_a_misspelled_group_has_it_as_one_word(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = registered().by_name[GROUP]
    monkeypatch.setattr(commands, "change_group", lambda *_: (Groups(), config, []))
    commands._set_group(cast("Any", SimpleNamespace(cluster=None, as_json=False)), GROUP, {})
    assert words(capsys.readouterr().out.partition("\n")[0])[3] == GROUP


def test_the_command_that_creates_a_topic_has_it_as_one_word() -> None:
    assert shlex.quote("a;b") in NAMES.remedy_if_missing("a;b")
