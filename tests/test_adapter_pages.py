"""`make pages` puts the wheel of this checkout in the place of the package that a page installs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.adapter_pages import PAGES, list_packages, read_install


@pytest.mark.parametrize("name", sorted(path.stem for path in PAGES.glob("*.md")))
def test_a_page_installs_this_checkout(name: str) -> None:
    page = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    own, *others = list_packages(read_install(page), Path("/wheels/own.whl"))
    assert own == f"lamina-context[{name}] @ file:///wheels/own.whl"
    assert all("lamina" not in package for package in others)
