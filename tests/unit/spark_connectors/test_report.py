"""The report: figures in both languages, and nothing of a record that a browser would act on."""

from __future__ import annotations

import datetime as dt
from html.parser import HTMLParser
from typing import Any

import pytest

from reconsume.delay_levels.errors import IllegalSetting
from reconsume.spark_connectors.reconcile import FINDINGS, NOTES
from reconsume.spark_connectors.report import SHOWN_OF_A_KIND, render_report
from reconsume.spark_connectors.report.words import WORDS
from tests.support.hostile import assert_harmless

NOW = dt.datetime(2026, 11, 21, 8, 30, tzinfo=dt.UTC)
HOSTILE = "</pre></style><script>alert(1)</script><img src=x onerror=alert(2)>\" ' & \u202egpj \x00"
TAGS = {
    *(
        "html",
        "head",
        "meta",
        "title",
        "style",
        "body",
        "h1",
        "h2",
        "h3",
        "p",
        "br",
        "b",
        "i",
        "span",
        "div",
        "dl",
        "dt",
    ),
    *("dd", "pre", "section", "table", "thead", "tbody", "tr", "th", "td", "svg", "rect", "line", "text"),
}
ATTRIBUTES = {
    *("lang", "charset", "http-equiv", "content", "name", "class", "style", "viewbox", "role", "aria-label", "x", "y"),
    *("x1", "x2", "y1", "y2", "rx", "width", "height", "text-anchor"),
}


def summary(**changed: Any) -> dict[str, Any]:
    states = dict.fromkeys(("waiting", "quarantined", "dropped", "expired", "lost", "unexplained"), 0)
    group = {"group": "departures", "sent_back": 3, "moved": 2, "dead": 1, "consumed": 0, "unread": 0}
    bars = [0, 2, *[0] * 9, 1]
    late = {"delay_ms": 10_000, "sent_back": 3, "p50": 4, "p99": 35, "min": 1, "max": 61_000, "bars": bars}
    figures: dict[str, Any] = {
        "verdict": "ok",
        "since": None,
        "until": NOW.isoformat(),
        "attempts": 3,
        "moved": 2,
        "dead": 1,
        "findings": {},
        "notes": {},
        "groups": [states | group],
        "levels": [late],
        "times": {
            "step_ms": 3_600_000,
            "bars": [{"at_ms": at, "sent_back": 3, "dead": 1} for at in (1_763_712_000_000, 1_763_719_200_000)],
        },
        "tries": [{"retries": 1, "messages": 2}],
        "causes": [{"cause": "no dep_time", "count": 1}],
    }
    return states | figures | changed


def finding(kind: str, **changed: Any) -> dict[str, Any]:
    empty = dict.fromkeys(("asked", "due", "delivered", "lateness_ms", "damage", "cause"))
    shown = {"kind": kind, "group": "departures", "origin_message_id": "flights/0/1", "attempt": 1, "appended": NOW}
    return empty | shown | {"commands": ["kcat -C"]} | changed


def render(figures: dict[str, Any], findings: list[dict[str, Any]], language: str = "en") -> str:
    return render_report(figures, findings, bootstrap_servers="b:9092", topic_prefix="reconsume.", language=language)


class Page(HTMLParser):
    """The tags, attributes and texts that a browser sees."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.texts: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@pytest.mark.parametrize(("language", "verdict"), [("en", "exactly one state"), ("zh", "恰好处于一种状态")])
def test_it_tells_the_verdict_and_the_figures(language: str, verdict: str) -> None:
    page = Page(render(summary(), [], language))
    text = " ".join(page.texts)
    assert verdict in text
    for shown in ("departures", "10s", "4 ms", "1.02 min", "no dep_time", "2026-11-21 08:30:00.000 UTC", "11-21 09:00"):
        assert shown in text
    assert page.tags <= TAGS | {"title"}


def test_findings_come_with_their_commands_and_are_cut_where_there_are_too_many() -> None:
    count = SHOWN_OF_A_KIND + 3
    findings = [
        finding("LATE", origin_message_id=f"flights/0/{one}", delivered=NOW, lateness_ms=90_000) for one in range(count)
    ]
    text = " ".join(Page(render(summary(findings={"LATE": count}, notes={"REPEATED": 1}), findings)).texts)
    assert f"{count} findings" in text
    assert "1 finding: something is wrong." in " ".join(Page(render(summary(findings={"LATE": 1}), findings)).texts)
    assert text.count("kcat -C") == SHOWN_OF_A_KIND
    assert f"{SHOWN_OF_A_KIND} of {count} are shown" in text
    assert WORDS["en"]["REPEATED"] in text


def test_what_is_in_the_quarantine_or_expired_stands_beside_the_verdict() -> None:
    text = " ".join(Page(render(summary(notes={"QUARANTINED": 1_234, "EXPIRED": 2, "REPEATED": 3}), [])).texts)
    head = text[: text.index("Conservation")]
    assert "Quarantined records: 1,234" in head
    assert "Attempts not judged: 2" in head


def test_what_records_hold_is_text_and_never_markup() -> None:
    group = summary()["groups"][0] | {"group": HOSTILE, "lost": 1}
    figures = summary(findings={"LOST": 1}, groups=[group], causes=[{"cause": HOSTILE, "count": 1}])
    hostile = finding(
        "LOST", group=HOSTILE, origin_message_id=HOSTILE, cause=HOSTILE, damage=HOSTILE, commands=[HOSTILE]
    )
    page = Page(render(figures, [hostile]))
    assert page.tags <= TAGS
    assert page.attributes <= ATTRIBUTES
    text = " ".join(page.texts)
    assert text.count("<script>alert(1)</script>") == 7
    assert_harmless(text, shows="\\u202egpj \\u0000")


def test_a_page_asks_for_nothing_from_the_network() -> None:
    page = render(summary(), [])
    assert "default-src 'none'" in page
    for word in ("http:", "https:", "src=", "url(", "@import", "<link"):
        assert word not in page


def test_both_languages_have_every_word() -> None:
    assert WORDS["en"].keys() == WORDS["zh"].keys()
    assert {*FINDINGS, *NOTES} <= WORDS["en"].keys()
    with pytest.raises(IllegalSetting, match="language 'fr' is unknown"):
        render(summary(), [], "fr")
