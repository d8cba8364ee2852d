"""The site has every page, links between its pages hold on it, and its picture is what the demo gives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from mkdocs.exceptions import PluginError

from tools import picture
from tools.site import ADDED_PAGES, REPOSITORY, ROOT, on_post_page, turn_links, write_list


@pytest.mark.parametrize(
    ("source", "link", "on_the_site"),
    [
        ("README.md", "[a](docs/wrap.md)", "[a](wrap.md)"),
        ("README.md", "![a](docs/session.svg)", "![a](session.svg)"),
        ("README.md", "[a](docs/sessions.md#settings)", "[a](sessions.md#settings)"),
        ("README.md", "[a](LICENSE)", f"[a]({REPOSITORY}/LICENSE)"),
        ("README.md", "[a](https://example.org/b)", "[a](https://example.org/b)"),
        ("docs/kinds.md", "[a](../ARCHITECTURE.md#words)", "[a](architecture.md#words)"),
        ("docs/kinds.md", "[a](../CONTRIBUTING.md#tests)", f"[a]({REPOSITORY}/CONTRIBUTING.md#tests)"),
        ("docs/laws.md", "[a](../src/lamina/core/laws.py)", f"[a]({REPOSITORY}/src/lamina/core/laws.py)"),
        ("docs/laws.md", "[a](#b)", "[a](#b)"),
    ],
)
def test_links_are_turned(source: str, link: str, on_the_site: str) -> None:
    assert turn_links(link, source) == on_the_site


def test_links_in_code_are_left_alone() -> None:
    page = "```markdown\n[a](docs/wrap.md)\n```\n[b](docs/wrap.md)\n"
    assert turn_links(page, "README.md") == "```markdown\n[a](docs/wrap.md)\n```\n[b](wrap.md)\n"


def test_pages_of_the_root_exist() -> None:
    assert [source for source in ADDED_PAGES if not (ROOT / source).is_file()] == []


@pytest.mark.parametrize(
    "tag",
    [
        '<script src="https://unpkg.com/a"></script>',
        '<link href="//fonts.example.org/a.css" rel="stylesheet">',
        "<img src=https://example.org/a.png>",
    ],
)
def test_a_page_with_an_outside_asset_is_refused(tag: str) -> None:
    with pytest.raises(PluginError, match="no outside assets"):
        on_post_page(f"<html>{tag}</html>", page=_Page())


def test_a_link_to_elsewhere_is_allowed() -> None:
    html = '<a href="https://example.org">a</a><img src="session.svg">'
    assert on_post_page(html, page=_Page()) == html


def test_the_picture_of_the_readme_is_what_the_demo_gives() -> None:
    drawing = picture.draw_session(picture.run_demo())
    assert picture.PICTURE.read_text(encoding="utf-8") == drawing


def test_programs_that_read_get_a_list_of_the_pages() -> None:
    pages = {
        "wrap.md": "# A wrapped client\n\n`wrap` returns. It fits.\n",
        "a/b.md": "# B\n\nOne thing. Another.\n",
    }
    assert write_list(pages, "Decides.") == (
        "# lamina\n\n> Decides.\n\n## Pages\n\n- [A wrapped client](wrap.html)\n- [B](a/b.html): One thing.\n"
    )


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


class _Page:
    file = type("File", (), {"src_uri": "page.md"})()
