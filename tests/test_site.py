"""The site has every page, and its picture is what the demo gives. `make check` builds it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml  # type: ignore[import-untyped]

from tools import picture
from tools.site import ADDED_PAGES, ROOT


def test_pages_of_the_root_exist() -> None:
    assert [source for source in ADDED_PAGES if not (ROOT / source).is_file()] == []


def test_the_picture_of_the_readme_is_what_the_demo_gives() -> None:
    drawing = picture.draw_session(picture.run_demo())
    assert picture.PICTURE.read_text(encoding="utf-8") == drawing


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
