"""Paths as text: nothing is looked up."""

from __future__ import annotations


def shortest_path(path: str) -> str:
    """As `posixpath.normpath`, which stops at a NUL on Python 3.11.0 to 3.11.3."""
    steps: list[str] = []
    root = path[: len(path) - len(path.lstrip("/"))]
    for step in path.split("/"):
        if step in {"", "."}:
            continue
        if step != "..":
            steps.append(step)
        elif steps and steps[-1] != "..":
            steps.pop()
        elif not root:
            steps.append(step)
    shown_root = root if root == "//" else root[:1]  # POSIX leaves open what two slashes mean
    return shown_root + "/".join(steps) or "."
