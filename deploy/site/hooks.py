"""Additions to MkDocs: pages outside `docs/`, and links to files that are not pages."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any, Final

from mkdocs.structure.files import File, Files  # of the site's own environment

ROOT: Final = Path(__file__).parents[2]
OUTSIDE: Final = {"CHANGELOG.md": "changes.md", "deploy/helm/reconsume/README.md": "chart.md"}
"""Pages of the repository that the site shows, and their names there."""

_LINK: Final = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s#:]+)(#[^)\s]*)?\)")
_MARK: Final = re.compile(r"^(```\w+)[^\n]*")
"""`python alone` and the like are for the tests; here it is Python."""
_FENCE: Final = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


def on_config(config: Any) -> Any:
    """List the runbooks in the navigation."""
    runbooks = sorted(path.name for path in (ROOT / "docs" / "runbooks").glob("*.md"))
    for section in config.nav:
        for entry in section.get("Operate", ()):
            if isinstance(entry, dict) and entry.get("Runbooks") == "runbooks/*":
                entry["Runbooks"] = [
                    f"runbooks/{name}" for name in sorted(runbooks, key=lambda one: one != "README.md")
                ]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages from outside."""
    for path, name in OUTSIDE.items():
        files.append(File.generated(config, name, content=(ROOT / path).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, files: Files, **_: Any) -> str:
    """Point links at the pages of the site; a link to a file that the site does not have becomes its path."""
    here = next((path for path, name in OUTSIDE.items() if name == page.file.src_uri), f"docs/{page.file.src_uri}")

    def mended(match: re.Match[str]) -> str:
        text, target, anchor = match[1], posixpath.normpath(posixpath.join(posixpath.dirname(here), match[2])), match[3]
        name = OUTSIDE.get(target) or target.removeprefix("docs/")
        if files.get_file_from_path(name) is not None and (target in OUTSIDE or target.startswith("docs/")):
            return f"[{text}]({posixpath.relpath(name, posixpath.dirname(page.file.src_uri) or '.')}{anchor or ''})"
        if not (ROOT / target).exists():
            return match[0]  # --strict reports it
        return text if text.strip("`") == target else f"{text} (`{target}`)"

    return "".join(
        _MARK.sub(r"\1", part, count=1) if part.startswith("```") else _LINK.sub(mended, part)
        for part in _FENCE.split(markdown)
    )
