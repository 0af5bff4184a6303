"""`python -m deploy.generate` writes the generated files; `--check` lists those that are out of date."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from deploy.generate.dashboards import DASHBOARDS, dashboard_json
from deploy.generate.drawings import DRAWINGS
from deploy.generate.pages import PAGES
from deploy.generate.readme import with_values_table
from deploy.generate.rules import chart_rocketmq_rules, plain_rocketmq_rules, plain_rules, runbook_index
from deploy.generate.schema import values_schema
from deploy.generate.values import CHART, read_values

__all__ = ["generated", "main", "stale"]

DEPLOY = CHART.parents[1]
DOCS = DEPLOY.parent / "docs"


def generated() -> dict[Path, str]:
    """Return the content of every generated file."""
    values = read_values()
    dashboards = {uid: dashboard_json(uid) for uid in DASHBOARDS}
    return {
        CHART / "values.schema.json": json.dumps(values_schema(values), indent=1, ensure_ascii=False) + "\n",
        CHART / "README.md": with_values_table(CHART / "README.md", values),
        **{DOCS / name: page() for name, page in PAGES.items()},
        DOCS / "runbooks" / "README.md": runbook_index(),
        **{DOCS / "images" / name: draw() for name, draw in DRAWINGS.items()},
        CHART / "files" / "rocketmq-names.yaml": chart_rocketmq_rules(),
        DEPLOY / "alerts" / "reconsume.yaml": plain_rules(),
        DEPLOY / "alerts" / "rocketmq-names.yaml": plain_rocketmq_rules(),
        **{DEPLOY / "dashboards" / f"{uid}.json": text for uid, text in dashboards.items()},
        **{CHART / "files" / "dashboards" / f"{uid}.json": text for uid, text in dashboards.items()},
    }


def stale() -> list[str]:
    """Return the files that are out of date."""
    return [
        str(path.relative_to(DEPLOY.parent))
        for path, text in generated().items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]


def main() -> None:
    """Write the files, or check them."""
    if "--check" in sys.argv[1:]:
        if old := stale():
            sys.exit(f"not current: {', '.join(old)}; run: python -m deploy.generate")
        return
    for path, text in generated().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
