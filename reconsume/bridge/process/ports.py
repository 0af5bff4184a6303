"""The default ports of each role, different from those of common applications."""

from __future__ import annotations

from typing import Final

__all__ = ["CONSOLE_MANAGEMENT", "CONSOLE_PAGES", "SCHEDULER_MANAGEMENT", "SIDECAR_API", "SIDECAR_MANAGEMENT"]

SIDECAR_API: Final = 15080
SIDECAR_MANAGEMENT: Final = 15081
SCHEDULER_MANAGEMENT: Final = 15082
CONSOLE_PAGES: Final = 15083
CONSOLE_MANAGEMENT: Final = 15084
