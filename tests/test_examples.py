"""Every example runs from any folder without an argument, says what it does, and leaves nothing behind."""

from __future__ import annotations

import runpy
import sys
import tempfile
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
LAST_LINES = {
    "agent.py": "end after 4 steps; 3 calls",
    "agent_search.py": "source: limits.md, line 3",
    "fit_request.py": "step 11: ",
    "gemini_cache.py": "calls: create, generate, generate, delete",
    "layered_notes.py": "    prompt   full  Explain the auth flow.",
    "lifecycle.py": " of 15,800 tokens",
    "orchestration.py": "Twelve.",
    "cost_of_logs.py": "recalled.",
    "priorities.py": "cities.md 3",
    "session.py": "% of the segments are references; 7 are kept",
    "tagged_chunks.py": "excluded: {'chunk_4': 'filtered: kind task_completed excluded'}",
    "trimming.py": "61 messages, 21 sent",
    "wrapped_client.py": " of 4,000 tokens; 3 cuts",
}
"""What the last line of each example has."""


@pytest.fixture(params=sorted(path.name for path in EXAMPLES.glob("*.py")))
def example(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def run_example(name: str, *arguments: str) -> None:
    """As `python examples/NAME` does, in this process, which has imported lamina already."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [name, *arguments])
        patch.syspath_prepend(str(EXAMPLES))
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")


def test_the_example_runs_without_an_argument(
    example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    here, temporary = tmp_path / "here", tmp_path / "temporary"
    here.mkdir()
    temporary.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    run_example(example)
    assert LAST_LINES[example] in capsys.readouterr().out.splitlines()[-1]
    assert list(here.iterdir()) == []
    assert list(temporary.iterdir()) == []


def test_every_example_is_listed() -> None:
    listed = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert [path.name for path in EXAMPLES.glob("*.py") if f"]({path.name})" not in listed] == []


def test_the_agent_takes_a_folder_by_a_relative_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "house").mkdir()
    (tmp_path / "house" / "limits.md").write_text("At most 20 requests a minute.\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    run_example("agent.py", "house")
    assert "30 requests" in (tmp_path / "house" / "limits.md").read_text(encoding="utf-8")
