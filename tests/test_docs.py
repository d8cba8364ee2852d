"""The documentation is true: its blocks run and print what it says, its links lead somewhere."""

from __future__ import annotations

import importlib
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from tools.docs import ROOT, PageError, broken_links, check, pages, write

NO_MODULES = {"lamina.sealed", "lamina.upstream"}
"""Names on pages that look like modules: a workspace in a store, and an attribute that the gateway adds."""

TELEMETRY_NAMES = set(
    re.findall(r'"(lamina\.[a-z_.]+)"', (ROOT / "src/lamina/telemetry/otel.py").read_text())
)
"""Names of spans, events, attributes and metrics. They look like modules, too."""

PRINTS = "```python\nx = 1\nprint(x + 1)\n```\n"


def page_with(folder: Path, text: str) -> Path:
    page = folder / "page.md"
    page.write_text(text, encoding="utf-8")
    return page


@pytest.mark.parametrize("page", pages(ROOT), ids=lambda page: str(page.relative_to(ROOT)))
def test_blocks_of_the_page_run_and_print_what_it_says(page: Path) -> None:
    assert [(each.place, each.printed) for each in check(page)] == []


def test_links_of_every_page_resolve() -> None:
    assert [link for page in pages(ROOT) for link in broken_links(page)] == []


def test_modules_and_names_on_every_page_exist() -> None:
    for page in pages(ROOT):
        text = page.read_text(encoding="utf-8")
        names = set(re.findall(r"`(lamina(?:\.[a-z_]+)*\.[A-Za-z_]+)[`(]", text))
        missing = [name for name in sorted(names - NO_MODULES - TELEMETRY_NAMES) if not exists(name)]
        assert missing == [], page


def exists(name: str) -> bool:
    """Whether a dotted name is a module, or something in one.

    A module is found without importing it, since the framework of an adapter may not be installed.
    """
    module, _, attribute = name.rpartition(".")
    try:
        is_module = find_spec(name) is not None
    except ModuleNotFoundError:  # `module` is not a package
        is_module = False
    if is_module:
        return True
    try:
        return hasattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("lamina"):
            raise
        return False


@pytest.mark.parametrize("said", ["3\n", "", "2\n2\n", "2 \n", "2\n\n"])
def test_wrong_output_is_reported_and_rewritten(tmp_path: Path, said: str) -> None:
    page = page_with(tmp_path, f"{PRINTS}<!-- output -->\n```\n{said}```\nafter\n")
    (difference,) = check(page)
    assert (difference.expected, difference.printed) == (said, "2\n")
    write(page, [difference])
    assert page.read_text(encoding="utf-8") == f"{PRINTS}<!-- output -->\n```\n2\n```\nafter\n"


def test_a_block_not_run_says_why(tmp_path: Path) -> None:
    block = "```python\nraise SystemExit\n```\n"
    assert check(page_with(tmp_path, f"<!-- not run: needs a key -->\n{block}")) == []
    with pytest.raises(PageError, match=r"page\.md:2: say why"):
        check(page_with(tmp_path, f"<!-- not run -->\n{block}"))


@pytest.mark.parametrize("before", ["", "prose\n", f"{PRINTS}prose\n", "<!-- not run: slow -->\n" + PRINTS])
def test_output_of_nothing_is_refused(tmp_path: Path, before: str) -> None:
    with pytest.raises(PageError, match="does not directly follow"):
        check(page_with(tmp_path, f"{before}<!-- output -->\n```\n2\n```\n"))


def test_an_error_names_the_line_of_the_block(tmp_path: Path) -> None:
    with pytest.raises(PageError, match=r"page\.md:2: ZeroDivisionError"):
        check(page_with(tmp_path, "# title\n```python\n1 / 0\n```\n"))
    with pytest.raises(PageError, match=r"page\.md:3: invalid syntax"):
        check(page_with(tmp_path, "# title\n```python\na b\n```\n"))
    with pytest.raises(PageError, match=r"page\.md:2: the block is not closed"):
        check(page_with(tmp_path, "# title\n```python\n1\n"))


@pytest.mark.parametrize(
    "link", ["[a](b.md)", '[a](b.md "c")', "![a](b/c.png#d)", "[a]: b.md", '<img src="b.svg">']
)
def test_a_link_to_a_missing_file_is_reported(tmp_path: Path, link: str) -> None:
    assert len(broken_links(page_with(tmp_path, f"{link}\n"))) == 1


@pytest.mark.parametrize(
    "link", ["[a](page.md#b)", "[a](#b)", "[a](https://example.org)", "`[a](b)`", "```\n[a](b)\n```"]
)
def test_other_links_are_left_alone(tmp_path: Path, link: str) -> None:
    assert broken_links(page_with(tmp_path, f"{link}\n")) == []
