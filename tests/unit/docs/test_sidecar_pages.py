"""The programs of the sidecar's pages are the examples that the tests run; the one in Python without a broker."""

from __future__ import annotations

import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException

ROOT = Path(__file__).parents[3]
PROGRAMS = {
    "java": "java/SendBack.java",
    "go": "go/main.go",
    "node": "node/send_back.js",
    "python": "python/send_back.py",
}


@pytest.mark.parametrize("language", PROGRAMS)
def test_a_page_shows_the_example(language: str) -> None:
    page = (ROOT / "docs" / f"sidecar-{language}.md").read_text(encoding="utf-8")
    program = (ROOT / "examples" / "sidecar" / PROGRAMS[language]).read_text(encoding="utf-8")
    assert f"\n{program}```\n" in page


def test_the_program_in_python_goes_on_after_a_commit_that_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Ended(Exception):
        pass

    class RebalancedConsumer:
        def __init__(self, _conf: dict[str, Any]) -> None:
            self.values = [b"1", b"2"]

        def subscribe(self, topics: list[str]) -> None:
            assert topics == ["flights", "retries"]

        def poll(self, _seconds: float) -> Any:
            if not self.values:
                raise Ended
            value = self.values.pop(0)
            return SimpleNamespace(error=lambda: None, headers=list, key=lambda: b"k", value=lambda: value)

        def commit(self, **_named: Any) -> None:
            raise KafkaException(KafkaError(KafkaError.UNKNOWN_MEMBER_ID))

    monkeypatch.setattr(confluent_kafka, "Consumer", RebalancedConsumer)
    main = runpy.run_path(str(ROOT / "examples" / "sidecar" / PROGRAMS["python"]))["main"]
    monkeypatch.setitem(main.__globals__, "call", lambda *_: {"retryTopic": "retries"})
    with pytest.raises(Ended):
        main("kafka:9092", "http://sidecar", "departures", "flights")
    told = capsys.readouterr()
    assert told.out.splitlines() == ["k 1 after 0 send-backs", "k 2 after 0 send-backs"]
    assert told.err.count("UNKNOWN_MEMBER_ID") == 2
