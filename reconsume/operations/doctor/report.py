"""The findings of the doctor."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from reconsume.delay_levels.errors import KafkaNotReachable, ReconsumeError


@dataclass(frozen=True, slots=True)
class Finding:
    """A difference from the expected state.

    Attributes:
        check: the part of the examination that found it.
        weight: a `problem` breaks a function or a guarantee, a `warning` may be intended.
        what: the difference and its place.
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
        """Return whether there is no problem; warnings do not count."""
        return all(one.weight != "problem" for one in self.findings)

    def problem(self, check: str, what: str, mend: str) -> None:
        """Add a problem."""
        self.findings.append(Finding(check, "problem", what, mend))

    def warning(self, check: str, what: str, mend: str) -> None:
        """Add a warning: a difference that may be intended."""
        self.findings.append(Finding(check, "warning", what, mend))

    @contextmanager
    def looking_at(self, what: str) -> Iterator[None]:
        """Report a refusal by the cluster as a skipped check; no answer ends the examination."""
        try:
            yield
        except KafkaNotReachable:
            raise
        except ReconsumeError as error:
            self.skipped.append(f"{what}: {error}")
