"""A logger that the handlers of a program cannot turn against its threads."""

from __future__ import annotations

import asyncio
import logging

import pytest

from reconsume.bridge.process.safe_logger import SafeLogger

NAME = "reconsume.of.a.test"


class Unsayable:
    def __str__(self) -> str:
        raise ValueError("no text")


class Failing(logging.Handler):
    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error

    def handle(self, _record: logging.LogRecord) -> bool:
        raise self.error


def logged_with(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger(NAME), "handlers", [Failing(error)])
    SafeLogger(NAME).critical("the disk of the log is full")


@pytest.mark.parametrize("error", [OSError("full"), SystemExit(3), asyncio.CancelledError(), GeneratorExit()])
def test_what_a_handler_raises_stays_in_the_logger(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    logged_with(error, monkeypatch)


def test_an_interrupt_of_the_program_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(KeyboardInterrupt):
        logged_with(KeyboardInterrupt(), monkeypatch)


def test_so_does_a_text_that_cannot_be_made(caplog: pytest.LogCaptureFixture) -> None:
    del caplog  # its handler makes the text, and raises
    SafeLogger(NAME).warning("%s", Unsayable())


def test_a_record_has_the_place_of_the_caller_and_the_error(caplog: pytest.LogCaptureFixture) -> None:
    try:
        int("of the test")
    except ValueError:
        SafeLogger(NAME).exception("%s went wrong", "it")
    record = caplog.records[-1]
    assert (record.name, record.filename, record.message) == (NAME, "test_safe_logger.py", "it went wrong")
    assert record.exc_info is not None
    assert record.exc_info[0] is ValueError
