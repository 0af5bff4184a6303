"""One hypothesis profile: enough examples to hurt, few enough for a fast suite."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# A busy build machine says nothing about the code, so neither a deadline nor slow generation fails a test.
settings.register_profile("rules", max_examples=75, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("rules")
