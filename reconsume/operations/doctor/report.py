"""The findings of the doctor."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from reconsume.delay_levels.errors import KafkaNotReachable, ReconsumeError


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it should be.

    Attributes:
        check: which part of the examination found it.
        weight: a `problem` breaks something now or breaks a guarantee, a `warning` may be meant so.
        what: what is wrong, and where.
        mend: the command or the setting that fixes it.
    """

    check: str
    weight: Literal["problem", "warning"]
    what: str
    mend: str


@dataclass(slots=True)
class Report:
    """All findings, passed checks and skipped checks."""

    findings: list[Finding] = field(default_factory=list)
    passed: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    @property
    def healthy(self) -> bool:
        """Whether there is no problem; warnings are none."""
        return all(one.weight != "problem" for one in self.findings)

    def problem(self, check: str, what: str, mend: str) -> None:
        """Something is broken."""
        self.findings.append(Finding(check, "problem", what, mend))

    def warning(self, check: str, what: str, mend: str) -> None:
        """Something that may be meant so."""
        self.findings.append(Finding(check, "warning", what, mend))

    @contextmanager
    def looking_at(self, what: str) -> Iterator[None]:
        """Report a refusal by the cluster as skipped; no answer at all ends the examination."""
        try:
            yield
        except KafkaNotReachable:
            raise
        except ReconsumeError as error:
            self.skipped.append(f"{what}: {error}")
