"""The document of the API in docs/ is the one that is served."""

from __future__ import annotations

from pathlib import Path

from reconsume.sidecar.api.api import openapi_text

DOCUMENT = Path(__file__).parents[4] / "docs" / "openapi.json"


def test_the_document_is_current() -> None:
    program = (
        "from pathlib import Path; from reconsume.sidecar.api.api import write_openapi; "
        "write_openapi(Path('docs/openapi.json'))"
    )
    assert DOCUMENT.read_text(encoding="utf-8") == openapi_text(), f'write it anew: python -c "{program}"'
