"""The site has every page, and its picture is what the demo gives. `make check` builds it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml  # type: ignore[import-untyped]

from lamina.cli.demo_session import SEED
from lamina.cli.inspect import DemoSource
from lamina.inspector import Inspector, Sessions
from lamina.inspector.views import show_session
from tools.site import ADDED_PAGES, ROOT


def test_pages_of_the_root_exist() -> None:
    assert [source for source in ADDED_PAGES if not (ROOT / source).is_file()] == []


def test_the_picture_of_the_readme_is_that_of_the_demo() -> None:
    """`make screenshots` draws it. Its sum and its cuts are those of the session as it is now."""
    inspector = Inspector(Sessions(sources=[DemoSource(SEED)]))
    session_id = next(each.id for each in inspector.sessions.summaries() if not each.parent)
    totals = show_session(inspector, session_id)["totals"]
    drawing = (ROOT / "docs" / "pictures" / "session.svg").read_text(encoding="utf-8")
    assert f">${totals['dollars']:.2f} instead of ${totals['without']:.2f}<" in drawing
    assert drawing.count("✂") == totals["cuts"]


def test_no_list_of_the_navigation_is_longer_than_nine() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    nav = yaml.safe_load(text[text.index("\nnav:\n") :])["nav"]
    assert [title for title, entries in walk_lists(nav) if len(entries) > 9] == []


def walk_lists(entries: list[Any], title: str = "nav") -> Iterator[tuple[str, list[Any]]]:
    yield title, entries
    for entry in entries:
        for name, below in entry.items():
            if isinstance(below, list):
                yield from walk_lists(below, name)
