"""The same bytes on every interpreter of this checkout, and the tools that find and compare them."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

import pytest

from lamina.dialects import DIALECTS
from tools.fingerprints import LAYOUTS, QUICK, QUICK_DIALECTS, digest, everything
from tools.interpreters import Environment, Interpreter, usable
from tools.matrix import differences, printed


def test_this_interpreter_and_the_one_farthest_from_it_make_the_same_bytes() -> None:
    """`make matrix` compares all of them, every night."""
    here = sys.version_info[:2]
    others = [each for each in usable() if each.interpreter.release != platform.python_version()]
    if not others:
        pytest.skip("no other Python here has what lamina needs; `make interpreters` installs it")
    other = max(others, key=lambda each: abs(_minor(each) - here[1]))
    here_made = {name: digest(make()) for name, make in everything(QUICK_DIALECTS).items()}
    made = {platform.python_version(): here_made, other.interpreter.release: printed(other, QUICK)}
    assert differences(made) == []


def _minor(environment: Environment) -> int:
    return int(environment.interpreter.release.split(".")[1])


def test_a_difference_names_what_differs_and_where() -> None:
    made = {"3.11.2": {"a": "1", "b": "2"}, "3.12.1": {"a": "1", "b": "3"}, "3.13.0": {"a": "1", "b": "3"}}
    assert differences(made) == ["b: different on Python 3.11.2"]
    assert differences({"3.11.2": {"a": "1"}, "3.12.1": {"a": "1"}}) == []


def test_an_interpreter_that_cannot_make_them_is_a_difference(tmp_path: Path) -> None:
    broken = script(tmp_path / "python", "echo no module >&2; exit 1")
    assert printed(Environment(Interpreter("3.99", broken), broken)) == {"the script itself": "no module\n"}


def test_the_fingerprints_speak_of_every_dialect_and_layout() -> None:
    names = everything()
    for dialect in DIALECTS:
        assert any(name.startswith("many scripts, ") and name.endswith(f", {dialect}") for name in names)
        assert f"fitted, {dialect}" in names
        assert f"attacks, {dialect}" in names
    for layout in LAYOUTS:
        assert any(name.startswith(f"many scripts, {layout}, ") for name in names)
    assert {"search", "chats", "session", "summaries", "tokens"} <= names.keys()


def script(path: Path, line: str) -> Path:
    path.write_text(f"#!/bin/sh\n{line}\n", encoding="utf-8")
    path.chmod(0o755)
    return path
