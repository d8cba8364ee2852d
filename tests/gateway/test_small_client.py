"""A small real client, from its package: Simon Willison's `llm chat` through `lamina run`.

The large ones are in `make clients`. This one starts in a second, and holds a conversation of many turns.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from tools.clients.upstream import DONE, ScriptedUpstream, serve_upstream

ROOT = Path(__file__).resolve().parent.parent.parent
TURNS = 12
RECALL_AT = 9
LLM = shutil.which("llm", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))


@pytest.mark.thorough  # `make clients` tries more of them; test_run has a scripted one
@pytest.mark.skipif(LLM is None, reason="needs the package llm")
@pytest.mark.skipif(sys.platform == "win32", reason="`lamina run` needs file descriptors")
def test_llm_holds_a_long_conversation_in_a_small_window(tmp_path: Path) -> None:
    upstream = ScriptedUpstream(recall_at=frozenset({RECALL_AT}), agent_at=0, bytes_per_step=0)
    upstream.limit = TURNS
    prompts = [f"TASK-STEP {step} {'word ' * 900}" for step in range(1, TURNS + 1)]
    command = ["run", "--window", "8000", "--store", str(tmp_path / "g.db"), "--", str(LLM), "chat"]
    with serve_upstream(upstream):
        done = subprocess.run(
            [sys.executable, "-m", "lamina", *command, "-m", "gpt-4.1"],
            input="\n".join([*prompts, "quit", ""]),
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(tmp_path),
                "LLM_USER_PATH": str(tmp_path / "llm"),
                "OPENAI_API_KEY": "none",
                "OPENAI_BASE_URL": f"{upstream.url}/v1",
                "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
            },
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    for step in range(1, TURNS):
        assert f"I have read step {step}." in done.stdout
    assert f"{DONE} {TURNS}" in done.stdout
    assert "recall" not in done.stdout
    assert f"lamina: {TURNS} calls in 1 conversation, 2 cuts, 1 recall; " in done.stderr
    assert [one.violations for one in upstream.arrived] == [()] * (TURNS + 1)
    breaks = 0
    for before, after in pairwise(upstream.arrived):
        sent = before.request["messages"]
        breaks += after.request["messages"][: len(sent)] != sent
    assert breaks == 2  # at the cuts
