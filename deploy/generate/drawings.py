"""The drawings of README and docs, with topic names and delays from the code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from deploy.generate.svg import Drawing, Kind
from reconsume.delay_levels.rules.durations import format_duration
from reconsume.delay_levels.rules.levels import DEFAULT_LEVEL_TABLE, DelayLevels
from reconsume.delay_levels.wire.names import TopicNames

__all__ = ["DRAWINGS"]

_NAMES: Final = TopicNames()
_LEVELS: Final = DelayLevels.parse(DEFAULT_LEVEL_TABLE)
_GROUP: Final = "departures"
_FIRST: Final = _LEVELS.delays_ms[2]
_DELAY: Final = _NAMES.delay(_FIRST)
_RETRY: Final = _NAMES.retry(_GROUP)
_DEAD: Final = _NAMES.dead_letter(_GROUP)


def _flow() -> str:
    drawing = Drawing(
        "How a failed message comes back",
        "A consumer sends a failed message back to a delay topic. When it is due, a scheduler moves it in one Kafka "
        "transaction to the retry topic of the group, which the consumer reads too. After the last attempt it goes to "
        "the dead-letter topic.",
        880,
        330,
    )
    second, last = (format_duration(_LEVELS.delays_ms[index]) for index in (3, -1))
    drawing.box("topic", 24, 40, 150, 64, "your topic", "(flights)")
    drawing.box("process", 250, 40, 190, 64, "your consumer", f"(group {_GROUP})")
    drawing.box("topic", 590, 30, 264, 84, "delay topics", f"{_DELAY},", f"(.{second}, … .{last})")
    drawing.box("process", 627, 212, 190, 64, "scheduler", "(one Kafka transaction)")
    drawing.box("topic", 222, 160, 246, 60, "retry topic", _RETRY)
    drawing.box("dead", 222, 252, 246, 60, "dead-letter topic", _DEAD)
    drawing.arrow("M174 72H244")
    drawing.arrow("M440 72H584")
    drawing.note(512, 60, "failed:")
    drawing.note(512, 92, "send back")
    drawing.arrow("M722 114V206")
    drawing.note(762, 165, "when due")
    drawing.arrow("M627 236C560 226 540 190 474 190")
    drawing.note(572, 186, "try again")
    drawing.arrow("M627 252C570 262 540 282 474 282")
    drawing.note(578, 300, "attempts used up")
    drawing.arrow("M345 160V110")
    return drawing.text()


def _topics() -> str:
    drawing = Drawing(
        "The topics of an installation with two groups",
        "Each group has a retry topic and a dead-letter topic. All groups share the delay topics, the inbox, and the "
        "topics for settings, withdrawals, positions, states, jobs and the quarantine.",
        880,
        432,
    )
    shared = [format_duration(delay) for delay in _LEVELS.delays_ms[:4]]
    drawing.box("frame", 24, 44, 320, 364)
    drawing.note(184, 32, "for each group", style="")
    for at, group in enumerate((_GROUP, "billing")):
        top = 76 + 168 * at
        drawing.box("topic", 44, top, 280, 52, _NAMES.retry(group), "(failed messages return here)")
        drawing.box("dead", 44, top + 64, 280, 52, _NAMES.dead_letter(group), "(messages that never succeeded)")
    drawing.box("frame", 372, 44, 484, 364)
    drawing.note(614, 32, "shared by all groups", style="")
    drawing.box(
        "topic", 392, 62, 444, 74, f"{_NAMES.prefix}DELAY.*", f"({', '.join(shared)}, … one topic for each duration)"
    )
    others: tuple[tuple[Kind, str, str], ...] = (
        ("topic", _NAMES.send_back, "inbox"),
        ("topic", _NAMES.groups, "settings"),
        ("topic", _NAMES.cancel, "withdrawals"),
        ("topic", _NAMES.withdrawn, "known withdrawals"),
        ("topic", _NAMES.positions, "progress of schedulers"),
        ("topic", _NAMES.dead_letter_states, "states of dead letters"),
        ("topic", _NAMES.jobs, "jobs on dead letters"),
        ("dead", _NAMES.quarantine, "undeliverable records"),
    )
    for at, (kind, name, words) in enumerate(others):
        drawing.box(kind, 392 + 230 * (at % 2), 152 + 64 * (at // 2), 214, 52, name, f"({words})")
    return drawing.text()


def _life_of_a_message() -> str:
    drawing = Drawing(
        "The life of a message that fails once",
        "The consumer polls the message, the listener fails, the consumer writes a copy to the delay topic and commits "
        "its offset. After the wait the scheduler writes the message to the retry topic and its own offset in one "
        "transaction. The consumer polls it again and the listener succeeds.",
        880,
        540,
    )
    places = {"flights": 80, "consumer": 240, "delay": 440, "scheduler": 620, "retry": 780}
    titles: tuple[tuple[Kind, int, str, str], ...] = (
        ("topic", 80, "your topic", "(flights)"),
        ("process", 240, "consumer", "(and listener)"),
        ("topic", 440, "delay topic", f"({_DELAY})"),
        ("process", 620, "scheduler", "(any worker)"),
        ("topic", 780, "retry topic", f"({_RETRY.removeprefix(_NAMES.prefix)})"),
    )
    for kind, x, title, below in titles:
        width = {440: 190, 780: 160}.get(x, 140)
        drawing.box(kind, x - width // 2, 18, width, 56, title, below)
        drawing.life(x, 74, 524)

    def step(y: int, start: str, end: str, text: str) -> None:
        left, right = places[start], places[end]
        drawing.note((left + right) // 2, y - 8, text, style="over")
        drawing.arrow(f"M{left} {y}H{right + (-3 if right > left else 3)}")

    step(112, "flights", "consumer", "1. poll")
    drawing.note(240, 140, "listener fails", style="over")
    step(176, "consumer", "delay", "2. send back: a copy")
    step(212, "delay", "consumer", "acknowledged")
    step(248, "consumer", "flights", "3. commit the offset")
    drawing.note(440, 288, f"waits for {format_duration(_FIRST)}", style="over")
    drawing.box("frame", 426, 308, 436, 104)
    drawing.note(644, 328, "one transaction", style="over")
    step(360, "scheduler", "retry", "4. write the message")
    step(396, "scheduler", "delay", "commit the offset")
    step(448, "retry", "consumer", "5. poll: the same message, reconsume_times = 1")
    drawing.note(240, 476, "listener succeeds", style="over")
    step(510, "consumer", "retry", "6. commit the offset")
    return drawing.text()


def _exactly_once() -> str:
    drawing = Drawing(
        "Two transactions carry a failed message to its retry",
        "With exactly_once, the consumer writes the send-back and its offset in one transaction. The scheduler writes "
        "the delivery, its offset and its position in another one. A crash at any moment commits all of a transaction "
        "or nothing.",
        880,
        300,
    )
    drawing.box("process", 24, 110, 130, 64, "consumer", "(exactly_once)")
    drawing.box("frame", 186, 44, 264, 200)
    drawing.note(318, 34, "transaction of the consumer")
    drawing.box("topic", 206, 66, 224, 60, "send-back", _DELAY)
    drawing.box("topic", 206, 162, 224, 60, "offset", "(of your topic, in its group)")
    drawing.box("process", 478, 110, 110, 64, "scheduler")
    drawing.box("frame", 616, 44, 246, 232)
    drawing.note(739, 34, "transaction of the scheduler")
    drawing.box("topic", 626, 60, 228, 60, "delivery", _RETRY)
    drawing.box("topic", 626, 134, 228, 56, "offset", "(of the delay topic)")
    drawing.box("topic", 626, 204, 228, 60, "position", _NAMES.positions)
    drawing.arrow("M154 130C176 130 176 96 200 96")
    drawing.arrow("M154 154C176 154 176 192 200 192")
    drawing.arrow("M430 96C462 96 462 130 476 134")
    drawing.arrow("M588 130C606 128 606 90 624 90")
    drawing.arrow("M588 142H624")
    drawing.arrow("M588 154C606 156 606 234 624 234")
    drawing.note(318, 270, "a crash commits all or nothing")
    return drawing.text()


def _reconcile() -> str:
    drawing = Drawing(
        "How reconcile accounts for every failed message",
        "Spark reads the delay, retry, dead-letter and quarantine topics, pairs each send-back with its delivery, and "
        "gives each attempt one state. Attempts without a state that is in order are findings.",
        880,
        300,
    )
    kinds = (
        (f"{_NAMES.prefix}DELAY.*", "(failed messages)"),
        (f"{_NAMES.prefix}RETRY.*", "(retries)"),
        (f"{_NAMES.prefix}DLQ.*", "(dead letters)"),
        (_NAMES.quarantine, "(undeliverable records)"),
    )
    for at, (name, told) in enumerate(kinds):
        drawing.box("dead" if at > 1 else "topic", 24, 20 + 66 * at, 220, 54, name, told)
        drawing.arrow(f"M244 {47 + 66 * at}C290 {47 + 66 * at} 290 148 328 148")
    drawing.box("process", 334, 108, 190, 80, "reconcile", "(a Spark job pairs each", "(send-back and delivery)")
    drawing.box("frame", 610, 20, 246, 168)
    drawing.note(733, 44, "in order", style="")
    drawing.note(733, 72, "delivered", "waiting", "dead letter", "in quarantine", "expired by retention", "dropped")
    drawing.box(
        "dead", 610, 204, 246, 76, "findings", "(lost, early, duplicate, orphaned:)", "(by name, with commands)"
    )
    drawing.arrow("M524 138C570 130 570 104 604 104")
    drawing.arrow("M524 158C570 166 570 242 604 242")
    return drawing.text()


DRAWINGS: Final[dict[str, Callable[[], str]]] = {
    "flow.svg": _flow,
    "topics.svg": _topics,
    "life-of-a-message.svg": _life_of_a_message,
    "exactly-once.svg": _exactly_once,
    "reconcile.svg": _reconcile,
}
"""The files of `docs/images`, and the functions that draw them."""
