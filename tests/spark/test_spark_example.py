"""The example works as it stands, on dead letters of this Kafka."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.dead_letters import GROUP, replayed, with_dead_letters

pytestmark = pytest.mark.kafka
EXAMPLE = Path(__file__).parents[2] / "examples" / "spark" / "dead_letters.py"


@pytest.mark.usefixtures("spark")
def test_the_example_replays_what_timed_out(
    bootstrap_servers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Its getOrCreate gives the session of the tests.
    assert SparkSession.getActiveSession() is not None
    one = with_dead_letters(bootstrap_servers, 6)
    arguments = [bootstrap_servers, GROUP, str(tmp_path), one.settings.topic_prefix]
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), *arguments])
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    shown = capsys.readouterr().out
    assert "{'send': 3}" in shown
    assert "sent 3 now, 0 before" in shown
    assert replayed(one) == {f"flights/0/{number}": 1 for number in (1, 3, 5)}
