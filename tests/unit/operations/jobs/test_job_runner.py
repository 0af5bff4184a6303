"""The runner of jobs: which it takes, and what it does about errors."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, Final

import pytest

from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.process.settings import Settings
from reconsume.bridge.reading.range_reader import ReadRecord
from reconsume.bridge.writing.exclusive_writer import ExclusiveWriter
from reconsume.bridge.writing.new_record import NewRecord
from reconsume.delay_levels.errors import (
    IllegalSetting,
    KafkaLoginFailed,
    KafkaNotReachable,
    KafkaRefused,
    ReconsumeError,
    TopicNotReady,
    WriterReplaced,
)
from reconsume.delay_levels.wire.jobs.job_records import (
    CANCEL,
    RUN,
    JobEvent,
    JobProgress,
    JobSpec,
    encode_spec,
    encode_wish,
    spec_key,
    wish_key,
)
from reconsume.operations.jobs import records, run, runner, service
from reconsume.operations.jobs.records import PAUSED, Job, JobsView
from reconsume.operations.jobs.run import JobRun
from reconsume.operations.jobs.runner import JobRunner
from reconsume.operations.jobs.target_checks import LettersGone
from tests.support.waiting import PATIENCE

JOB = Job("j", JobSpec("resolve", "g", 5, "alice", "", "reconsume.DLQ.g", "id", {0: (0, 9)}))
AHEAD = replace(JOB, progress=JobProgress("another"), beat_ms=3_600_000)
"""Another runner's, by brokers whose clock is an hour ahead of this machine's."""
CLOCKS: Final = pytest.mark.parametrize("behind_ms", [-3_600_000, 20_000], ids=["brokers ahead", "brokers behind"])


class _View(JobsView):
    """Jobs that cannot be read at the first looks."""

    failures = 2
    looks = 0
    job = JOB

    def look(self, **_: bool) -> dict[str, Job]:
        type(self).looks += 1
        if self.looks <= self.failures:
            raise OSError("too many open files")
        self.jobs = {JOB.name: self.job}
        return self.jobs


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> JobRunner:
    monkeypatch.setattr(_View, "looks", 0)
    monkeypatch.setattr(runner, "JobsView", _View)
    monkeypatch.setattr(runner, "_LOOK_SECONDS", 0.01)
    cluster: Any = Cluster(Settings(bootstrap_servers="127.0.0.1:9"))
    cluster.__dict__["clock"] = lambda: 5.0
    return JobRunner(cluster)


def test_an_unexpected_error_is_logged_once_and_the_runner_goes_on(
    jobs: JobRunner, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stop, started = threading.Event(), threading.Event()
    monkeypatch.setattr(jobs, "_run_one", lambda *_: started.set())
    thread = threading.Thread(target=jobs.run, args=(stop,), daemon=True)
    with caplog.at_level(logging.ERROR):
        thread.start()
        assert started.wait(PATIENCE), "the job is started"
    assert thread.is_alive()
    stop.set()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert [one.exc_text and "too many open files" in one.exc_text for one in caplog.records] == [True]


def test_a_thread_that_cannot_be_started_is_logged_once(
    jobs: JobRunner, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stop, starts = threading.Event(), list[str]()

    def start(job: Job, _stop: threading.Event) -> threading.Thread:
        starts.append(job.name)
        if len(starts) == 3:
            stop.set()
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(_View, "failures", 0)
    monkeypatch.setattr(jobs, "_start", start)
    jobs.run(stop)
    assert (starts, len(caplog.records)) == (["j"] * 3, 1)


def test_a_single_pass_raises_an_unexpected_error(jobs: JobRunner) -> None:
    with pytest.raises(OSError, match="too many open files"):
        jobs.run(threading.Event(), once=True)


@pytest.fixture
def stop() -> Iterator[threading.Event]:
    """Set after a minute, for a runner that never ends; the test fails then."""
    event = threading.Event()
    too_late = threading.Timer(60, event.set)
    too_late.start()
    yield event
    assert too_late.is_alive(), "the runner ended only when the minute was over"
    too_late.cancel()


@pytest.fixture
def started(jobs: JobRunner, monkeypatch: pytest.MonkeyPatch, stop: threading.Event) -> list[str]:
    """The names of the jobs that are started; the first one stops the runner."""
    names = list[str]()

    def start(job: Job, *_: object) -> None:
        names.append(job.name)
        stop.set()

    monkeypatch.setattr(jobs, "_run_one", start)
    return names


NO_TOPIC: Final = TopicNotReady("topic reconsume.JOBS does not exist")
NO_RIGHT: Final = KafkaRefused("no right to use the topic")
NO_LOGIN: Final = KafkaLoginFailed("the brokers refuse the user")
NO_BROKER: Final = KafkaNotReachable("no broker answers")


@pytest.mark.parametrize("error", [NO_TOPIC, NO_RIGHT, NO_LOGIN, NO_BROKER], ids=lambda one: type(one).__name__)
def test_a_single_pass_raises_why_jobs_are_unavailable(
    jobs: JobRunner, monkeypatch: pytest.MonkeyPatch, stop: threading.Event, error: ReconsumeError
) -> None:
    monkeypatch.setattr(_View, "look", looks_at(error))
    with pytest.raises(type(error), match=str(error)):
        jobs.run(stop, once=True)


@pytest.mark.parametrize("error", [NO_TOPIC, NO_RIGHT, NO_LOGIN], ids=lambda one: type(one).__name__)
def test_a_single_pass_that_has_seen_jobs_raises_what_does_not_pass(
    jobs: JobRunner, monkeypatch: pytest.MonkeyPatch, stop: threading.Event, error: ReconsumeError
) -> None:
    monkeypatch.setattr(_View, "look", looks_at([AHEAD], error))
    with pytest.raises(type(error), match=str(error)):
        jobs.run(stop, once=True)


def test_a_single_pass_that_has_seen_jobs_waits_for_kafka(
    jobs: JobRunner, monkeypatch: pytest.MonkeyPatch, stop: threading.Event
) -> None:
    monkeypatch.setattr(_View, "look", looks_at([AHEAD], NO_BROKER, []))
    jobs.run(stop, once=True)
    assert not stop.is_set()


def test_a_single_pass_raises_why_a_job_can_neither_run_nor_be_paused(
    jobs: JobRunner, monkeypatch: pytest.MonkeyPatch, stop: threading.Event
) -> None:
    def refuse(*_: object) -> None:
        raise NO_RIGHT

    monkeypatch.setattr(_View, "failures", 0)
    monkeypatch.setattr(JobRun, "_claim", refuse)
    monkeypatch.setattr(run, "add_wish", refuse)
    monkeypatch.setattr(run, "write_wish", refuse)
    with pytest.raises(KafkaRefused, match="no right"):
        jobs.run(stop, once=True)


@pytest.mark.parametrize("error", [NO_LOGIN, KeyboardInterrupt()], ids=lambda one: type(one).__name__)
def test_a_single_pass_that_fails_stops_the_jobs_at_work(
    jobs: JobRunner, monkeypatch: pytest.MonkeyPatch, stop: threading.Event, error: BaseException
) -> None:
    at_work = threading.Event()

    def look(self: _View, **_: bool) -> dict[str, Job]:
        if at_work.is_set():
            raise error
        self.jobs = {JOB.name: JOB}
        return self.jobs

    def claim(_self: JobRun) -> bool:
        at_work.set()
        raise NO_LOGIN

    monkeypatch.setattr(_View, "look", look)
    monkeypatch.setattr(JobRun, "_claim", claim)
    with pytest.raises(type(error)):
        jobs.run(stop, once=True)


def test_a_runner_without_end_waits_for_the_topic_of_jobs(
    jobs: JobRunner, monkeypatch: pytest.MonkeyPatch, stop: threading.Event, started: list[str]
) -> None:
    monkeypatch.setattr(_View, "look", looks_at(NO_TOPIC, NO_LOGIN, [JOB]))
    jobs.run(stop)
    assert started == ["j"]


def test_a_job_behind_an_open_transaction_is_waited_for(
    jobs: JobRunner, monkeypatch: pytest.MonkeyPatch, stop: threading.Event, started: list[str]
) -> None:
    monkeypatch.setattr(_View, "look", looks_at([], [JOB]))
    assert jobs.run_until_ended(JOB, stop) == JOB
    assert started == ["j"]


def test_a_job_that_is_gone_with_its_topic_is_not_waited_for(
    jobs: JobRunner, monkeypatch: pytest.MonkeyPatch, stop: threading.Event
) -> None:
    monkeypatch.setattr(_View, "look", looks_at([AHEAD], []))
    with pytest.raises(IllegalSetting, match="job 'j' does not exist"):
        jobs.run_until_ended(JOB, stop)


@pytest.mark.parametrize("name", ["j", "another"])
def test_a_job_behind_an_open_transaction_can_be_shown_and_paused(
    jobs: JobRunner, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    cluster, written = jobs._cluster, list[NewRecord]()

    def look(self: _View, *, to_the_last: bool = False) -> dict[str, Job]:
        if to_the_last:
            self.jobs = {JOB.name: JOB}
        return self.jobs

    monkeypatch.setattr(_View, "look", look)
    monkeypatch.setattr(service, "JobsView", _View)
    monkeypatch.setattr(records, "JobsView", _View)
    monkeypatch.setattr(records, "write_exclusively", lambda *given: written.extend(given[-1]()))
    exists = nullcontext() if name == JOB.name else pytest.raises(IllegalSetting, match="does not exist")
    with exists:
        assert service.show(cluster, name) == JOB
    with exists:
        assert service.pause(cluster, name, by="alice").status(5) == PAUSED
    assert [one.topic for one in written] == ([cluster.names.jobs] if name == JOB.name else [])


def test_a_second_copy_of_a_job_undoes_nothing(jobs: JobRunner) -> None:
    """A producer writes it again if the first acknowledgement is lost."""
    view, spec, wish = JobsView(jobs._cluster), encode_spec(JOB.spec), encode_wish([JobEvent(6, "bob", CANCEL)])
    keys = (spec_key("j"), spec), (wish_key("j"), wish), (spec_key("j"), spec)
    for offset, (key, value) in enumerate(keys):
        view._take(ReadRecord("reconsume.JOBS", 0, offset, key, value, [], 5))
    assert [(one.name, one.is_open) for one in view.jobs.values()] == [("j", False)]


@pytest.mark.parametrize(("misses", "ends"), [(8, "done"), (9, "FAILED")])
@pytest.mark.parametrize("error", [LettersGone("gone"), NO_TOPIC], ids=["its letters", "another topic"])
def test_a_topic_is_missing_only_when_it_stays_away(
    jobs: JobRunner,
    monkeypatch: pytest.MonkeyPatch,
    stop: threading.Event,
    error: Exception,
    misses: int,
    ends: str,
) -> None:
    """A broker that starts knows no topic for a moment; a job that has failed cannot be resumed, a paused one waits."""
    left, ended = [error] * misses, list[str]()

    def work(_self: JobRun) -> None:
        if left:
            raise left.pop()
        ended.append("done")

    monkeypatch.setattr(_View, "failures", 0)
    monkeypatch.setattr(run, "_LOOK_SECONDS", 0.001)
    monkeypatch.setattr(JobRun, "_claim", lambda _self: True)
    monkeypatch.setattr(JobRun, "_work", work)
    monkeypatch.setattr(JobRun, "_end", lambda _self, how, _why: ended.append(how))
    monkeypatch.setattr(JobRun, "_pause", lambda *_: ended.append("paused"))
    with _View(jobs._cluster) as view:
        view.look()
        JobRun(jobs._cluster, view, JOB, jobs.name).run(stop)
    assert ended == ["paused" if ends == "FAILED" and error is NO_TOPIC else ends]


def looks_at(*answers: ReconsumeError | list[Job]) -> Callable[[_View], dict[str, Job]]:
    """Return a look that has one answer after the other; the last one stays."""
    left = list(answers)

    def look(self: _View) -> dict[str, Job]:
        answer = left.pop(0) if left[1:] else left[0]
        if isinstance(answer, ReconsumeError):
            raise answer
        self.jobs = {one.name: one for one in answer}
        return self.jobs

    return look


def test_a_job_is_paused_without_the_right_to_the_transactional_id(
    jobs: JobRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise KafkaRefused("no right to use the transactional id")

    written: list[JobEvent] = []
    monkeypatch.setattr(_View, "failures", 0)
    monkeypatch.setattr(JobRun, "_claim", refuse)
    monkeypatch.setattr(JobRun, "_release", lambda _self: None)
    monkeypatch.setattr(run, "add_wish", refuse)
    monkeypatch.setattr(run, "write_wish", lambda _cluster, _job, event: written.append(event))
    jobs._run_one(JOB, threading.Event(), lambda _outcomes: None)
    assert [(one.wish, one.why) for one in written] == [("pause", "no right to use the transactional id")]


def test_runners_that_fence_each_other_wait_longer_and_longer(jobs: JobRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    longest, stop = list[float](), threading.Event()
    of_another = {"handled": 0}

    def pause(_least: float, most: float) -> float:
        longest.append(most)
        if len(longest) == 6:
            of_another["handled"] = 20
        if len(longest) == 8:
            stop.set()
        return 0.0

    def claim(self: JobRun) -> bool:
        self._job = replace(JOB, progress=JobProgress(counts={"sent": of_another["handled"]}))
        raise WriterReplaced("another process has begun to do the same")

    monkeypatch.setattr(random, "uniform", pause)
    monkeypatch.setattr(_View, "failures", 0)
    monkeypatch.setattr(JobRun, "_claim", claim)
    with _View(jobs._cluster) as view:
        view.look()
        JobRun(jobs._cluster, view, JOB, jobs.name).run(stop)
    assert longest == [2.0, 4.0, 8.0, 16.0, 20.0, 20.0, 2.0, 4.0]


def test_a_runner_that_writes_nothing_for_its_lease_is_dead_whatever_the_brokers_clock_shows(jobs: JobRunner) -> None:
    now = [0.0]
    runner = JobRunner(jobs._cluster, monotonic=lambda: now[0])
    for at_ms, is_free in ((0, False), (14_999, False), (15_000, True), (16_000, True)):
        now[0] = at_ms
        assert runner._is_free([AHEAD]) == is_free, at_ms


def test_a_runner_that_was_dead_before_the_first_look_is_waited_for_half_a_lease(jobs: JobRunner) -> None:
    now = [0.0]
    runner = JobRunner(jobs._cluster, monotonic=lambda: now[0])
    silent_for = {"long": 90_000, "a while": 10_000}
    found = {name: replace(AHEAD, name=name, beat_ms=-age) for name, age in silent_for.items()}
    jobs._cluster.clock = lambda: now[0]
    assert [runner._is_free([one]) for one in found.values()] == [False, False]
    now[0] = 7_500
    assert [runner._is_free([one]) for one in found.values()] == [True, True]


def test_an_older_job_that_is_resumed_waits_for_the_one_that_runs(
    jobs: JobRunner, monkeypatch: pytest.MonkeyPatch, stop: threading.Event, started: list[str]
) -> None:
    """Else each would take the group's letters from the other, without an end if reading them takes long."""
    now = [0.0]
    runner = JobRunner(jobs._cluster, monotonic=lambda: now[0])
    older = replace(JOB, name="older", spec=replace(JOB.spec, at_ms=1), events=(JobEvent(9, "bob", RUN),))
    looks = [0]

    def look(self: _View, **_: bool) -> dict[str, Job]:
        looks[0] += 1
        at_work = [replace(AHEAD, beat_ms=AHEAD.beat_ms + looks[0])] if looks[0] < 4 else []
        self.jobs = {one.name: one for one in (older, *at_work)}
        return self.jobs

    def start(job: Job, *_: object) -> None:
        started.append(f"{job.name} at look {looks[0]}")
        stop.set()

    monkeypatch.setattr(_View, "look", look)
    monkeypatch.setattr(runner, "_run_one", start)
    runner.run(stop)
    assert started == ["older at look 4"]


