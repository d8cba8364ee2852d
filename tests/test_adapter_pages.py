"""`make pages` puts the wheel of this checkout in the place of the package that a section installs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.adapter_pages import PINS, list_packages, read_install, read_sections

SECTIONS = read_sections()


def test_every_framework_with_pins_has_a_section() -> None:
    assert set(SECTIONS) == {pins.stem for pins in PINS.glob("*.in")}


@pytest.mark.parametrize("name", SECTIONS)
def test_a_section_installs_this_checkout(name: str) -> None:
    own, *others = list_packages(read_install(SECTIONS[name]), Path("/wheels/own.whl"))
    assert own == f"lamina-context[{name}] @ file:///wheels/own.whl"
    assert all("lamina" not in package for package in others)
