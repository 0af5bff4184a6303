"""The examples work as they stand, on records of this Kafka."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.histories.dead_letters import GROUP, replayed, with_dead_letters
from tests.spark.histories.lived import MESSAGES, Lived

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


@pytest.mark.usefixtures("spark")
def test_the_ten_questions_have_answers_and_plots(
    lived: Lived, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = EXAMPLE.with_name("questions.py")
    monkeypatch.setattr(sys, "argv", [str(program), lived.bootstrap_servers, str(tmp_path), lived.prefix])
    told = runpy.run_path(str(program), run_name="__main__")
    assert [*told["answers"]] == [*range(1, 11)]
    quarter, groups = MESSAGES // 4, len(lived.groups)
    # Message n fails n % 4 times, and is dead after three; the record of the inbox came back once.
    tries = {row.retries: row.messages for row in told["answers"][4].collect()}
    assert tries == {1: quarter * groups + 1, 2: quarter * groups}
    assert sum(row.given_up for row in told["answers"][5].collect()) == quarter * groups
    assert (row := told["answers"][10].first()) is not None
    assert row.groups == groups
    assert (tmp_path / "questions.html").read_text().count("<svg") == 3
    assert "10. Which messages do several groups fail on?" in capsys.readouterr().out
    told["spark"].catalog.clearCache()
