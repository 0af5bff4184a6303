"""Pages that are made from the code are those that the code makes now."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel

from deploy.generate.pages import PAGES
from reconsume.bridge.metrics.catalogue import CATALOGUE
from reconsume.bridge.metrics.spec import MetricSpec
from reconsume.bridge.process.settings import Settings

DOCS = Path(__file__).parents[3] / "docs"


def leaves(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, str | None]]:
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from leaves(field.annotation, f"{name}.")
        else:
            yield prefix + name, field.description


@pytest.mark.parametrize(("path", "description"), list(leaves(Settings)))
def test_every_setting_is_on_the_page_with_its_meaning(path: str, description: str | None) -> None:
    assert description
    assert f"| `{path}` |" in PAGES["settings.md"]()


@pytest.mark.parametrize("spec", CATALOGUE, ids=lambda spec: spec.name)
def test_every_metric_is_on_the_page(spec: MetricSpec) -> None:
    assert f"| `{spec.exported}` | {spec.kind.value} |" in PAGES["metrics.md"]()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_current(name: str) -> None:
    assert (DOCS / name).read_text(encoding="utf-8") == PAGES[name](), "run: make docs"


@pytest.mark.parametrize("readme", ["README.md", "README.zh-CN.md"])
def test_the_readme_names_the_topics_of_50_groups_as_the_cost_page_does(readme: str) -> None:
    told = re.search(r"\[(\d+)\]\(docs/cost.md\)", (DOCS.parent / readme).read_text(encoding="utf-8"))
    computed = re.search(r"^\| 50 \| reconsume \| (\d+) \|", PAGES["cost.md"](), re.MULTILINE)
    assert told is not None
    assert computed is not None
    assert told[1] == computed[1]
