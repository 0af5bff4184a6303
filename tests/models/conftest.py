"""The same profile of hypothesis as for the unit tests."""

import tests.unit.conftest  # noqa: F401
