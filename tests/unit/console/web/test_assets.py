"""What pages refer to: the library that is vendored is the one that was published."""

from __future__ import annotations

import hashlib
from pathlib import Path

from reconsume import console
from tests.support.consoles import Browser

STATIC = Path(console.__path__[0]) / "static"
HTMX_2_0_11 = "d6fdc75f204e6bdefa99b69bf1e6d4ac69b8a364f77929f45c13476b4000f717"


def test_htmx_is_as_it_was_published_with_its_licence(browser: Browser) -> None:
    served = browser.get("/htmx.js")
    assert served.headers["content-type"].startswith("text/javascript")
    assert hashlib.sha256((STATIC / "htmx.js").read_bytes()).hexdigest() == HTMX_2_0_11
    assert hashlib.sha256(served.text.encode()).hexdigest() == HTMX_2_0_11
    assert (STATIC / "htmx-LICENSE.txt").read_text("utf-8").startswith("Zero-Clause BSD")
