"""Every example of an adapter runs where its framework is installed, and says what it did."""

from __future__ import annotations

import asyncio
import runpy
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
EXAMPLES = {
    "langchain": ("langchain.agents", "84 messages are kept; "),
    "litellm": ("litellm.integrations", "82 messages are kept"),
    "openai_agents": ("agents.memory", "84 items are kept"),
    "pydantic_ai": ("pydantic_ai.capabilities", "84 messages are kept"),
}
"""The package that each example needs, and what its last line has."""


def test_every_example_is_here() -> None:
    assert sorted(EXAMPLES) == sorted(path.stem for path in (ROOT / "examples" / "adapters").glob("*.py"))


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_the_example_runs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In this process, since to import a framework takes longer than its example does."""
    package, last_line = EXAMPLES[name]
    if not _is_installed(package):
        pytest.skip(f"{package} is not installed: run `make adapters` to test it")
    monkeypatch.chdir(tmp_path)
    program = str(ROOT / "examples" / "adapters" / f"{name}.py")
    monkeypatch.setattr(sys, "argv", [program])
    with warnings.catch_warnings(), own_loop():
        warnings.simplefilter("ignore")  # those of the framework
        runpy.run_path(program, run_name="__main__")
    assert last_line in capsys.readouterr().out.splitlines()[-1]
    assert list(tmp_path.iterdir()) == []


@contextmanager
def own_loop() -> Iterator[None]:
    """Without a loop, a framework's blocking call makes one and leaves it open for another test to find."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        yield
    finally:
        asyncio.set_event_loop(None)
        loop.close()


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:
        return False
