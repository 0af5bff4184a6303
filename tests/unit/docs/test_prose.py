"""Pages, docstrings, help and errors are plain technical English; links of pages lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from tests.support.docs.prose import (
    ROOT,
    broken_links,
    docstring_openings,
    error_texts,
    indentations,
    long_lines,
    openings,
    pages,
    phrases,
    programs,
)

ENGLISH: Final = [page for page in pages() if "zh-CN" not in page.name]
NAVIGATION: Final = (ROOT / "deploy" / "site" / "mkdocs.yml").read_text(encoding="utf-8")
INDEX: Final = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
PROPER: Final = ("Kafka", "Spark", "Failed", "Consumer", "Headers are expected to be")
"""Names, and confluent-kafka's own messages, which the drop-in repeats."""
LONGEST_SENTENCE: Final = 45
MENDABLE: Final = ("Illegal", "TopicNot", "RecordNot", "OffsetStore")
"""Beginnings of classes whose errors a user can mend."""
WAY_OUT: Final = re.compile(
    r"\b(must|use|write|leave|give|name|set|unset|run|pass|choose|make|create|call|needs?|see|register|keep|send|raise|"
    r"restore|stop|check|shorten|put|add|grant|such as|sign in|go back|select|return|subscribe|at most|at least|shows?|"
    r"reload|open|ask again)\b|(…\)?|: )$|^nothing was|already|only|has no UNIQ_KEY|delivered when it is due"
)
"""Words that say what to do; or the message ends with known values or an error that says it, or nothing can be done."""
GLOSSARY: Final = (
    *("send back", "level", "inbox", "lane", "GROUPS", "delay topic", "retry topic", "dead letter", "scheduler worker"),
    *("listener", "origin", "position", "quarantine", "retry policy", "reconsume times", "withdraw"),
)


def ids(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("page", ENGLISH, ids=ids)
def test_no_line_of_prose_is_longer_than_120_characters(page: Path) -> None:
    assert long_lines(page) == []


@pytest.mark.parametrize("page", pages(), ids=ids)
def test_lists_are_indented_as_the_site_needs_it(page: Path) -> None:
    assert indentations(page) == []


@pytest.mark.parametrize("page", ENGLISH, ids=ids)
def test_a_page_reads_as_english(page: Path) -> None:
    assert phrases(page) + openings(page) == []


@pytest.mark.parametrize("page", pages(), ids=ids)
def test_links_and_anchors_exist(page: Path) -> None:
    assert broken_links(page) == []


def test_docstrings_comments_help_and_logs_read_as_english() -> None:
    assert [found for program in programs() for found in phrases(program)] == []


def test_docstrings_begin_with_a_verb_or_a_noun() -> None:
    assert [found for program in programs() for found in docstring_openings(program)] == []


def test_errors_begin_with_their_subject() -> None:
    assert len(error_texts()) > 300
    wrong = [
        (where, text)
        for where, _, text in error_texts()
        if re.match(r"(There is|There are|It is|This is|You |no such )", text, re.IGNORECASE)
        or (text[:1].isupper() and text.split()[0].istitle() and not text.startswith(PROPER))
    ]
    assert wrong == []


def test_sentences_of_errors_are_short() -> None:
    sentences = [(where, one) for where, _, text in error_texts() for one in re.split(r"[.:;]\s|\n", text)]
    assert [found for found in sentences if len(found[1].split()) > LONGEST_SENTENCE] == []


def test_errors_that_a_user_can_mend_name_a_way_out() -> None:
    mendable = [(where, text) for where, kind, text in error_texts() if kind.startswith(MENDABLE)]
    assert len(mendable) > 250
    assert [(where, text) for where, text in mendable if not WAY_OUT.search(text)] == []


def test_the_readme_fits_on_three_screens() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


@pytest.mark.parametrize("word", GLOSSARY)
def test_the_glossary_has_the_word(word: str) -> None:
    rows = re.findall(r"^\| \*\*(.+?)\*\* \|", (ROOT / "docs/concepts.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert word in {one.strip() for row in rows for one in row.split(",")}


@pytest.mark.parametrize(
    "sentence", ["Of one topic nobody tells.", "no topic is to be seen", "more of them parted by commas"]
)
def test_a_turn_of_phrase_would_be_found(sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    page.write_text(sentence)
    monkeypatch.setattr("tests.support.docs.prose.ROOT", tmp_path)
    assert phrases(page)


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=ids)
def test_a_page_is_in_the_index_and_in_the_navigation(page: Path) -> None:
    assert f"- {page.name}" in NAVIGATION or f": {page.name}" in NAVIGATION, "add it to deploy/site/mkdocs.yml"
    assert page.name == "README.md" or f"({page.name}" in INDEX, "add it to docs/README.md"