@CLOCKS
def test_a_runner_that_goes_on_writing_keeps_its_job(jobs: JobRunner, behind_ms: int) -> None:
    now = [0.0]
    runner = JobRunner(jobs._cluster, monotonic=lambda: now[0])
    jobs._cluster.clock = lambda: AHEAD.beat_ms + now[0] + behind_ms
    looks = []
    for at_ms in range(0, 60_000, 5_000):
        now[0] = at_ms
        looks.append(runner._is_free([replace(AHEAD, beat_ms=AHEAD.beat_ms + at_ms)]))
    assert not any(looks)


@CLOCKS
@pytest.mark.parametrize(("writes_ms", "is_claimed"), [(0, True), (1, False)], ids=["is silent", "has written since"])
def test_a_job_that_was_found_free_is_claimed_unless_its_runner_writes_again(
    jobs: JobRunner, monkeypatch: pytest.MonkeyPatch, writes_ms: int, is_claimed: bool, behind_ms: int
) -> None:
    jobs._cluster.clock = lambda: AHEAD.beat_ms + behind_ms
    monkeypatch.setattr(_View, "failures", 0)
    monkeypatch.setattr(_View, "job", replace(AHEAD, beat_ms=AHEAD.beat_ms + writes_ms))
    monkeypatch.setattr(ExclusiveWriter, "take_over", lambda _self: None)
    monkeypatch.setattr(ExclusiveWriter, "write_records", lambda *_: None)
    with _View(jobs._cluster) as view:
        view.look()
        assert JobRun(jobs._cluster, view, AHEAD, jobs.name)._claim() == is_claimed
