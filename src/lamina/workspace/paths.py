"""Paths inside a workspace, as text: what may be asked for at all, and what is never shown.

A path is written with `/`, from the root, without `..`; nothing is looked up here. Names are compared with
patterns in a folded spelling, so that case, Unicode variants and invisible characters, which some file
systems take for the same name, do not get around them.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import lru_cache

from lamina.errors import BadInput

SECRET = (
    ".git",
    "git~*",
    ".hg",
    ".svn",
    ".jj",
    ".env",
    ".env.*",
    ".netrc",
    ".ssh",
    ".aws",
    ".gnupg",
    ".npmrc",
    ".pypirc",
    "*.pem",
    "*.key",
    "*.p12",
    "*.pfx",
    "id_rsa",
    "id_ed25519",
    "id_ecdsa",
    ".lamina-*",
)
"""Names that are never read or written: keys, and folders whose files are run by version control."""

NOISE = (
    "node_modules",
    "__pycache__",
    ".venv",
    "venv",
    ".tox",
    ".mypy_cache",
    ".ruff_cache",
    ".pytest_cache",
)
"""Folders that a walk leaves out, and that can be asked for by name."""

LONGEST = 4096
"""Bytes of a path: what the common systems take."""

_VARIATIONS = frozenset(map(chr, (0x034F, *range(0xFE00, 0xFE10))))

_HINT = "give a path from the root of the workspace, as in 'docs/spec.md'"


def steps(path: str) -> tuple[str, ...]:
    """The names on the way to a path; none for the root itself. Refuses what could mean another place."""
    problem = _problem(path)
    if problem:
        raise BadInput(problem, place=shown(path), hint=_HINT)
    return tuple(step for step in path.split("/") if step not in {"", "."})


def joined(way: Iterable[str]) -> str:
    return "/".join(way) or "."


def excluded(way: Iterable[str], patterns: Iterable[str] = SECRET) -> str:
    """The first name on the way that a pattern forbids, or nothing."""
    folded = [fold(pattern) for pattern in patterns]
    return next((name for name in way if any(fnmatchcase(fold(name), one) for one in folded)), "")


@lru_cache(maxsize=4096)
def fold(name: str) -> str:
    """A name as the least exact file system would compare it."""
    seen = "".join(char for char in name if not _ignored(char))
    plain = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", seen).casefold())
    return plain.rstrip(" .") or plain


def _ignored(char: str) -> bool:
    return unicodedata.category(char) in {"Cf", "Cc", "Cs"} or char in _VARIATIONS


def plain(name: str) -> bool:
    """Whether a name can be shown in a line of text and given back as it was."""
    return not any(unicodedata.category(char) in {"Cc", "Cf", "Cs", "Zl", "Zp"} for char in name)


def shown(name: str) -> str:
    """A name for a message: as it is if it is plain, else escaped; never long."""
    short = name if len(name) <= 200 else f"{name[:199]}…"
    return short if plain(short) else ascii(short)[1:-1]


def _problem(path: str) -> str:
    if not isinstance(path, str):
        return "a path must be text"
    if not plain(path):
        return "a path with control or invisible characters"
    if len(path.encode()) > LONGEST:
        return f"a path of more than {LONGEST:,} bytes"
    if path.startswith(("/", "~")) or path[1:3] in {":/", ":\\"}:
        return "it is not inside the workspace"
    if "\\" in path:
        return "a path with a backslash"
    return "it is not inside the workspace" if any(map(_climbs, path.split("/"))) else ""


def _climbs(name: str) -> bool:
    """Whether some system takes a name for `..`: also with spaces or more dots, or dots of another script."""
    return name not in {"", "."} and set(unicodedata.normalize("NFKC", name)) <= {".", " "}
