"""docs/sidecar-push.md says what the code does."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from reconsume.delay_levels.rules.levels import DEFAULT_LEVEL_TABLE, DelayLevels
from reconsume.sidecar.metrics import PushMetrics
from reconsume.sidecar.push.answers import AppAnswer, Meaning, NoAnswer, judge
from reconsume.sidecar.push.settings import Profile, PushSettings

PAGE = (Path(__file__).parents[4] / "docs" / "sidecar-push.md").read_text(encoding="utf-8")
TABLE = DelayLevels.parse(DEFAULT_LEVEL_TABLE)
WORDS = {
    "ack": Meaning.ACK,
    "retry": Meaning.RETRY,
    "dead letter": Meaning.DEAD_LETTER,
    "hold": Meaning.HOLD,
    "hold for": Meaning.MISSING_ROUTE,
}


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split(" | ")]


ROWS = [
    cells(line)
    for line in PAGE.partition("## Answers")[2].partition("* **ack**")[0].splitlines()
    if line.startswith("| ") and not line.startswith("| the app answers")
]


def examples(answer: str) -> list[AppAnswer | NoAnswer]:
    """What a row speaks of."""
    if answer.startswith(("refused", "nothing", "the app ends")):
        late, ends = answer.startswith("nothing"), answer.startswith("the app ends")
        return [NoAnswer("", timed_out=late, repeated=ends)]
    if answer.startswith("2xx that is cut off"):
        return [AppAnswer(200, cut_off=True)]
    if answer.startswith("2xx"):
        named = [text for text in re.findall(r"`(\w+)`", answer) if text.isupper()]
        said = named or (["MAYBE"] if "another" in answer else [""])
        return [AppAnswer(200, {}, b"", {"status": text}) for text in said]
    if answer.startswith("3xx"):
        return [AppAnswer(302)]
    codes = [int(code) for code in re.findall(r"\b[45]\d\d\b", answer)]
    return [AppAnswer(code, {"retry-after": "1"} if "one of them" in answer else {}) for code in codes]


def meaning(cell: str, before: str) -> Meaning:
    """The first words of a cell."""
    text = before if cell == "the same" else cell
    return next(WORDS[word] for word in sorted(WORDS, key=len, reverse=True) if text.startswith(word))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:40])
def test_the_answer_table_is_what_happens(row: list[str]) -> None:
    answer, native, dapr, knative = row
    assert examples(answer)
    for one in examples(answer):
        found = {profile: judge(one, profile, size=1, now_ms=0, policy=lambda: TABLE).meaning for profile in Profile}
        # What is dropped is a dead letter unless the settings say otherwise.
        found = {profile: Meaning.DEAD_LETTER if it is Meaning.DROP else it for profile, it in found.items()}
        assert found[Profile.NATIVE] is found[Profile.ROCKETMQ_BATCH] is meaning(native, "")
        assert found[Profile.DAPR] is meaning(dapr, native)
        assert found[Profile.KNATIVE] is meaning(knative, native)


def test_the_table_is_whole() -> None:
    assert len(ROWS) == 16


def test_the_settings_of_the_page_can_be() -> None:
    [block] = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    [given] = tomllib.loads(block)["subscriptions"]
    assert PushSettings(**given).topics == {"flights": "*"}


def test_the_page_names_settings_and_metrics_that_there_are() -> None:
    registry = CollectorRegistry()
    PushMetrics(registry)
    exported = {metric.name for metric in registry.collect()}
    named = {name.removesuffix("_total") for name in re.findall(r"`(reconsume_push_\w+)", PAGE)}
    assert named == exported
    before_metrics = PAGE.partition("## Metrics")[0]
    others = {"__key", "__topic", "__partition", "__offset", "__timestamp", "ce_", *(f"{name}_total" for name in named)}
    settings = {name for name in re.findall(r"`(\w+)(?: = [^`]*)?`", before_metrics) if "_" in name and name.islower()}
    assert settings - others - named <= PushSettings.model_fields.keys()


def test_the_page_says_the_defaults() -> None:
    settings = PushSettings(group="departures", topics={"flights": "*"})
    assert f"`max_in_flight` ({settings.max_in_flight})" in PAGE
    assert f"`missing_route_grace_seconds` ({settings.missing_route_grace_seconds:.0f})" in PAGE
    assert f"`{settings.order}` (the default)" in PAGE
