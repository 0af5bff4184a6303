"""Jobs on dead letters that a command creates and runs."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

import pytest
import typer

from reconsume.bridge.kafka.cluster import Cluster
from reconsume.bridge.process.settings import Settings
from reconsume.cli.actions import jobs, letter_jobs
from reconsume.cli.common import Here
from reconsume.delay_levels.wire.jobs.job_records import JobEvent, JobProgress, JobSpec
from reconsume.operations.jobs.planning import JobPlan
from reconsume.operations.jobs.records import Job
from reconsume.operations.jobs.runner import JobRunner
from reconsume.operations.jobs.selection import JobDraft

JOB: Final = Job("j", JobSpec("resend", "departures", 5, "alice", "", "reconsume.DLQ.departures", "id", {0: (0, 1)}))


@contextmanager
def refused(number: signal.Signals) -> Iterator[None]:
    """Fail at a signal that nobody takes; its default handler would end the tests."""

    def fail(*_: object) -> None:
        pytest.fail(f"{number.name} ends the command")

    before = signal.signal(number, fail)
    try:
        yield
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_a_job_is_created_pauses_it(monkeypatch: pytest.MonkeyPatch, number: signal.Signals) -> None:
    paused: list[str] = []

    def create(*_: Any, runner: str, **__: Any) -> Job:
        os.kill(os.getpid(), number)
        return replace(JOB, progress=JobProgress(runner))

    def run_until_ended(_self: JobRunner, job: Job, stop: threading.Event, *_: Any) -> Job:
        assert stop.is_set()
        return job

    def pause(_cluster: Cluster, name: str, *, by: str, why: str) -> Job:
        paused.append(name)
        return replace(JOB, events=(JobEvent(6, by, "pause", why),))

    monkeypatch.setattr(letter_jobs, "plan", lambda *_: JobPlan(count=1, acted=1))
    monkeypatch.setattr(letter_jobs, "create", create)
    monkeypatch.setattr(JobRunner, "run_until_ended", run_until_ended)
    monkeypatch.setattr(jobs, "pause", pause)
    here, draft = Here(Cluster(Settings(bootstrap_servers="127.0.0.1:9")), as_json=False), JobDraft("resend", "g")
    with refused(number), pytest.raises(typer.Exit) as ended:
        letter_jobs.run_as_job(here, draft, "Send {}?", why="", dry_run=False, yes=True, detach=False)
    assert (paused, ended.value.exit_code) == (["j"], 1)
