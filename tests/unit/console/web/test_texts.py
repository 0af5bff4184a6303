"""The words of the pages: both languages say everything, and nothing that no page shows."""

from __future__ import annotations

import re
import string
from pathlib import Path

import pytest

from reconsume import console
from reconsume.console.cluster import WISHES
from reconsume.console.web.texts import LANGUAGES, NAMES_OF_LANGUAGES, WORDS
from reconsume.delay_levels.wire.dead_letter_states import STATES
from reconsume.delay_levels.wire.resend import REASONS, SEND
from reconsume.operations.jobs.records import STATUSES
from reconsume.operations.jobs.work import OUTCOMES
from reconsume.operations.lives.message_life import DELIVERED, DIED, WAITED

HERE = Path(console.__path__[0])
TEMPLATES = sorted(HERE.glob("templates/*.html"))
BY_NUMBER = {f"error_{status}" for status in (400, 401, 403, 404, 405, 413, 421, 500, 503)}
IN_CODE = {"from_now", "ago", "units", "error_job", "error_ending", "error_busy"}
DECODED = {"as_json", "as_text", "as_avro", "as_protobuf", "as_json_schema", "as_hex"}


def placeholders(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}


def test_all_languages_have_the_same_words() -> None:
    assert set(LANGUAGES) == set(WORDS) == set(NAMES_OF_LANGUAGES)
    assert set(WORDS["en"]) == set(WORDS["zh"])
    for name, text in WORDS["en"].items():
        assert text.strip(), name
        assert WORDS["zh"][name].strip(), name
        assert placeholders(text) == placeholders(WORDS["zh"][name]), name


def test_no_word_hides_another_one() -> None:
    files = HERE.glob("web/texts*.py")
    written = [re.findall(r'^    "(\w+)": \(', file.read_text(encoding="utf-8"), re.MULTILINE) for file in files]
    names = [name for one in written for name in one]
    assert sorted(names) == sorted(WORDS["en"])


def test_chinese_is_chinese() -> None:
    plain = {name for name, text in WORDS["zh"].items() if not re.search(r"[\u4e00-\u9fff]", text)}
    assert plain <= {"of_reconsume"}


def test_the_pages_use_all_words_and_no_others() -> None:
    used = {name for file in TEMPLATES for name in re.findall(r"\bw\.(\w+)", file.read_text(encoding="utf-8"))}
    of_lives = {f"life_{kind}" for kind in (WAITED, DELIVERED, DIED)}
    of_jobs = of_lives | {*STATUSES, *OUTCOMES, *(f"job_{wish}" for wish in WISHES)}
    assert used | BY_NUMBER | IN_CODE | DECODED | of_jobs | set(STATES) | (set(REASONS) - {SEND}) == set(WORDS["en"])


@pytest.mark.parametrize("file", TEMPLATES, ids=lambda file: file.name)
def test_no_template_lets_markup_through_or_has_scripts_or_styles_of_its_own(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    ours = r"<script(?! src=./htmx\.js)|javascript:|<style|\sstyle=|\son\w+="
    assert not re.search(rf"\|\s*safe|autoescape|{ours}|https?://", text)
