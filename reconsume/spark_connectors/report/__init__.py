"""The report of a reconciliation: one HTML file."""

from __future__ import annotations

from reconsume.spark_connectors.report.page import SHOWN_OF_A_KIND, render_report
from reconsume.spark_connectors.report.words import LANGUAGES, WORDS

__all__ = ["LANGUAGES", "SHOWN_OF_A_KIND", "WORDS", "render_report"]
