"""The code of each hook's section of docs/frameworks.md, as written, with a scripted model behind it."""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import linecache
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.recipes import read_block
from tests.wrapped.scripted_api import Call, Said, scripted_api

MANUAL = "press the key"
"""What the tool of every section returns."""

SECTIONS = {
    "LangChain and LangGraph": "langchain_openai",
    "pydantic-ai": "openai",
    "OpenAI Agents SDK": "agents",
    "LiteLLM": "litellm",
}
"""The package that each needs beside lamina's extra."""


@pytest.mark.parametrize("section", SECTIONS)
def test_a_section(section: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip(SECTIONS[section])
    if section == "pydantic-ai":
        pytest.importorskip("pydantic_ai")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    with scripted_api(read_manual) as api:
        monkeypatch.setenv("OPENAI_BASE_URL", f"{api.url}/v1")
        monkeypatch.setenv("OPENAI_API_BASE", f"{api.url}/v1")
        asyncio.run(run_code(read_block(section), str(tmp_path / "block.py")))
    assert MANUAL in json.dumps(api.requests[-1])


async def run_code(text: str, path: str) -> None:
    """Run code that may await outside of functions. Frameworks read the source of their tools."""
    linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
    code = compile(text, path, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    names: dict[str, Any] = {"__name__": "page"}
    waiting = eval(code, names)  # noqa: S307 - the page's own code
    if inspect.isawaitable(waiting):
        await waiting


def read_manual(request: dict[str, Any]) -> Said:
    """Play the model: read a page, and answer when its text is there."""
    if MANUAL not in json.dumps(request):
        return [Call("read_page", {"number": 7}, "call_1")]
    return ["Press the key."]
