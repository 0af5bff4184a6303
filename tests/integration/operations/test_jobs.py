"""Jobs on dead letters, on a real Kafka: each letter once, and what became of it."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from reconsume.bridge.groups.groups import SystemConfig
from reconsume.bridge.groups.groups_store import write_system
from reconsume.bridge.writing import transactions
from reconsume.cli.commands.dlq import resend_letters
from reconsume.cli.common import Here
from reconsume.delay_levels.errors import IllegalSetting, KafkaRefused, RecordNotFound
from reconsume.delay_levels.wire.jobs.job_records import DeadLetterFilter, JobEvent, LetterEdit, encode_wish
from reconsume.operations.dead_letter_index.causes import CauseLabels
from reconsume.operations.dead_letter_index.follower import DeadLetterIndex
from reconsume.operations.dead_letter_index.store import DeadLetterStore
from reconsume.operations.dead_letters import read_page
from reconsume.operations.jobs import records as records_module
from reconsume.operations.jobs import run as run_module
from reconsume.operations.jobs.records import JobsView
from reconsume.operations.jobs.runner import JobRunner
from reconsume.operations.jobs.service import (
    Job,
    JobDraft,
    cancel,
    create,
    list_jobs,
    pause,
    plan,
    resume,
    show,
)
from reconsume.operations.record_address import RecordAddress
from reconsume.operations.resolve import resolve
from tests.integration.installation import LEVELS, Installation, installation
from tests.integration.operations.test_dlq import headers_of, with_dead_letters
from tests.support.resends import resend
from tests.support.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.kafka

GO: threading.Event = threading.Event()
"""Never set."""


@pytest.fixture(scope="module")
def here(bootstrap_servers: str) -> Iterator[Installation]:
    with installation(bootstrap_servers) as one:
        yield one


def sent(here: Installation, group: str) -> Counter[str | None]:
    """What stands in `DELAY.0s` for a group, by message id: counted apart from what the job says."""
    found = here.read(here.settings.names.delay(0))
    return Counter(one["ORIGIN_MESSAGE_ID"] for one in found if one["REAL_TOPIC"] == f"%RETRY%{group}")


def once(count: int, start: int = 0) -> Counter[str]:
    return Counter(f"flights/0/{number}" for number in range(start, count))


def states(here: Installation, group: str, count: int) -> Counter[str]:
    records = read_page(here.cluster, group, limit=count).records
    return Counter(one.state.state if one.state else "OPEN" for one in records)


def done(here: Installation, job: Job) -> Job:
    return JobRunner(here.cluster).run_until_ended(job, GO)


def wait_until_let_go(here: Installation, job: Job) -> None:
    """Kafka acknowledges a commit before readers of committed records see all of it."""
    wait_until(lambda: not show(here.cluster, job.name).progress.runner, "the runner has let go")


def status(here: Installation, job: Job) -> str:
    return show(here.cluster, job.name).status(here.cluster.clock())


def test_a_job_sends_what_its_filter_took_when_it_was_created_each_once(here: Installation) -> None:
    group = with_dead_letters(here, 1_200, partitions=3)
    draft = JobDraft("resend", group, DeadLetterFilter(text="TIMEOUT"))
    found = plan(here.cluster, draft)
    assert (found.count, found.acted, found.statuses) == (600, 600, {"send": 600})
    assert [(one.value, one.number) for one in found.causes] == [("timeout", 600)]
    assert [one.number for one in found.origins] == [600]
    assert sum(one.number for one in found.hours) == 600
    job = create(here.cluster, draft, by="alice", why="the gateway is back", count=found.count)
    here.produce(here.settings.names.dead_letter(group), b"late", headers=headers_of(group, 1_201))
    assert status(here, job) == "QUEUED"
    ended = done(here, job)
    assert (ended.progress.ended, ended.progress.counts) == ("DONE", {"sent": 600})
    assert sent(here, group) == Counter(f"flights/0/{number}" for number in range(1, 1_200, 2))
    assert states(here, group, 1_300) == {"RESENT": 600, "OPEN": 601}
    page = read_page(here.cluster, group, DeadLetterFilter(message_id="flights/0/1"))
    [first] = [one for one in page.records if one.state]
    assert first.state is not None
    assert (first.state.by, first.state.job) == ("alice", job.name)
    assert [one.name for one in list_jobs(here.cluster, group)] == [job.name]


def test_each_letter_that_is_left_out_has_its_reason(here: Installation) -> None:
    group = with_dead_letters(here, 6)
    topic = here.settings.names.dead_letter(group)
    here.produce(topic, b"often", headers=headers_of(group, 100, REPLAY_TIMES="2"))
    here.produce(topic, b"newer", headers=headers_of(group, 5))
    resolve(here.cluster, group, [RecordAddress(0, 0)], by="bob", why="x")
    resend(here.cluster, group, [RecordAddress(0, 1)])
    job = create(
        here.cluster, JobDraft("resend", group, records=[RecordAddress(0, offset) for offset in range(8)]), by="alice"
    )
    counts = done(here, job).progress.counts
    assert counts == {"resolved": 1, "replayed": 1, "sent": 4, "superseded": 1, "capped": 1}
    said = show(here.cluster, job.name).progress.reasons
    assert said["capped"] == ["0/6: it was sent again as often as is allowed, and died each time"]
    assert said["resolved"][0].startswith("0/0: someone has resolved it")
    assert states(here, group, 10) == {"RESENT": 5, "RESOLVED": 1, "SUPERSEDED": 1, "OPEN": 1}


def test_letters_of_a_topic_that_was_made_again_are_each_sent(here: Installation) -> None:
    """Another record has the same id, and a history of its own."""
    group = with_dead_letters(here, 0)
    topic = here.settings.names.dead_letter(group)
    for born_ms in (1_700_000_000_000, 1_700_000_000_001):
        here.produce(topic, b"first", headers=headers_of(group, 1, BORN_TIMESTAMP=str(born_ms)))
    here.produce(topic, b"again", headers=headers_of(group, 1, BORN_TIMESTAMP=str(born_ms), REPLAY_TIMES="2"))
    with DeadLetterStore() as store:
        DeadLetterIndex(here.cluster, store, CauseLabels()).look()
        assert store.open_by_group(time.time() * 1_000)[group].number == 2
    job = create(here.cluster, JobDraft("resend", group), by="alice")
    assert done(here, job).progress.counts == {"sent": 1, "superseded": 1, "capped": 1}
    [copy] = [one for one in here.read(here.settings.names.delay(0)) if one["REAL_TOPIC"] == f"%RETRY%{group}"]
    assert (copy["BORN_TIMESTAMP"], copy["REPLAY_TIMES"]) == ("1700000000000", "1")
    assert states(here, group, 10) == {"RESENT": 1, "SUPERSEDED": 1, "OPEN": 1}
    assert plan(here.cluster, JobDraft("resend", group, DeadLetterFilter(state="RESENT"))).statuses == {"replayed": 1}


def test_a_job_is_paused_goes_on_and_is_cancelled(here: Installation) -> None:
    group = with_dead_letters(here, 60)
    job = create(here.cluster, JobDraft("resend", group, rate=5), by="alice", count=60)
    stop = threading.Event()
    runner = threading.Thread(target=JobRunner(here.cluster).run, args=(stop,))
    runner.start()
    try:
        wait_until(lambda: show(here.cluster, job.name).handled >= 5, "some are sent")
        pause(here.cluster, job.name, by="bob", why="errors again")
        wait_until_let_go(here, job)
        paused = show(here.cluster, job.name)
        assert paused.status(here.cluster.clock()) == "PAUSED"
        assert [(one.by, one.wish, one.why) for one in paused.events] == [("bob", "pause", "errors again")]
        assert 5 <= paused.handled < 60
        resume(here.cluster, job.name, by="bob")
        with pytest.raises(IllegalSetting, match="is not paused"):
            resume(here.cluster, job.name, by="bob")
        wait_until(lambda: show(here.cluster, job.name).handled > paused.handled, "more are sent")
        cancel(here.cluster, job.name, by="carol")
        wait_until_let_go(here, job)
        with pytest.raises(IllegalSetting, match=r"has ended \(CANCELLED\)"):
            pause(here.cluster, job.name, by="bob")
    finally:
        stop.set()
        runner.join(PATIENCE)
    handled = show(here.cluster, job.name).handled
    assert sent(here, group) == once(handled)
    rest = create(here.cluster, JobDraft("resend", group), by="alice")
    assert done(here, rest).progress.counts == {"sent": 60 - handled}
    assert sent(here, group) == once(60)


def cancel_meanwhile(here: Installation, job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """Carol cancels the job just before the next request to it is written."""

    def meanwhile(events: Sequence[JobEvent]) -> bytes:
        monkeypatch.setattr(records_module, "encode_wish", encode_wish)
        cancel(here.cluster, job.name, by="carol")
        return encode_wish(events)

    monkeypatch.setattr(records_module, "encode_wish", meanwhile)


def test_of_two_people_who_steer_a_job_at_once_neither_request_is_lost(
    here: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = with_dead_letters(here, 1)
    job = create(here.cluster, JobDraft("resend", group), by="alice")

    cancel_meanwhile(here, job, monkeypatch)
    with pytest.raises(IllegalSetting, match=r"has ended \(CANCELLED\)"):
        pause(here.cluster, job.name, by="bob")
    assert [(one.by, one.wish) for one in show(here.cluster, job.name).events] == [("carol", "cancel")]


def test_of_two_runners_at_once_and_a_person_between_them_none_sends_twice(
    here: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_module, "_TOGETHER", 20)
    group = with_dead_letters(here, 900)
    jobs = [create(here.cluster, JobDraft("resend", group), by=who) for who in ("alice", "bob")]
    stop = threading.Event()
    runners = [threading.Thread(target=JobRunner(here.cluster, lease_ms=1).run, args=(stop,)) for _ in range(2)]
    for one in runners:
        one.start()
    try:
        wait_until(lambda: show(here.cluster, jobs[0].name).handled, "some are sent")
        [last] = resolve(here.cluster, group, [RecordAddress(0, 899)], by="carol", why="x")
        wait_until(lambda: all(show(here.cluster, one.name).progress.ended for one in jobs), "both have ended")
    finally:
        stop.set()
        for one in runners:
            one.join(PATIENCE)
    counts = [show(here.cluster, one.name).progress.counts for one in jobs]
    # On a slow machine the last one was sent before the person came, and stays as it is.
    resolved = {"resolved": 1} if last.is_changed else {}
    in_all = 900 - len(resolved)
    assert counts[0] == {"sent": in_all} | resolved
    assert counts[1] == {"replayed": in_all} | resolved
    assert sent(here, group) == once(in_all)


@pytest.mark.parametrize("again", [False, True])
def test_a_job_whose_dead_letter_topic_is_gone_says_so_and_sends_nothing(here: Installation, again: bool) -> None:
    group = with_dead_letters(here, 3)
    job = create(here.cluster, JobDraft("resend", group), by="alice", count=3)
    topic = here.settings.names.dead_letter(group)
    here.delete(topic)
    if again:
        here.admin.create(topic, 1, -1, {"message.timestamp.type": "LogAppendTime"})
        here.produce(topic, b"another one", headers=headers_of(group, 0))
    ended = done(here, job).progress
    words = "was deleted and created again" if again else "was deleted"
    assert (ended.ended, ended.why) == ("FAILED", f"topic {topic} {words}: the dead letters of this job are gone")
    assert not sent(here, group)


def test_a_group_that_is_registered_no_more_pauses_its_job(here: Installation) -> None:
    group = with_dead_letters(here, 3)
    job = create(here.cluster, JobDraft("resend", group), by="alice", count=3)
    write_system(here.cluster, SystemConfig(message_delay_level=LEVELS, auto_create_subscription_group=False))
    try:
        paused = done(here, job)
        assert paused.status(here.cluster.clock()) == "PAUSED"
        assert "is no longer registered; register it" in paused.events[-1].why
    finally:
        write_system(here.cluster, SystemConfig(message_delay_level=LEVELS))
    resume(here.cluster, job.name, by="alice")
    assert done(here, job).progress.counts == {"sent": 3}


def test_a_job_that_pauses_itself_stays_cancelled(here: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    group = with_dead_letters(here, 1)
    job = create(here.cluster, JobDraft("resend", group), by="alice")

    def refuse(*_: object) -> None:
        raise KafkaRefused("a right is missing")

    monkeypatch.setattr(run_module, "check_target", refuse)
    cancel_meanwhile(here, job, monkeypatch)
    assert [(one.by, one.wish) for one in done(here, job).events] == [("carol", "cancel")]
    wait_until_let_go(here, job)


def test_a_runner_lets_go_of_a_paused_job_though_its_transactions_are_slow(
    here: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = with_dead_letters(here, 1)
    job = create(here.cluster, JobDraft("resend", group), by="alice")

    def refuse(*_: object) -> None:
        raise KafkaRefused("a right is missing")

    monkeypatch.setattr(run_module, "check_target", refuse)
    monkeypatch.setattr(transactions, "_PROMPT_MS", -1)
    assert [(one.by, one.wish) for one in done(here, job).events] == [("reconsume", "pause")]
    wait_until_let_go(here, job)


@pytest.mark.parametrize("picked", [False, True])
def test_letters_that_expired_meanwhile_are_counted(here: Installation, picked: bool) -> None:
    group = with_dead_letters(here, 10)
    draft = JobDraft("resend", group, records=[RecordAddress(0, at) for at in range(10)] if picked else None)
    job = create(here.cluster, draft, by="alice", count=10)
    client = AdminClient(here.settings.client_settings())
    for deletion in client.delete_records([TopicPartition(here.settings.names.dead_letter(group), 0, 4)]).values():
        deletion.result(PATIENCE)
    assert done(here, job).progress.counts == {"expired": 4, "sent": 6}
    assert sent(here, group) == once(10, 4)


def test_one_letter_goes_to_its_origin_topic_edited_and_the_original_stays(bootstrap_servers: str) -> None:
    with installation(bootstrap_servers, allowed=[".*-origin"]) as here:
        group = here.unique("g")
        topic = here.settings.names.dead_letter(group)
        origin, gone, private = here.unique("x") + "-origin", here.unique("gone"), here.unique("private")
        here.admin.create(origin, 2, -1, {})
        here.admin.create(private, 1, -1, {})
        here.admin.create(topic, 1, -1, {"message.timestamp.type": "LogAppendTime"})
        for name, partition in ((origin, 1), (gone, 0), (private, 0), (topic, 0)):
            of = {"RETRY_TOPIC": name, "ORIGIN_MESSAGE_ID": f"{name}/{partition}/7"}
            here.produce(topic, b"bad", key=b"k", headers=headers_of(group, 0, **of))
        edit = LetterEdit(b"good", {"user": None, "fixed-by": "alice"})
        draft = JobDraft("resend", group, records=[RecordAddress(0, 0)], target="origin", edit=edit)
        assert done(here, create(here.cluster, draft, by="alice")).progress.counts == {"sent": 1}
        wait_until(lambda: here.read(origin), "it arrives")
        [record] = here.read(origin)
        assert (record.key, record.value, record.partition) == (b"k", b"good", 1)
        assert (record["REPLAY_EDITED"], record["fixed-by"], record["user"]) == ("value,headers", "alice", None)
        assert [one.value for one in here.dead_letters(group)] == [b"bad"] * 4
        rest = create(here.cluster, JobDraft("resend", group, target="origin"), by="alice")
        ended = done(here, rest).progress
        assert ended.counts == {"no_target": 1, "not_allowed": 2}
        assert ended.reasons["no_target"] == [f"0/1: topic {gone} does not exist any more"]


def test_a_letter_that_kafka_refuses_is_left_out_and_the_others_are_sent(bootstrap_servers: str) -> None:
    with installation(bootstrap_servers) as here:
        group = here.unique("g")
        topic, lane = here.settings.names.dead_letter(group), here.settings.names.delay(0)
        here.admin.create(topic, 1, -1, {"message.timestamp.type": "LogAppendTime"})
        for number in range(7):
            here.produce(topic, b"x" * (50_000 if number == 3 else 10), headers=headers_of(group, number))
        client = AdminClient(here.settings.client_settings())
        limit = ConfigEntry("max.message.bytes", "20000", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, lane, incremental_configs=[limit])
        client.incremental_alter_configs([resource])[resource].result(PATIENCE)
        ended = done(here, create(here.cluster, JobDraft("resend", group), by="alice")).progress
        assert (ended.ended, ended.counts) == ("DONE", {"sent": 6, "too_large": 1})
        assert ended.reasons["too_large"][0].startswith("0/3: ")
        assert states(here, group, 10) == {"RESENT": 6, "OPEN": 1}


def test_a_job_resolves_open_letters_with_its_reason(here: Installation) -> None:
    group = with_dead_letters(here, 10)
    with pytest.raises(IllegalSetting, match="resolving needs a reason"):
        create(here.cluster, JobDraft("resolve", group), by="alice")
    wanted = DeadLetterFilter(label="timeout")
    job = create(here.cluster, JobDraft("resolve", group, wanted), by="alice", why="no such flights")
    assert done(here, job).progress.counts == {"resolved_now": 5}
    assert states(here, group, 10) == {"RESOLVED": 5, "OPEN": 5}
    both = create(here.cluster, JobDraft("resolve", group), by="alice", why="rest")
    assert done(here, both).progress.counts == {"resolved_now": 5}


def test_drafts_that_contradict_themselves_are_refused(here: Installation) -> None:
    group = with_dead_letters(here, 2)
    one = [RecordAddress(0, 0)]
    for draft, words in (
        (JobDraft("resend", group, DeadLetterFilter(text="x"), records=one), "not both"),
        (JobDraft("resend", group, rate=0), "at least 1 record a second"),
        (JobDraft("resend", group, edit=LetterEdit(b"x")), "exactly one named record"),
        (JobDraft("resend", group, records=one, edit=LetterEdit()), "needs a new value or a header"),
        (JobDraft("resend", group, records=[]), "name between 1 and"),
        (JobDraft("resend", group, DeadLetterFilter(label="x", label_rules={"(": "y"})), "is not a regular expression"),
    ):
        with pytest.raises(IllegalSetting, match=words):
            create(here.cluster, draft, by="alice")
    with pytest.raises(RecordNotFound, match="0/9 of group"):
        create(here.cluster, JobDraft("resend", group, records=[RecordAddress(0, 9)]), by="alice")
    with JobsView(here.cluster) as view:
        assert not [job for job in view.look().values() if job.spec.group == group]


def test_a_command_runs_its_job_itself_beside_a_console_and_tells_each_outcome(
    here: Installation, capsys: pytest.CaptureFixture[str]
) -> None:
    """Else a console that was faster would leave the command without outcomes."""
    group = with_dead_letters(here, 3)
    runner = JobRunner(here.cluster)
    job = create(here.cluster, JobDraft("resend", group), by="alice", runner="console/1")
    draft = JobDraft("resolve", group, records=[RecordAddress(0, at) for at in range(2)])
    other = create(here.cluster, draft, by="bob", why="x", runner=runner.name)
    stop = threading.Event()
    console = threading.Thread(target=JobRunner(here.cluster).run, args=(stop,))
    console.start()
    try:
        assert status(here, job) == status(here, other) == "RUNNING"
        cancel(here.cluster, job.name, by="alice")
        outcomes: list[str] = []
        ended = runner.run_until_ended(other, stop, lambda some: outcomes.extend(one.outcome for one in some))
        assert (ended.progress.ended, outcomes) == ("DONE", ["resolved_now"] * 2)
        resend_letters(Here(here.cluster, as_json=True), DeadLetterFilter(), group, ["0/2", "0/1"], yes=True)
        said = json.loads(capsys.readouterr().out)
        assert [(one["record"], one["status"]) for one in said["records"]] == [("0/1", "resolved"), ("0/2", "send")]
    finally:
        stop.set()
        console.join(PATIENCE)
