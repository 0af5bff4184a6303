"""Replays of dead letters: plan, check, run, report."""

from __future__ import annotations

from reconsume.spark_connectors.replay.execution import ReplayInterrupted, ReplayProgress, ReplayResult, run_replay
from reconsume.spark_connectors.replay.plan import Histogram, ReplayPlan, histogram, open_plan, plan_replay
from reconsume.spark_connectors.replay.report import replay_report
from reconsume.spark_connectors.replay.stream import replay_stream

__all__ = [
    "Histogram",
    "ReplayInterrupted",
    "ReplayPlan",
    "ReplayProgress",
    "ReplayResult",
    "histogram",
    "open_plan",
    "plan_replay",
    "replay_report",
    "replay_stream",
    "run_replay",
]
