"""The code of docs/frameworks.md."""

from __future__ import annotations

from pathlib import Path

from tools.docs import fences

PAGE = Path(__file__).resolve().parent.parent.parent / "docs" / "frameworks.md"


def read_block(section: str) -> str:
    """The code of a section of the page."""
    text = PAGE.read_text(encoding="utf-8")
    lines = text.partition(f"\n### {section}\n")[2].partition("\n### ")[0].splitlines()
    fence = next(fence for fence in fences(lines, section) if fence.language == "python")
    return "\n".join(lines[fence.start : fence.end])
