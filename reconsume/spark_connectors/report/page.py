"""The report: a self-contained HTML file. Contents of records are text, never markup."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any, Final

from reconsume import __version__
from reconsume.delay_levels.errors import IllegalSetting
from reconsume.delay_levels.human_text import visible
from reconsume.delay_levels.rules.durations import format_duration
from reconsume.spark_connectors.reconcile.summary import LATENESS_LIMITS_MS
from reconsume.spark_connectors.report.charts import columns, stacked_columns
from reconsume.spark_connectors.report.words import LANGUAGES, WORDS

SHOWN_OF_A_KIND: Final = 50
"""Maximum of findings of one kind on a page."""
_BESIDE: Final = ("QUARANTINED", "EXPIRED")
"""Notes that appear beside the verdict."""
_SELDOM: Final = ("quarantined", "dropped", "expired")
_FIGURES: Final = ("waiting", "moved", "dead", *_SELDOM, "lost")
_MOST_BARS: Final = 1_000
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"
_PANEL_WIDTH: Final = 460
_PATTERNS: Final = ((60_000, "%H:%M"), (3_600_000, "%m-%d %H:00"), (86_400_000, "%Y-%m-%d"))

Words = Mapping[str, str]


def render_report(
    summary: Mapping[str, Any],
    findings: Sequence[Mapping[str, Any]],
    *,
    bootstrap_servers: str,
    topic_prefix: str,
    language: str = "en",
) -> str:
    """Return the page as text.

    Args:
        summary: the result of `summarise`.
        findings: rows of findings and notes; at most `SHOWN_OF_A_KIND` of each kind are shown.
        bootstrap_servers: the brokers of the topics.
        topic_prefix: the prefix of the installation's topics.
        language: `en` or `zh`.

    Raises:
        IllegalSetting: another language.
    """
    if language not in LANGUAGES:
        raise IllegalSetting(f"language {language!r} is unknown; use one of: {', '.join(LANGUAGES)}")
    words = WORDS[language]
    style = files("reconsume.spark_connectors.report").joinpath("page.css").read_text(encoding="utf-8")
    body = [
        _head(summary, words, bootstrap_servers, topic_prefix),
        _findings(summary["findings"], findings, words, "findings"),
        _conservation(summary["groups"], words),
        _times(summary["times"], words),
        _lateness(summary["levels"], words),
        _tries(summary["tries"], words),
        _causes(summary["causes"], words),
        _findings(summary["notes"], findings, words, "notes"),
        f'<p class="soft">{_text(words["made"].format(version=__version__, now=_utc(dt.datetime.now(dt.UTC))))}</p>',
    ]
    return (
        f'<!doctype html>\n<html lang="{"zh-CN" if language == "zh" else "en"}">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{_text(words['title'])}</title>\n<style>\n{style}</style>\n</head>\n<body>\n"
        + "\n".join(part for part in body if part)
        + "\n</body>\n</html>\n"
    )


def _head(summary: Mapping[str, Any], words: Words, servers: str, prefix: str) -> str:
    wrong = sum(summary["findings"].values())
    found = words["findings_verdict_1" if wrong == 1 else "findings_verdict"]
    verdict = found.format(count=f"{wrong:,}") if wrong else words["ok"]
    if not wrong and not summary["attempts"]:
        verdict = words["empty"]
    since = words["ever"] if summary["since"] is None else _iso(summary["since"])
    window = words["window"].format(since=since, until=_iso(summary["until"]))
    where = words["where"].format(servers=servers, prefix=prefix)
    shown = [("sent_back", summary["attempts"]), *((name, summary[name]) for name in _FIGURES)]
    figures = "".join(
        f"<div><dt>{_text(words[name])}</dt><dd>{count:,}</dd></div>"
        for name, count in shown
        if count or name not in _SELDOM
    )
    return (
        f'<h1>{_text(words["title"])}</h1>\n<p class="soft">{_text(window)}<br>{_text(where)}</p>\n'
        f'<p class="verdict {"bad" if wrong else "good"}">{_text(verdict)}</p>\n{_open_questions(summary, words)}'
        f'<dl class="figures">{figures}</dl>'
    )


def _open_questions(summary: Mapping[str, Any], words: Words) -> str:
    """Return what the verdict leaves open: records that wait for a person, or were not judged."""
    notes = summary["notes"]
    told = [words[f"beside_{kind}"].format(count=f"{notes[kind]:,}") for kind in _BESIDE if notes.get(kind)]
    return "".join(f'<p class="verdict open">{_text(one)}</p>\n' for one in told)


def _conservation(groups: Sequence[Mapping[str, Any]], words: Words) -> str:
    names = ["waiting", "moved", "dead"]
    names += [name for name in _SELDOM if any(group[name] for group in groups)]
    known = any(group["consumed"] or group["unread"] for group in groups)
    header = [words["group"], *(words[name] for name in ("sent_back", *names)), words["balance"]]
    if known:
        header += [words["consumed"], words["unread"]]
    rows = []
    for group in groups:
        balance = f'<span class="good">{_text(words["balanced"])}</span>'
        if left := group["lost"]:
            balance = f'<span class="bad balance">{_text(words["lost"])} {left:,}</span>'
        cells = [_text(group["group"] or "–"), *(f"{group[name]:,}" for name in ("sent_back", *names)), balance]
        rows.append(cells + ([f"{group[name]:,}" for name in ("consumed", "unread")] if known else []))
    none = f'<p class="soft">{_text(words["none"])}</p>'
    text = words["conservation_text"] + (f" {words['consumed_text']}" if known else "")
    return _section(words["conservation"], text, _table(header, rows) if rows else none)


def _times(times: Mapping[str, Any], words: Words) -> str:
    bars, step = times["bars"][-_MOST_BARS:], times["step_ms"]
    if not bars:
        return ""
    found = {bar["at_ms"]: (bar["sent_back"] - bar["dead"], bar["dead"]) for bar in bars}
    steps = range(bars[0]["at_ms"], bars[-1]["at_ms"] + 1, step)
    # A step without send-backs is a gap, not left out; gaps of years come from producers' clocks.
    if len(steps) <= _MOST_BARS:
        found = dict.fromkeys(steps, (0, 0)) | found
    pattern = next(pattern for limit, pattern in _PATTERNS if step <= limit)
    labels = [dt.datetime.fromtimestamp(at / 1000, dt.UTC).strftime(pattern) for at in found]
    series = [
        ("a", words["retries_series"], [retries for retries, _ in found.values()]),
        ("b", words["dead_series"], [dead for _, dead in found.values()]),
    ]
    legend = "".join(f'<span><i class="{name}"></i>{_text(shown)}</span>' for name, shown, _ in series)
    chart = f'<div class="legend">{legend}</div>' + stacked_columns(labels, series, words["times"], width=1032)
    return _section(words["times"], words["times_text"], chart)


def _lateness(levels: Sequence[Mapping[str, Any]], words: Words) -> str:
    header = [words["delay"], words["sent_back"], words["delivered"], "min", "p50", "p99", "max"]
    known = [level for level in levels if "bars" in level]
    if not known:
        return ""
    rows = [
        [
            format_duration(level["delay_ms"]),
            f"{level['sent_back']:,}",
            f"{sum(level['bars']):,}",
            *(_duration(level[name]) for name in ("min", "p50", "p99", "max")),
        ]
        for level in known
    ]
    labels = ["≤ 0" if limit == 0 else _duration(limit) for limit in LATENESS_LIMITS_MS] + [words["more"]]
    panels = "".join(
        f"<div><h3>{_text(words['delay'])} {format_duration(level['delay_ms'])}</h3>"
        + columns(labels, level["bars"], words["lateness"], width=_PANEL_WIDTH)
        + "</div>"
        for level in known
    )
    return _section(
        words["lateness"], words["lateness_text"], _table(header, rows) + f'<div class="panels">{panels}</div>'
    )


def _tries(tries: Sequence[Mapping[str, int]], words: Words) -> str:
    if not tries:
        return ""
    labels = [
        words["retries_1"] if one["retries"] == 1 else words["retries"].format(count=one["retries"]) for one in tries
    ]
    chart = columns(labels, [one["messages"] for one in tries], words["tries"])
    return _section(words["tries"], words["tries_text"], chart)


def _causes(causes: Sequence[Mapping[str, Any]], words: Words) -> str:
    if not causes:
        return ""
    rows = [[_text(one["cause"]), f"{one['count']:,}"] for one in causes]
    return _section(words["causes"], "", _table([words["cause"], words["count"]], rows))


def _findings(kinds: Mapping[str, int], findings: Sequence[Mapping[str, Any]], words: Words, name: str) -> str:
    if not kinds:
        return ""
    parts = []
    for kind, count in kinds.items():
        of_kind = [one for one in findings if one["kind"] == kind][:SHOWN_OF_A_KIND]
        parts.append(f'<h3>{kind} · {count:,}</h3><p class="soft">{_text(words[kind])}</p>')
        parts += [_finding(one, words) for one in of_kind]
        if len(of_kind) < count:
            parts.append(f'<p class="soft">{_text(words["shown"].format(shown=len(of_kind), count=f"{count:,}"))}</p>')
    return _section(words[name], "", "".join(parts))


def _finding(one: Mapping[str, Any], words: Words) -> str:
    facts = [(words["group"], one["group"]), (words["attempt"], one["attempt"])]
    facts += [(words[name], _utc(one[name])) for name in ("asked", "appended", "due", "delivered") if one[name]]
    if one["lateness_ms"] is not None:
        facts.append((words["late_by"], _duration(one["lateness_ms"])))
    facts += [(words[name], one[name]) for name in ("damage", "cause") if one[name]]
    shown = "".join(f"<span>{_text(name)}: {_text(value)}</span>" for name, value in facts if value is not None)
    commands = "\n".join(one["commands"])
    return (
        f'<div class="finding"><b>{_text(one["origin_message_id"])}</b><br>{shown}'
        f'<pre aria-label="{_text(words["commands"])}">{_text(commands)}</pre></div>'
    )


def _section(title: str, text: str, content: str) -> str:
    about = f'<p class="soft">{_text(text)}</p>' if text else ""
    return f"<section><h2>{_text(title)}</h2>{about}{content}</section>"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table; cells of rows are already markup."""
    head = "".join(f"<th>{_text(name)}</th>" for name in header)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _text(value: object) -> str:
    """Return text as harmless HTML, without control characters that rearrange it."""
    return escape(visible(str(value)))


def _duration(milliseconds: int) -> str:
    sign, size = ("−" if milliseconds < 0 else ""), abs(milliseconds)
    for limit, unit, name in ((1_000, 1, "ms"), (60_000, 1_000, "s"), (3_600_000, 60_000, "min")):
        if size < limit:
            return f"{sign}{size / unit:.3g} {name}"
    return f"{sign}{size / 3_600_000:,.3g} h"


def _iso(moment: str) -> str:
    return _utc(dt.datetime.fromisoformat(moment))


def _utc(moment: dt.datetime) -> str:
    """Format a moment; Spark returns local times without a zone."""
    return moment.astimezone(dt.UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + " UTC"
