"""Paths as text: nothing is looked up."""

from __future__ import annotations


def shortest_path(path: str) -> str:
    """As `posixpath.normpath`, which stops at a NUL on Python 3.11.0 to 3.11.3.

    `./src//a/../b.py` becomes `src/b.py`.
    """
    root = _root_of(path)
    steps: list[str] = []
    for step in path.split("/"):
        if step in {"", "."}:
            continue
        if step != "..":
            steps.append(step)
        elif steps and steps[-1] != "..":
            steps.pop()
        elif not root:
            steps.append(step)
    return root + "/".join(steps) or "."


def _root_of(path: str) -> str:
    """The slashes that a path keeps at its start: POSIX leaves open what exactly two of them mean."""
    slashes = len(path) - len(path.lstrip("/"))
    if slashes == 2:
        return "//"
    return path[: min(slashes, 1)]
